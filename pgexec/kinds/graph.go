package kinds

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pgexec/runtime/pgexec"
)

// graphResultKind copies the output of the node that a graph names as its
// result, and marks the copy as the run's.
const graphResultKind = "graph_result"

// graphOutput is the output of a graph node: the graph itself is in the specs of its record.
type graphOutput struct {
	// Nodes counts the nodes of the graph.
	Nodes int `json:"nodes"`
}

// handleGraph spawns all nodes of a graph with this node's one record.
func handleGraph(_ context.Context, n *pgexec.Node, input json.RawMessage) (graphOutput, error) {
	above := ancestorsOf(n)
	plan, err := parseGraph(input, graphScope{
		self:         n.ID(),
		hasKindFunc:  n.HasKind,
		ancestorFunc: func(id pgexec.NodeID) bool { return above[id] },
	})
	if err != nil {
		return graphOutput{}, err
	}
	for _, node := range plan.nodes {
		opts := &pgexec.SpawnOpts{ID: node.id, Join: node.join, InputRefs: node.hasRefs, AtMostOnce: node.once}
		for _, i := range node.after {
			opts.After = append(opts.After, pgexec.Ref(plan.nodes[i].id))
		}
		n.Spawn(node.kind, node.input, opts)
	}
	if plan.result != "" {
		n.Spawn(graphResultKind, json.RawMessage("null"), &pgexec.SpawnOpts{After: []pgexec.NodeRef{pgexec.Ref(plan.result)}, Join: plan.resultJoin()})
	}
	return graphOutput{Nodes: len(plan.nodes)}, nil
}

// ancestorsOf walks up once: each id of a graph is looked for among them.
func ancestorsOf(n *pgexec.Node) map[pgexec.NodeID]bool {
	above := make(map[pgexec.NodeID]bool)
	for next := n.Parents(); len(next) > 0; next = next[1:] {
		if a := next[0]; !above[a.ID()] {
			above[a.ID()] = true
			next = append(next, a.Parents()...)
		}
	}
	return above
}

func handleGraphResult(_ context.Context, n *pgexec.Node, _ json.RawMessage) (json.RawMessage, error) {
	parents := n.Parents()
	if len(parents) != 1 {
		return nil, pgexec.Permanent(fmt.Errorf("kind %s is spawned by kind graph only", graphResultKind))
	}
	if err := parents[0].Err(); err != nil {
		return nil, pgexec.Permanent(pgexec.WithCode(fmt.Errorf("the result is that of node %s, which did not succeed: %w", parents[0].ID(), err), "no_result"))
	}
	n.Final()
	return parents[0].RawOutput()
}
