package integration

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pgexec/runtime/pgexec"
)

// How a node ended, in the words of pgexec.
const (
	succeeded = string(pgexec.StatusSucceeded)
	failed    = string(pgexec.StatusFailed)
	skipped   = string(pgexec.StatusSkipped)
)

// model says what becomes of a run's nodes without executing any. It is told, in
// their order, which nodes have been recorded: which of several right things
// happen may depend on time, but what each node then returns does not.
type model struct {
	nodes map[string]modelNode
	// ended are the recorded nodes. Others are skipped, or not done.
	ended map[string]ending
	// settled are nodes whose outcome somebody from outside has told: they spawn nothing.
	settled map[string]bool
	// order lists the recorded nodes as they were recorded.
	order []string
}

// modelNode is a node that the run knows of.
type modelNode struct {
	spawn   *spawn
	parents []string
}

func newModel(root *step) *model {
	id := string(pgexec.RootID)
	return &model{
		nodes: map[string]modelNode{id: {spawn: &spawn{ID: id, Kind: "step", Step: root}}},
		ended: make(map[string]ending), settled: make(map[string]bool),
	}
}

// end tells the model how a node ended, and whether somebody from outside has told its outcome.
func (m *model) end(id string, e ending, settled bool) {
	m.ended[id] = e
	m.settled[id] = settled
	m.order = append(slices.DeleteFunc(m.order, func(other string) bool { return other == id }), id)
	s := m.nodes[id].spawn.Step
	if e.status != succeeded || s == nil || settled {
		return
	}
	for i := range s.Spawns {
		n := modelNode{spawn: &s.Spawns[i], parents: s.Spawns[i].After}
		if len(n.parents) == 0 {
			n.parents = []string{id}
		}
		m.nodes[n.spawn.ID] = n
	}
}

// revive tells the model that a node's failure counts no more.
func (m *model) revive(id string) { delete(m.ended, id) }

// ending returns how a node ended; ok is false if it is not done.
func (m *model) ending(id string) (e ending, ok bool) {
	if e, ok = m.ended[id]; ok {
		return e, true
	}
	n := m.nodes[id]
	if !n.spawn.AllDone {
		for _, parent := range n.parents {
			if e, ok := m.ending(parent); ok && e.status != succeeded {
				return ending{status: skipped}, true
			}
		}
	}
	return ending{}, false
}

// parents returns how the parents of a node ended that may run now; an error if it may not.
func (m *model) parents(id string) ([]ending, error) {
	n := m.nodes[id]
	var out []ending
	for _, parent := range n.parents {
		e, ok := m.ending(parent)
		switch {
		case !ok:
			return nil, fmt.Errorf("its parent %s is not done", parent)
		case e.status != succeeded && !n.spawn.AllDone:
			return nil, fmt.Errorf("its parent %s is %s", parent, e.status)
		}
		out = append(out, e)
	}
	return out, nil
}

// outcome says how a step must end, and after how many attempts; 0 for any number.
func (m *model) outcome(id string, repaired bool) (e ending, attempts int, err error) {
	parents, err := m.parents(id)
	if err != nil {
		return ending{}, 0, err
	}
	sp := m.nodes[id].spawn
	most := sp.Attempts
	if most == 0 {
		most = kindAttempts
	}
	s := sp.Step
	e = ending{status: succeeded, output: strconv.FormatUint(uint64(s.output(parents)), 10)}
	switch {
	case s.Writes, sp.Once != 0:
		return e, 0, nil
	case s.Do == flaky && s.Fails >= most:
		return ending{status: failed}, most, nil
	case s.Do == hopeless, s.Do == broken && !repaired:
		return ending{status: failed}, 1, nil
	case s.Do == flaky:
		attempts = s.Fails
	}
	return e, attempts + 1, nil
}

// open lists the nodes that are not done.
func (m *model) open() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		if _, ok := m.ending(id); !ok {
			out = append(out, id)
		}
	}
	return out
}

// unhandled lists the failed nodes whose failure no all-done node sees, in the order of their records.
func (m *model) unhandled() []string {
	var out []string
	for _, id := range m.order {
		if m.ended[id].status == failed && !m.seen(id) {
			out = append(out, id)
		}
	}
	return out
}

// seen reports that an all-done node is behind the node, directly or through skipped ones.
func (m *model) seen(id string) bool {
	for child, n := range m.nodes {
		if !slices.Contains(n.parents, id) {
			continue
		}
		if n.spawn.AllDone || m.seen(child) {
			return true
		}
	}
	return false
}

// result names the node whose output is the run's: the last one marked final, else the last leaf.
func (m *model) result() string {
	var leaf string
	for _, id := range slices.Backward(m.order) {
		if m.ended[id].status != succeeded {
			continue
		}
		if s := m.nodes[id].spawn.Step; s != nil && s.Final && !m.settled[id] {
			return id
		}
		if leaf == "" && !m.isParent(id) {
			leaf = id
		}
	}
	return leaf
}

func (m *model) isParent(id string) bool {
	for _, n := range m.nodes {
		if slices.Contains(n.parents, id) {
			return true
		}
	}
	return false
}
