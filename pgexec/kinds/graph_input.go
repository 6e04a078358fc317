package kinds

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// maxGraphNodes bounds one graph, whose specs without their inputs have to fit in one record.
const maxGraphNodes = 10_000

// graphScope is what the input of a graph is checked against.
type graphScope struct {
	// self is the graph node.
	self pgexec.NodeID
	// hasKindFunc says whether this replica has a kind.
	hasKindFunc func(string) bool
	// ancestorFunc says whether a node is an ancestor of the graph node.
	ancestorFunc func(pgexec.NodeID) bool
}

// graphPlan is a checked graph: names are unique, parents exist, nothing is
// cyclic, and references name ancestors.
type graphPlan struct {
	nodes  []*graphNode
	byID   map[pgexec.NodeID]int
	result pgexec.NodeID // "": the run's last leaf
	// size is what ids, kinds and parents take, at the least, in the record that has them all.
	size int
	// kinds are those that were looked for.
	kinds map[string]bool
	// order has parents before their children.
	order []int
}

type graphNode struct {
	// path names the node's place in the input.
	path  string
	id    pgexec.NodeID
	kind  string
	input json.RawMessage
	// after are the positions of the parents.
	after   []int
	parents []string // their ids as given
	join    pgexec.Join
	once    pgexec.UnknownOutcome
	refs    []graph.Ref
	hasRefs bool
}

// parseGraph reads and checks a graph. All its errors are permanent and name
// the place in the input and the fault. The order of the list means nothing.
func parseGraph(raw json.RawMessage, scope graphScope) (*graphPlan, error) {
	f, err := objectFields(inputPath, raw, "nodes", "result")
	if err != nil {
		return nil, err
	}
	list, err := f.list("nodes")
	if err != nil {
		return nil, err
	}
	switch {
	case len(list) == 0:
		return nil, badInput("nodes: the graph has no nodes")
	case len(list) > maxGraphNodes:
		return nil, badInput("nodes: %d nodes are over the limit of %d", len(list), maxGraphNodes)
	}
	p := &graphPlan{byID: make(map[pgexec.NodeID]int, len(list)), kinds: make(map[string]bool)}
	for i, item := range list {
		n, err := parseGraphNode(fmt.Sprintf("nodes[%d]", i), item)
		if err != nil {
			return nil, err
		}
		if err := p.add(n, scope); err != nil {
			return nil, err
		}
	}
	result, err := f.text("result")
	if err != nil {
		return nil, err
	}
	p.result = pgexec.NodeID(result)
	return p, p.check(scope)
}

// resultJoin has the copy of the result fail, instead of being skipped, where another node may see to it that a failure
// does not fail the run: it would succeed with the output of some other node.
func (p *graphPlan) resultJoin() pgexec.Join {
	for _, n := range p.nodes {
		if n.join == pgexec.AllDone {
			return pgexec.AllDone
		}
	}
	return pgexec.AllSucceeded
}

func parseGraphNode(path string, raw json.RawMessage) (*graphNode, error) {
	f, err := objectFields(path, raw, "id", "kind", "input", "after", "join", "refs", "at_most_once")
	if err != nil {
		return nil, err
	}
	n := &graphNode{path: path, input: f.members["input"]}
	id, err := f.requiredText("id")
	if err != nil {
		return nil, err
	}
	n.id = pgexec.NodeID(id)
	n.path = fmt.Sprintf("%s (%q)", path, clip(id, 80))
	if n.kind, err = f.requiredText("kind"); err != nil {
		return nil, err
	}
	if n.join, err = graphJoin(f); err != nil {
		return nil, err
	}
	if n.once, err = graphOnce(f); err != nil {
		return nil, err
	}
	if n.parents, err = graphAfter(f); err != nil {
		return nil, err
	}
	refs, err := f.flag("refs", true)
	if err != nil {
		return nil, err
	}
	if n.input == nil {
		n.input = json.RawMessage("{}")
	}
	if !refs {
		return n, nil
	}
	if n.refs, err = graph.Refs(n.input); err != nil {
		return nil, badInput("%s.input: %w", n.path, err)
	}
	n.hasRefs = len(n.refs) > 0
	return n, nil
}

func graphJoin(f fields) (pgexec.Join, error) {
	join, err := f.text("join")
	if err != nil {
		return 0, err
	}
	switch join {
	case "", "all_succeeded":
		return pgexec.AllSucceeded, nil
	case "all_done":
		return pgexec.AllDone, nil
	default:
		return 0, badInput("%s: %q is neither all_succeeded nor all_done", f.at("join"), clip(join, 80))
	}
}

// graphOnce reads what becomes of a node that runs at most once.
func graphOnce(f fields) (pgexec.UnknownOutcome, error) {
	policy, err := f.text("at_most_once")
	if err != nil {
		return 0, err
	}
	switch policy {
	case "":
		return pgexec.RunAgain, nil
	case "fail":
		return pgexec.UnknownFails, nil
	case "ask":
		return pgexec.UnknownAsks, nil
	case "run_again":
		return pgexec.UnknownRunsAgain, nil
	default:
		return 0, badInput("%s: %q is none of fail, ask and run_again", f.at("at_most_once"), clip(policy, 80))
	}
}

func graphAfter(f fields) ([]string, error) {
	list, err := f.list("after")
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(list))
	for _, item := range list {
		id, ok := jsonString(item)
		if !ok {
			return nil, badInput("%s: want a list of node ids, got %s in it", f.at("after"), jsonType(item))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// add takes a node in, whose id must be free.
func (p *graphPlan) add(n *graphNode, scope graphScope) error {
	first, twice := p.byID[n.id]
	switch {
	case twice:
		return badInput("%s: the id is already that of nodes[%d]", n.path, first)
	case n.id == pgexec.RootID || n.id == scope.self || scope.ancestorFunc(n.id):
		return badInput("%s: the id is taken by a node of the run that is done or running", n.path)
	case strings.HasPrefix(string(n.id), graphResultKind+"-"):
		return badInput("%s: ids that begin with %s- are reserved", n.path, graphResultKind)
	case len(n.id) > graph.MaxIDBytes:
		return badInput("%s: the id has %d bytes; at most %d are allowed", n.path, len(n.id), graph.MaxIDBytes)
	case strings.ContainsFunc(string(n.id), func(r rune) bool { return r == '#' || r < ' ' || 0x7F <= r && r < 0xA0 }):
		return badInput("%s: an id cannot hold # or control characters", n.path)
	case !p.hasKind(n.kind, scope):
		return badInput("%s: unknown kind %q", n.path, clip(n.kind, 80))
	}
	p.size += len(n.id) + len(n.kind)
	for _, id := range n.parents {
		p.size += len(id)
	}
	if p.size > runlog.MaxRecordBytes {
		return badInput("nodes: ids, kinds and parents take more than the %d bytes of one record", runlog.MaxRecordBytes)
	}
	p.byID[n.id] = len(p.nodes)
	p.nodes = append(p.nodes, n)
	return nil
}

// hasKind asks once for each kind.
func (p *graphPlan) hasKind(kind string, scope graphScope) bool {
	has, asked := p.kinds[kind]
	if !asked {
		has = scope.hasKindFunc(kind)
		p.kinds[kind] = has
	}
	return has
}

// check looks at what nodes say of each other, when all are known.
func (p *graphPlan) check(scope graphScope) error {
	for i, n := range p.nodes {
		if err := p.link(i, n); err != nil {
			return err
		}
	}
	if err := p.checkCycle(); err != nil {
		return err
	}
	if err := p.checkRefs(scope); err != nil {
		return err
	}
	if _, ok := p.byID[p.result]; p.result != "" && !ok {
		return badInput("result: there is no node %q", clip(string(p.result), 80))
	}
	return nil
}

// link finds the parents of a node.
func (p *graphPlan) link(i int, n *graphNode) error {
	seen := make(map[int]bool, len(n.parents))
	for _, id := range n.parents {
		parent, ok := p.byID[pgexec.NodeID(id)]
		switch {
		case !ok:
			return badInput("%s.after: there is no node %q", n.path, clip(id, 80))
		case seen[parent]:
			return badInput("%s.after: %q is named twice", n.path, clip(id, 80))
		case parent == i:
			return badInput("%s.after: cycle %s → %s", n.path, id, id)
		}
		seen[parent] = true
		n.after = append(n.after, parent)
	}
	return nil
}
