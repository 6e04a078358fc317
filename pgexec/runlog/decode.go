package runlog

import (
	"math"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Decode reads a record as the log has it. The record may share data's memory: nothing may write to data any more.
func Decode(data []byte) (*pb.Record, error) { return new(decoder).decode(data) }

// decoder decodes one record after another. It neither copies nor allocates what is only read on the way to the graph, and does not
// copy what the graph keeps: copies and garbage are most of what rehydrating costs.
type decoder struct {
	rec   pb.Record
	body  pb.Record_Node
	node  pb.Node
	specs []*pb.NodeSpec
}

// decode returns a record that is good until the next call. Its payloads, errors, usage and texts are good for ever, in data's memory.
func (d *decoder) decode(data []byte) (*pb.Record, error) {
	if d.decodeNode(data) {
		return &d.rec, nil
	}
	rec := new(pb.Record)
	if err := proto.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	return rec, nil
}

// decodeNode decodes the record of a node. It knows the fields that nearly every such record is made of and
// returns false for all else, be it rare, new or damaged, which is left to proto.
func (d *decoder) decodeNode(data []byte) bool {
	f, rest := nextField(data)
	if f.tag != 1<<3|bytesField || len(rest) > 0 {
		return false
	}
	parents, spawned := d.node.Parents[:0], d.node.Spawned[:0]
	d.node.Reset()
	d.node.Parents, d.node.Spawned = parents, spawned
	d.rec.Body, d.body.Node = &d.body, &d.node
	return d.fillNode(&d.node, f.data)
}

func (d *decoder) fillNode(n *pb.Node, data []byte) (ok bool) {
	for len(data) > 0 {
		var f field
		f, data = nextField(data)
		switch f.tag {
		case 1<<3 | bytesField:
			n.Id, ok = f.text()
		case 2<<3 | bytesField:
			n.Kind, ok = f.text()
		case 3<<3 | bytesField:
			n.Parents, ok = f.addTo(n.Parents)
		case 4<<3 | varintField:
			n.Status, ok = pb.NodeStatus(int32(f.number)), true
		case 5<<3 | bytesField:
			ok = setJSON(&n.Output, f.data)
		case 6<<3 | bytesField:
			spec := d.spec(len(n.Spawned))
			n.Spawned, ok = append(n.Spawned, spec), fillSpec(spec, f.data)
		case 7<<3 | varintField:
			n.Final, ok = f.number != 0, true
		case 9<<3 | varintField:
			n.Attempt, ok = uint32(f.number), true
		case 10<<3 | varintField:
			n.StartedUs, ok = int64(f.number), true
		case 11<<3 | varintField:
			n.FinishedUs, ok = int64(f.number), true
		case 12<<3 | bytesField:
			ok = setUsage(&n.Usage, f.data)
		case 13<<3 | varintField:
			n.ReplicaId, ok = int32(f.number), true
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// spec returns the i-th spec of a record, empty.
func (d *decoder) spec(i int) *pb.NodeSpec {
	if i == len(d.specs) {
		d.specs = append(d.specs, new(pb.NodeSpec))
		return d.specs[i]
	}
	spec := d.specs[i]
	parents := spec.Parents[:0]
	spec.Reset()
	spec.Parents = parents
	return spec
}

func fillSpec(spec *pb.NodeSpec, data []byte) (ok bool) {
	for len(data) > 0 {
		var f field
		f, data = nextField(data)
		switch f.tag {
		case 1<<3 | bytesField:
			spec.Id, ok = f.text()
		case 2<<3 | bytesField:
			spec.Kind, ok = f.text()
		case 3<<3 | bytesField:
			spec.Parents, ok = f.addTo(spec.Parents)
		case 4<<3 | varintField:
			spec.Join, ok = pb.Join(int32(f.number)), true
		case 5<<3 | bytesField:
			ok = setJSON(&spec.Input, f.data)
		case 6<<3 | varintField:
			spec.InputRefs, ok = f.number != 0, true
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// setJSON sets a payload that is not set yet to JSON that is in the record.
func setJSON(at **pb.Payload, data []byte) bool {
	f, rest := nextField(data)
	if *at != nil || f.tag != 1<<3|bytesField || len(rest) > 0 {
		return false
	}
	p := new(struct {
		payload pb.Payload
		value   pb.Payload_Json
	})
	p.value.Json, p.payload.Value = f.data, &p.value
	*at = &p.payload
	return true
}

func setUsage(at **pb.Usage, data []byte) bool {
	if *at != nil {
		return false
	}
	*at = new(pb.Usage)
	for len(data) > 0 {
		var f field
		f, data = nextField(data)
		switch f.tag {
		case 1<<3 | varintField:
			(*at).InputTokens = int64(f.number)
		case 2<<3 | varintField:
			(*at).OutputTokens = int64(f.number)
		case 3<<3 | varintField:
			(*at).CostNanoUsd = int64(f.number)
		case 4<<3 | varintField:
			(*at).Unpriced = int64(f.number)
		default:
			return false
		}
	}
	return true
}

const (
	varintField = uint64(protowire.VarintType)
	bytesField  = uint64(protowire.BytesType)
)

// field is one field of a message: a tag, which is its number and type as on the wire, and by its type a number or bytes.
type field struct {
	tag    uint64
	number uint64
	data   []byte
}

// nextField takes the first field off a message. Its tag is 0 if it is damaged, or of a type that is neither of the two.
func nextField(message []byte) (f field, rest []byte) {
	tag, n := protowire.ConsumeVarint(message)
	if n < 0 || tag > math.MaxInt32 {
		return field{}, nil
	}
	rest = message[n:]
	switch f.tag = tag; tag & 7 {
	case varintField:
		f.number, n = protowire.ConsumeVarint(rest)
	case bytesField:
		f.data, n = protowire.ConsumeBytes(rest)
	default:
		n = -1
	}
	if n < 0 {
		return field{}, nil
	}
	f.data = f.data[:len(f.data):len(f.data)]
	return f, rest[n:]
}

// text returns the field as a string that shares its memory.
func (f *field) text() (s string, ok bool) {
	return unsafe.String(unsafe.SliceData(f.data), len(f.data)), utf8.Valid(f.data)
}

// addTo appends the field's text.
func (f *field) addTo(texts []string) ([]string, bool) {
	s, ok := f.text()
	return append(texts, s), ok
}
