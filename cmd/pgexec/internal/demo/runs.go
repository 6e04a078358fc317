package demo

import (
	"encoding/json"
	"fmt"
)

const (
	runsOfEachShape = 6
	searches        = 10
	researchTurns   = 6
	chatTurns       = 14
)

// node is one node of a graph, as the kind graph wants it.
type node struct {
	ID    string   `json:"id"`
	Kind  string   `json:"kind"`
	After []string `json:"after,omitempty"`
	Input any      `json:"input"`
}

// ref stands for a value in the output of an ancestor.
type ref struct {
	Ref string `json:"$ref"`
}

func hitsOf(id string) ref   { return ref{id + "#/body/hits"} }
func answerOf(id string) ref { return ref{id + "#/body/answer"} }

// plan is a run to be inserted.
type plan struct {
	name  string
	input json.RawMessage
	// nodes counts all nodes, that of the graph itself included.
	nodes int
}

// graphBuilder makes graphs whose http nodes call one service.
type graphBuilder struct {
	url   string
	nodes []node
}

// call adds a call of the service. What it sends may hold refs to what it comes after.
func (b *graphBuilder) call(id, path string, body any, after ...string) string {
	input := map[string]any{"method": "POST", "url": b.url + path, "body": body}
	b.nodes = append(b.nodes, node{ID: id, Kind: "http", After: after, Input: input})
	return id
}

func (b *graphBuilder) sql(id, text string, write bool, params []any, after ...string) string {
	input := map[string]any{"sql": text, "params": params, "write": write}
	b.nodes = append(b.nodes, node{ID: id, Kind: "sql", After: after, Input: input})
	return id
}

func (b *graphBuilder) plan(name string) (plan, error) {
	input, err := json.Marshal(map[string]any{"nodes": b.nodes})
	if err != nil {
		return plan{}, fmt.Errorf("write graph: %w", err)
	}
	return plan{name: name, input: input, nodes: len(b.nodes) + 1}, nil
}

// research plans, searches with ten calls at once, joins their answers, twice;
// then it thinks for some turns and saves what it has found.
func research(url, name string) (plan, error) {
	b := &graphBuilder{url: url}
	last := ""
	for round := 1; round <= 2; round++ {
		var after []string
		if last != "" {
			after = []string{last}
		}
		planned := b.call(fmt.Sprintf("plan-%d", round), "/plan", map[string]any{"topic": name}, after...)
		var found []string
		var hits []any
		for i := 1; i <= searches; i++ {
			id := fmt.Sprintf("search-%d-%d", round, i)
			found = append(found, b.call(id, "/search", map[string]any{"query": answerOf(planned)}, planned))
			hits = append(hits, hitsOf(id))
		}
		last = b.call(fmt.Sprintf("summarize-%d", round), "/summarize", map[string]any{"hits": hits}, found...)
	}
	for i := 1; i <= researchTurns; i++ {
		last = b.call(fmt.Sprintf("turn-%d", i), "/turn", map[string]any{"said": answerOf(last)}, last)
	}
	b.sql("save", statement("node_save"), true, []any{name, hitsOf(last)}, last)
	return b.plan(name)
}

// chat takes turns one after the other, each of which sees the one before.
func chat(url, name string) (plan, error) {
	b := &graphBuilder{url: url}
	last := b.call("turn-1", "/turn", map[string]any{"topic": name})
	hits := []any{hitsOf(last)}
	for i := 2; i <= chatTurns; i++ {
		last = b.call(fmt.Sprintf("turn-%d", i), "/turn", map[string]any{"said": answerOf(last)}, last)
		hits = append(hits, hitsOf(last))
	}
	b.sql("total", statement("node_total"), false, []any{hits}, last)
	return b.plan(name)
}

// plans returns all runs of the demo, which call the service at url.
func plans(url string) ([]plan, error) {
	var all []plan
	for i := 1; i <= runsOfEachShape; i++ {
		p, err := research(url, fmt.Sprintf("research-%d", i))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for i := 1; i <= runsOfEachShape; i++ {
		p, err := chat(url, fmt.Sprintf("chat-%d", i))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
