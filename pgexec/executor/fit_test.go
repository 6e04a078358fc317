package executor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func jsonOf(n int) *pb.Payload {
	return &pb.Payload{Value: &pb.Payload_Json{Json: bytes.Repeat([]byte("1"), n)}}
}

// refused encodes a node's record.
func refused(node *pb.Node) error {
	_, err := runlog.Encode(&pb.Record{Body: &pb.Record_Node{Node: node}})
	return err
}

// A record that is too large fits once the picked payloads are in blobs, of which there are no more than it takes; if none are
// picked, not even all would do (C22).
func TestFit_FewestLargestPayloadsUntilItFits_C22(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := rapid.SampledFrom([]string{"", "file:///srv", "s3://bucket/" + string(bytes.Repeat([]byte("p"), 300))}).Draw(t, "store")
		r := &Run{x: &Executor{Config: Config{Blobs: blob.New(nil, blob.Config{Write: store})}}}
		node := &pb.Node{Id: "n", Output: jsonOf(rapid.IntRange(0, 512<<10).Draw(t, "output"))}
		most := rapid.SampledFrom([]int{100, 32 << 10, 512 << 10}).Draw(t, "most")
		for i := range rapid.IntRange(0, 60).Draw(t, "nodes") {
			node.Spawned = append(node.Spawned, &pb.NodeSpec{Id: fmt.Sprint(i), Input: jsonOf(rapid.IntRange(0, most).Draw(t, "input"))})
		}
		for range rapid.IntRange(0, 6).Draw(t, "parents") {
			node.Parents = append(node.Parents, string(bytes.Repeat([]byte("p"), 200<<10)))
		}
		err := refused(node)
		places := r.toFit(node, err)
		if err == nil && places != nil {
			t.Fatal("payloads were picked of a record that fits")
		}
		ref := &pb.Payload{Value: &pb.Payload_Blob{Blob: r.x.Blobs.LongestRef(mediaTypeJSON)}}
		whole := proto.Clone(node).(*pb.Node)
		switch {
		case err == nil:
		case places == nil:
			for _, p := range payloadsOf(whole) {
				if proto.Size(*p) > proto.Size(ref) {
					*p = ref
				}
			}
			// What a payload's length is written with may get shorter as well: that is not counted on.
			var over *runlog.TooLargeError
			if err := refused(whole); !errors.As(err, &over) && proto.Size(whole) < runlog.MaxRecordBytes-10*(len(whole.Spawned)+2) {
				t.Fatalf("nothing was picked, but with blobs it fits: %d bytes", proto.Size(whole))
			}
		default:
			var left int
			for i, p := range places {
				if i == len(places)-1 {
					left = proto.Size(node)
				}
				*p = ref
			}
			if err := refused(node); err != nil {
				t.Fatal(err)
			}
			if left < runlog.MaxRecordBytes-10*(len(node.Spawned)+2) {
				t.Fatalf("one payload less would have done: %d bytes", left)
			}
			for _, p := range payloadsOf(node) {
				if !slices.Contains(places, p) && proto.Size(*p) > proto.Size(payloadAt(whole, node, places[len(places)-1])) {
					t.Fatal("a larger payload was left in the record")
				}
			}
		}
	})
}

// payloadAt returns what a place of node was in a copy of it.
func payloadAt(before, node *pb.Node, place **pb.Payload) *pb.Payload {
	if place == &node.Output {
		return before.Output
	}
	for i, s := range node.Spawned {
		if place == &s.Input {
			return before.Spawned[i].Input
		}
	}
	return nil
}

// An error that is not about size, and a record that has nothing to put elsewhere, have nothing picked.
func TestFit_NothingToPick(t *testing.T) {
	r := &Run{x: &Executor{Config: Config{Blobs: blob.New(nil, blob.Config{})}}}
	over := &runlog.TooLargeError{Size: runlog.MaxRecordBytes + 1, Limit: runlog.MaxRecordBytes}
	inBlob := &pb.Payload{Value: &pb.Payload_Blob{Blob: r.x.Blobs.LongestRef(mediaTypeJSON)}}
	for name, got := range map[string][]**pb.Payload{
		"another error": r.toFit(&pb.Node{Output: jsonOf(2 << 20)}, errors.New("x")),
		"no payload":    r.toFit(&pb.Node{}, over),
		"small ones":    r.toFit(&pb.Node{Output: jsonOf(100), Spawned: []*pb.NodeSpec{{Input: jsonOf(100)}, {}}}, over),
		"in a blob":     r.toFit(&pb.Node{Output: inBlob}, over),
	} {
		if got != nil {
			t.Errorf("%s: %d payloads were picked", name, len(got))
		}
	}
}
