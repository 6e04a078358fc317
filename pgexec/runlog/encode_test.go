package runlog_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// G1 rests on it: an append whose answer was lost is recognised by its bytes.
func TestEncode_SameBytesEachTime_G1(t *testing.T) {
	t.Parallel()
	rec := &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: "a", Parents: []string{"root", "b"}, Usage: &pb.Usage{InputTokens: 3},
		Spawned: []*pb.NodeSpec{{Id: "c", Input: &pb.Payload{Value: &pb.Payload_Json{Json: []byte(`{}`)}}}},
	}}}
	first := encode(t, rec)
	for range 100 {
		if !bytes.Equal(first, encode(t, rec)) {
			t.Fatal("the same record has other bytes")
		}
	}
}

// C22: a record over the limit is an error that names the node and the size.
func TestEncode_TooLarge_C22(t *testing.T) {
	t.Parallel()
	payload := func(n int) *pb.Payload {
		return &pb.Payload{Value: &pb.Payload_Json{Json: bytes.Repeat([]byte("x"), n)}}
	}
	for name, rec := range map[string]*pb.Record{
		"fetch-3": {Body: &pb.Record_Node{Node: &pb.Node{Id: "fetch-3", Output: payload(runlog.MaxRecordBytes)}}},
		"tool-2": {Body: &pb.Record_AttemptFailed{AttemptFailed: &pb.AttemptFailed{
			NodeId: "tool-2", Error: &pb.Error{Message: strings.Repeat("x", runlog.MaxRecordBytes)},
		}}},
	} {
		data, err := runlog.Encode(rec)
		var tooLarge *runlog.TooLargeError
		if !errors.As(err, &tooLarge) || data != nil {
			t.Fatalf("%s: got %d bytes, %v", name, len(data), err)
		}
		if tooLarge.NodeID != name || tooLarge.Size <= runlog.MaxRecordBytes || tooLarge.Limit != runlog.MaxRecordBytes {
			t.Errorf("%s: got %+v", name, tooLarge)
		}
	}
	fits := &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "a", Output: payload(runlog.MaxRecordBytes - 20)}}}
	if _, err := runlog.Encode(fits); err != nil {
		t.Errorf("a record within the limit: %v", err)
	}
}
