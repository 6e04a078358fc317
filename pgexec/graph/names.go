package graph

import (
	"maps"
	"strconv"
	"sync"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// names knows the nodes of a run by their ids, and which ids are spoken for.
type names struct {
	// mu lets NewID, called by handlers, read what Apply and Check write. The
	// owner alone writes nodes and reserved, so it reads them without mu.
	mu    sync.Mutex
	nodes map[NodeID]*Node
	// reserved holds ids of specs that were checked and are not yet applied, with the node that spawns them.
	reserved map[NodeID]*Node
	// lastID is the highest number known or given out, by kind; recent is that of the kind asked for last.
	lastID map[string]*uint64
	recent struct {
		kind string
		last *uint64
	}
}

func (ns *names) init() {
	ns.nodes, ns.reserved, ns.lastID = make(map[NodeID]*Node), make(map[NodeID]*Node), make(map[string]*uint64)
}

// Node returns the node with that id, nil if there is none.
func (ns *names) Node(id NodeID) *Node { return ns.nodes[id] }

// Len returns the number of nodes known, done or not.
func (ns *names) Len() int { return len(ns.nodes) }

// NewID returns an id "<kind>-<n>" that no node of this graph has and that it
// does not return again. Numbers that no record uses are given out again after
// rehydration. Safe for concurrent use.
func (ns *names) NewID(kind string) NodeID {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	last := ns.lastOf(kind)
	for n := *last + 1; ; n++ {
		id := NodeID(kind + "-" + strconv.FormatUint(n, 10))
		if ns.nodes[id] == nil && ns.reserved[id] == nil {
			*last = n
			return id
		}
	}
}

// Grow makes room for n more nodes: a graph that is told what comes is built faster. n is a guess, and bounds nothing.
func (ns *names) Grow(n int) {
	nodes := make(map[NodeID]*Node, len(ns.nodes)+n)
	maps.Copy(nodes, ns.nodes)
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.nodes = nodes
}

// add makes added the nodes of specs, without their parents, and known by their ids.
func (ns *names) add(added []Node, specs []*pb.NodeSpec) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for i, spec := range specs {
		n := &added[i]
		n.Spec.read(spec)
		ns.nodes[n.ID] = n
		ns.note(n.ID, n.Kind)
	}
}

// note keeps NewID ahead of the ids in the log. mu must be held.
func (ns *names) note(id NodeID, kind string) {
	if n, ok := idNumber(string(id), kind); ok {
		last := ns.lastOf(kind)
		*last = max(*last, n)
	}
}

// lastOf returns where the highest number of a kind is kept. mu must be held.
func (ns *names) lastOf(kind string) *uint64 {
	if r := &ns.recent; r.last == nil || r.kind != kind {
		if r.kind, r.last = kind, ns.lastID[kind]; r.last == nil {
			r.last = new(uint64)
			ns.lastID[kind] = r.last
		}
	}
	return ns.recent.last
}

// reserve keeps the ids of specs for n, which is about to spawn them, in the place of those kept for it before.
func (ns *names) reserve(n *Node, specs []*pb.NodeSpec) {
	ns.release(n)
	if len(specs) == 0 {
		return
	}
	n.checked = specs
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for _, spec := range specs {
		ns.reserved[NodeID(spec.GetId())] = n
	}
}

// release gives up the ids that are kept for n.
func (ns *names) release(n *Node) {
	if len(n.checked) == 0 {
		return
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for _, spec := range n.checked {
		delete(ns.reserved, NodeID(spec.GetId()))
	}
	n.checked = nil
}

// idNumber returns n if id is what NewID makes of kind and n. Numbers beyond
// 15 digits are no concern: NewID steps over ids that are taken.
func idNumber(id, kind string) (uint64, bool) {
	if len(id) < len(kind)+2 || id[len(kind)] != '-' || id[:len(kind)] != kind {
		return 0, false
	}
	digits := id[len(kind)+1:]
	if len(digits) > 15 || digits[0] == '0' {
		return 0, false
	}
	var n uint64
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(digits[i]-'0')
	}
	return n, true
}
