package runlog_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// A text that is not UTF-8 is damage wherever in a record it is: it could not be written again.
func TestDecode_TextsAreUTF8(t *testing.T) {
	t.Parallel()
	fields := 0
	eachString(new(pb.Record).ProtoReflect().Descriptor(), nil, func(path []protoreflect.FieldDescriptor) {
		fields++
		for text, good := range map[string]bool{"é": true, "\xc3": false} {
			if _, err := runlog.Decode(recordWith(path, text)); (err == nil) != good {
				t.Errorf("%q in %s: %v", text, path[len(path)-1].FullName(), err)
			}
		}
	})
	if fields < 25 {
		t.Errorf("only %d texts in the format", fields)
	}
}

// eachString calls fn with the way to each string of a message.
func eachString(m protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor, fn func([]protoreflect.FieldDescriptor)) {
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		way := append(path[:len(path):len(path)], field)
		switch field.Kind() {
		case protoreflect.StringKind:
			fn(way)
		case protoreflect.MessageKind:
			eachString(field.Message(), way, fn)
		}
	}
}

// recordWith encodes a record with nothing but one text in it.
func recordWith(path []protoreflect.FieldDescriptor, text string) []byte {
	data := []byte(text)
	for i := len(path) - 1; i >= 0; i-- {
		data = append(protowire.AppendVarint(protowire.AppendTag(nil, path[i].Number(), protowire.BytesType), uint64(len(data))), data...)
	}
	return data
}

// G9: what the usual decoder makes of any bytes, this one does, fields of newer builds included.
func FuzzDecode_AgreesWithProto_G9(f *testing.F) {
	node := &pb.Node{
		Id: "a", Kind: "k", Parents: []string{"root"}, Status: pb.NodeStatus_NODE_STATUS_FAILED, Final: true, Attempt: 3, StartedUs: -1, ReplicaId: 7,
		Output:  &pb.Payload{Value: &pb.Payload_Json{Json: []byte("\x00")}},
		Spawned: []*pb.NodeSpec{{Id: "b", Input: &pb.Payload{Value: &pb.Payload_Blob{Blob: &pb.Blob{Url: "db:x", Size: 1}}}, Retry: &pb.RetryPolicy{MaxAttempts: 1}}},
		Error:   &pb.Error{Message: "m", Permanent: true}, Usage: &pb.Usage{InputTokens: 1},
	}
	usual := &pb.Node{
		Id: "a", Kind: "k", Parents: []string{"x", "y"}, Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Final: true, Attempt: 3, StartedUs: -1, FinishedUs: 9,
		Output: &pb.Payload{Value: &pb.Payload_Json{Json: []byte("1")}}, Usage: &pb.Usage{InputTokens: 1, OutputTokens: 2, CostNanoUsd: 3, Unpriced: 4},
		Spawned: []*pb.NodeSpec{
			{Id: "b", Kind: "k", Parents: []string{"a", "x"}, Join: pb.Join_JOIN_ALL_DONE, InputRefs: true, Input: &pb.Payload{Value: &pb.Payload_Json{Json: []byte("2")}}},
			{Id: "c"},
		},
		ReplicaId: 7,
	}
	for _, rec := range []*pb.Record{
		{Body: &pb.Record_Node{Node: &pb.Node{Id: "a", Spawned: []*pb.NodeSpec{{Id: "d"}}}}},
		{Body: &pb.Record_Node{Node: node}},
		{Body: &pb.Record_Node{Node: usual}},
		{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 1, Host: "h"}}},
		{Body: &pb.Record_Control{Control: &pb.Control{NodeIds: []string{"a", "b"}}}},
		{},
	} {
		raw, err := runlog.Encode(rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(append(raw, protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 5)...))
		f.Add(append(raw, raw...))
	}
	full, err := runlog.Encode(&pb.Record{Body: &pb.Record_Node{Node: usual}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var reused runlog.Decoder
		if _, err := reused.Decode(full); err != nil {
			t.Fatal(err)
		}
		want := new(pb.Record)
		wantErr := proto.Unmarshal(data, want)
		got, err := runlog.Decode(slices.Clone(data))
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
			t.Fatalf("%x: got %v, %v; want %v, %v", data, got, err, want, wantErr)
		}
		if got, err := reused.Decode(data); (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
			t.Fatalf("%x after another record: got %v, %v; want %v, %v", data, got, err, want, wantErr)
		}
	})
}

// What a node put out and hands on stays where the fetch has put it.
func TestDecode_CopiesNoPayload(t *testing.T) {
	t.Parallel()
	data, err := runlog.Encode(&pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: "a", Kind: "turn", Parents: []string{"root"}, Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Attempt: 1, ReplicaId: 1,
		Output:  &pb.Payload{Value: &pb.Payload_Json{Json: []byte(`{"text":"…"}`)}},
		Spawned: []*pb.NodeSpec{{Id: "b", Kind: "tool", Parents: []string{"a"}, Input: &pb.Payload{Value: &pb.Payload_Json{Json: []byte("{}")}}}},
		Usage:   &pb.Usage{InputTokens: 1}, StartedUs: 1, FinishedUs: 2,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := runlog.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []*pb.Payload{rec.GetNode().GetOutput(), rec.GetNode().GetSpawned()[0].GetInput()} {
		payload.GetJson()[0] = '#'
	}
	if bytes.Count(data, []byte("#")) != 2 {
		t.Errorf("the payloads were copied out of %q", data)
	}
}
