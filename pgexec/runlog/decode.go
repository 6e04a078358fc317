package runlog

import (
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pgexec/runtime/internal/slab"
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
	jsons slab.Slab[jsonPayload]
}

// jsonPayload is a payload with its value.
type jsonPayload struct {
	payload pb.Payload
	value   pb.Payload_Json
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
	rec := message{rest: data}
	if len(data) == 0 || rec.tag() != 1<<3|bytesField {
		return false
	}
	node := message{rest: rec.bytes()}
	if rec.damaged || len(rec.rest) > 0 {
		return false
	}
	parents, spawned := d.node.Parents[:0], d.node.Spawned[:0]
	d.node.Reset()
	d.node.Parents, d.node.Spawned = parents, spawned
	d.rec.Body, d.body.Node = &d.body, &d.node
	return d.fillNode(&d.node, node)
}

func (d *decoder) fillNode(n *pb.Node, m message) bool {
	for len(m.rest) > 0 {
		switch m.tag() {
		case 1<<3 | bytesField:
			n.Id = m.text()
		case 2<<3 | bytesField:
			n.Kind = m.text()
		case 3<<3 | bytesField:
			n.Parents = append(n.Parents, m.text())
		case 4<<3 | varintField:
			n.Status = pb.NodeStatus(int32(m.varint()))
		case 5<<3 | bytesField:
			if n.Output != nil || !d.setJSON(&n.Output, m.bytes()) {
				return false
			}
		case 6<<3 | bytesField:
			spec := d.spec(len(n.Spawned))
			n.Spawned = append(n.Spawned, spec)
			if !d.fillSpec(spec, message{rest: m.bytes()}) {
				return false
			}
		case 7<<3 | varintField:
			n.Final = m.varint() != 0
		case 9<<3 | varintField:
			n.Attempt = uint32(m.varint())
		case 10<<3 | varintField:
			n.StartedUs = int64(m.varint())
		case 11<<3 | varintField:
			n.FinishedUs = int64(m.varint())
		case 12<<3 | bytesField:
			if n.Usage != nil || !setUsage(&n.Usage, message{rest: m.bytes()}) {
				return false
			}
		case 13<<3 | varintField:
			n.ReplicaId = int32(m.varint())
		default:
			return false
		}
	}
	return !m.damaged
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

func (d *decoder) fillSpec(spec *pb.NodeSpec, m message) bool {
	for len(m.rest) > 0 {
		switch m.tag() {
		case 1<<3 | bytesField:
			spec.Id = m.text()
		case 2<<3 | bytesField:
			spec.Kind = m.text()
		case 3<<3 | bytesField:
			spec.Parents = append(spec.Parents, m.text())
		case 4<<3 | varintField:
			spec.Join = pb.Join(int32(m.varint()))
		case 5<<3 | bytesField:
			if spec.Input != nil || !d.setJSON(&spec.Input, m.bytes()) {
				return false
			}
		case 6<<3 | varintField:
			spec.InputRefs = m.varint() != 0
		default:
			return false
		}
	}
	return !m.damaged
}

// setJSON sets a payload to JSON that is in the record.
func (d *decoder) setJSON(at **pb.Payload, data []byte) bool {
	m := message{rest: data}
	if len(data) == 0 || m.tag() != 1<<3|bytesField {
		return false
	}
	json := m.bytes()
	if m.damaged || len(m.rest) > 0 {
		return false
	}
	p := &d.jsons.Take(1)[0]
	p.value.Json, p.payload.Value = json, &p.value
	*at = &p.payload
	return true
}

func setUsage(at **pb.Usage, m message) bool {
	u := new(pb.Usage)
	*at = u
	for len(m.rest) > 0 {
		switch m.tag() {
		case 1<<3 | varintField:
			u.InputTokens = int64(m.varint())
		case 2<<3 | varintField:
			u.OutputTokens = int64(m.varint())
		case 3<<3 | varintField:
			u.CostNanoUsd = int64(m.varint())
		case 4<<3 | varintField:
			u.Unpriced = int64(m.varint())
		default:
			return false
		}
	}
	return !m.damaged
}

const (
	varintField = uint64(protowire.VarintType)
	bytesField  = uint64(protowire.BytesType)
)

// message takes one after another off a message's bytes. After damage nothing is left, and what was taken last is zero.
type message struct {
	rest    []byte
	damaged bool
}

// tag takes the number and the type of a field, as they are on the wire; 0 stands for all that do not fit into a byte.
func (m *message) tag() uint64 {
	if m.rest[0] >= 0x80 {
		return 0
	}
	tag := m.rest[0]
	m.rest = m.rest[1:]
	return uint64(tag)
}

func (m *message) varint() uint64 {
	if len(m.rest) > 0 && m.rest[0] < 0x80 {
		v := m.rest[0]
		m.rest = m.rest[1:]
		return uint64(v)
	}
	return m.longVarint()
}

func (m *message) longVarint() uint64 {
	v, n := protowire.ConsumeVarint(m.rest)
	if n < 0 {
		m.rest, m.damaged = nil, true
		return 0
	}
	m.rest = m.rest[n:]
	return v
}

// bytes takes a number of bytes, which stay where they are.
func (m *message) bytes() []byte {
	n := m.varint()
	if n > uint64(len(m.rest)) {
		m.rest, m.damaged = nil, true
		return nil
	}
	data := m.rest[:n:n]
	m.rest = m.rest[n:]
	return data
}

// text takes a string that shares the message's memory.
func (m *message) text() string {
	data := m.bytes()
	if !utf8.Valid(data) {
		m.rest, m.damaged = nil, true
	}
	return unsafe.String(unsafe.SliceData(data), len(data))
}
