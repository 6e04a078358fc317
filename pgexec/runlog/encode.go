package runlog

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// MaxRecordBytes is the hard limit of one encoded record.
const MaxRecordBytes = 1 << 20

// Encode returns the record's bytes as they go into the log: the same bytes each time within one
// build, since an append whose answer was lost is recognised by its bytes. A record over
// [MaxRecordBytes] is a [*TooLargeError] that names the node.
func Encode(rec *pb.Record) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	if len(data) > MaxRecordBytes {
		return nil, &TooLargeError{NodeID: nodeID(rec), Size: len(data), Limit: MaxRecordBytes}
	}
	return data, nil
}

// nodeID names the node a record is about; empty for a fact of the whole run.
func nodeID(rec *pb.Record) string {
	switch body := rec.GetBody().(type) {
	case *pb.Record_Node:
		return body.Node.GetId()
	case *pb.Record_AttemptFailed:
		return body.AttemptFailed.GetNodeId()
	case *pb.Record_Started:
		return body.Started.GetNodeId()
	case *pb.Record_Finished:
		return body.Finished.GetErrorNodeId()
	}
	return ""
}
