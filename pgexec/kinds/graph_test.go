package kinds

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// testScope is a run whose graph node "g" follows "root" and "before".
var testScope = graphScope{
	self:         "g",
	hasKindFunc:  func(kind string) bool { return slices.Contains([]string{"http", "sql", "graph"}, kind) },
	ancestorFunc: func(id pgexec.NodeID) bool { return id == "root" || id == "before" },
}

func TestGraph_BadInputIsNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	for _, tc := range []struct{ input, words string }{
		{`"graph"`, "input: want an object, got a string"},
		{`{}`, "nodes: the graph has no nodes"},
		{`{"nodes":[]}`, "nodes: the graph has no nodes"},
		{`{"nodes":null}`, "nodes: the graph has no nodes"},
		{`{"nodes":{"a":1}}`, "nodes: want a list, got an object"},
		{`{"nodes":[{"id":"a","kind":"http"}],"edges":[]}`, `input: unknown field "edges"; the fields are nodes, result`},
		{`{"nodes":["a"]}`, "nodes[0]: want an object, got a string"},
		{`{"nodes":[{"kind":"http"}]}`, "nodes[0].id is missing"},
		{`{"nodes":[{"id":7,"kind":"http"}]}`, "nodes[0].id: want a string, got the number 7"},
		{`{"nodes":[{"id":"a"}]}`, "nodes[0].kind is missing"},
		{`{"nodes":[{"id":"a","kind":"http"},{"id":"b","kind":"ftp"}]}`, `nodes[1] ("b"): unknown kind "ftp"`},
		{`{"nodes":[{"id":"a","kind":"http","at_most_once":"maybe"}]}`, `"maybe" is none of fail, ask and run_again`},
		{`{"nodes":[{"id":"a","kind":"http","afer":["b"],"x":1}]}`, `nodes[0]: unknown field "afer", "x"; the fields are id, kind, input, after, join, refs, at_most_once`},
		{`{"nodes":[{"id":"a","kind":"http","after":"b"}]}`, "nodes[0].after: want a list, got a string"},
		{`{"nodes":[{"id":"a","kind":"http","after":[1]}]}`, "nodes[0].after: want a list of node ids, got the number 1 in it"},
		{`{"nodes":[{"id":"a","kind":"http","join":"any"}]}`, `nodes[0].join: "any" is neither all_succeeded nor all_done`},
		{`{"nodes":[{"id":"a","kind":"http","refs":"no"}]}`, "nodes[0].refs: want true or false, got a string"},
		{`{"nodes":[{"id":"a","kind":"http"},{"id":"b","kind":"sql"},{"id":"a","kind":"sql"}]}`, `nodes[2] ("a"): the id is already that of nodes[0]`},
		{`{"nodes":[{"id":"root","kind":"http"}]}`, `nodes[0] ("root"): the id is taken by a node of the run that is done or running`},
		{`{"nodes":[{"id":"g","kind":"http"}]}`, `nodes[0] ("g"): the id is taken`},
		{`{"nodes":[{"id":"before","kind":"http"}]}`, `nodes[0] ("before"): the id is taken`},
		{`{"nodes":[{"id":"graph_result-1","kind":"http"}]}`, `nodes[0] ("graph_result-1"): ids that begin with graph_result- are reserved`},
		{`{"nodes":[{"id":"a#b","kind":"http"}]}`, `nodes[0] ("a#b"): an id cannot hold # or control characters`},
		{`{"nodes":[{"id":"a\nb","kind":"http"}]}`, `nodes[0] ("a\nb"): an id cannot hold # or control characters`},
		{`{"nodes":[{"id":"` + long + `","kind":"http"}]}`, "the id has 257 bytes; at most 256 are allowed"},
		{`{"nodes":[{"id":"a","kind":"http","after":["z"]}]}`, `nodes[0] ("a").after: there is no node "z"`},
		{`{"nodes":[{"id":"a","kind":"http","after":["before"]}]}`, `nodes[0] ("a").after: there is no node "before"`},
		{`{"nodes":[{"id":"a","kind":"http"},{"id":"b","kind":"http","after":["a","a"]}]}`, `nodes[1] ("b").after: "a" is named twice`},
		{`{"nodes":[{"id":"a","kind":"http","after":["a"]}]}`, `nodes[0] ("a").after: cycle a → a`},
		{`{"nodes":[{"id":"a","kind":"http","after":["c"]},{"id":"b","kind":"http","after":["a"]},{"id":"c","kind":"http","after":["b"]}]}`, "nodes: cycle a → b → c → a"},
		{`{"nodes":[{"id":"x","kind":"http"},{"id":"y","kind":"http","after":["x","z"]},{"id":"z","kind":"http","after":["y"]}]}`, "nodes: cycle y → z → y"},
		{`{"nodes":[{"id":"a","kind":"http"}],"result":"z"}`, `result: there is no node "z"`},
		{`{"nodes":[{"id":"a","kind":"http"}],"result":1}`, "result: want a string, got the number 1"},
		// References.
		{`{"nodes":[{"id":"a","kind":"http","input":{"url":{"$ref":"z#/body"}}}]}`, `nodes[0] ("a").input: reference "z#/body": there is no node "z"`},
		{`{"nodes":[{"id":"a","kind":"http","input":[{"$ref":"a#/body"}]}]}`, `nodes[0] ("a").input: reference "a#/body": a is not an ancestor`},
		{`{"nodes":[{"id":"a","kind":"http","input":{"u":{"$ref":"b#"}}},{"id":"b","kind":"http"}]}`, `nodes[0] ("a").input: reference "b#": b is not an ancestor; name it, or a node that follows it, in after`},
		{`{"nodes":[{"id":"a","kind":"http"},{"id":"b","kind":"http","after":["a"],"input":{"u":{"$ref":"c#/x"}}},{"id":"c","kind":"http","after":["b"]}]}`, `reference "c#/x": c is not an ancestor`},
		{`{"nodes":[{"id":"a","kind":"http","input":{"u":{"$ref":"body"}}}]}`, `nodes[0] ("a").input: ref "body": no '#'`},
		{`{"nodes":[{"id":"a","kind":"http","input":{"u":{"$ref":"root#body"}}}]}`, "does not begin with '/'"},
		{`{"nodes":[{"id":"a","kind":"http","input":{"u":{"$ref":"root#/~2"}}}]}`, "'~'"},
		{`{"nodes":[{"id":"a","kind":"http","input":{"u":{"$ref":5}}}]}`, "not a string"},
	} {
		plan, err := parseGraph(json.RawMessage(tc.input), testScope)
		if err == nil {
			t.Errorf("%s: accepted as %+v", tc.input, plan)
			continue
		}
		wantFailure(t, err, "bad_input", true, tc.words)
	}
}

// A node may name nodes that come later in the list; references reach any ancestor.
func TestGraph_OrderOfTheListMeansNothing(t *testing.T) {
	t.Parallel()
	nodes := []string{
		`{"id":"a","kind":"http","input":{"u":{"$ref":"before#/x"}}}`,
		`{"id":"b","kind":"http","after":["a"],"join":"all_succeeded","input":{"deep":[{"$ref":"a#/body/id"}]}}`,
		`{"id":"c","kind":"sql","after":["a"],"join":"all_done","refs":false,"input":{"u":{"$ref":"nonsense"}}}`,
		`{"id":"d","kind":"graph","after":["c","b"],"input":{"u":{"$ref":"a#"},"v":{"$ref":"g#/nodes"},"w":{"$ref":"root#"}}}`,
		`{"id":"e","kind":"http"}`,
	}
	for range 20 {
		rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		p, err := parseGraph(json.RawMessage(`{"nodes":[`+strings.Join(nodes, ",")+`],"result":"b"}`), testScope)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range p.nodes {
			var after []string
			for _, i := range n.after {
				after = append(after, string(p.nodes[i].id))
			}
			got = append(got, fmt.Sprintf("%s %s %v %v refs=%t %s", n.id, n.kind, after, n.join, n.hasRefs, n.input))
		}
		slices.Sort(got)
		want := []string{
			`a http [] 0 refs=true {"u":{"$ref":"before#/x"}}`,
			`b http [a] 0 refs=true {"deep":[{"$ref":"a#/body/id"}]}`,
			`c sql [a] 1 refs=false {"u":{"$ref":"nonsense"}}`,
			`d graph [c b] 0 refs=true {"u":{"$ref":"a#"},"v":{"$ref":"g#/nodes"},"w":{"$ref":"root#"}}`,
			`e http [] 0 refs=false {}`,
		}
		if !slices.Equal(got, want) || p.result != "b" {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestGraph_LargeGraphIsChecked(t *testing.T) {
	t.Parallel()
	nodes := make([]string, maxGraphNodes)
	for i := range nodes {
		nodes[i] = fmt.Sprintf(`{"id":"n%d","kind":"http","after":["n%d"]}`, i, (i+1)%len(nodes))
		if i%20 == 0 { // looked for in a long walk each
			nodes[i] = fmt.Sprintf(`{"id":"n%d","kind":"http","after":["n%d"],"input":{"first":{"$ref":"n%d#"}}}`, i, i+1, len(nodes)-1)
		}
	}
	_, err := parseGraph(json.RawMessage(`{"nodes":[`+strings.Join(nodes, ",")+`]}`), testScope)
	wantFailure(t, err, "bad_input", true, "nodes: cycle n0 → n9999 → n9998 → ", "… → n0")
	nodes[len(nodes)-1] = fmt.Sprintf(`{"id":"n%d","kind":"http"}`, len(nodes)-1)
	p, err := parseGraph(json.RawMessage(`{"nodes":[`+strings.Join(nodes, ",")+`]}`), testScope)
	if err != nil || len(p.nodes) != len(nodes) {
		t.Fatalf("%v", err)
	}
	nodes = append(nodes, `{"id":"more","kind":"http"}`)
	_, err = parseGraph(json.RawMessage(`{"nodes":[`+strings.Join(nodes, ",")+`]}`), testScope)
	wantFailure(t, err, "bad_input", true, "nodes: 10001 nodes are over the limit of 10000")
}

// What a graph may cost to check is bounded, however its nodes follow and name each other.
func TestGraph_DenseGraphIsCheckedInTime(t *testing.T) {
	t.Parallel()
	dense := func(count, parents int) json.RawMessage {
		nodes := make([]string, count)
		for i := range nodes {
			var after []string
			for k := max(0, i-parents); k < i; k++ {
				after = append(after, fmt.Sprintf(`"%x"`, k))
			}
			nodes[i] = fmt.Sprintf(`{"id":"%x","kind":"sql","after":[%s],"input":[{"$ref":"%x#"},{"$ref":"0#"}]}`, i, strings.Join(after, ","), max(0, i-parents))
		}
		nodes[0] = `{"id":"0","kind":"sql"}`
		return json.RawMessage(`{"nodes":[` + strings.Join(nodes, ",") + `]}`)
	}
	p, err := parseGraph(dense(maxGraphNodes, 20), testScope)
	if err != nil || len(p.nodes) != maxGraphNodes {
		t.Fatal(err)
	}
	_, err = parseGraph(dense(maxGraphNodes, 200), testScope)
	wantFailure(t, err, "bad_input", true, "nodes: ids, kinds and parents take more than the 1048576 bytes of one record")
}

func FuzzParseGraph(f *testing.F) {
	for _, s := range []string{
		`{"nodes":[{"id":"a","kind":"http"},{"id":"b","kind":"sql","after":["a"],"input":{"$ref":"a#/body"}}],"result":"b"}`,
		`{"nodes":[{"id":"a","kind":"http","after":["b"]},{"id":"b","kind":"http","after":["a"]}]}`,
		`{"nodes":[{"id":"a","kind":"http","input":{"x":[{"$ref":"root#"},{"$ref":"q"}]},"refs":false,"join":"all_done"}]}`,
		`{"nodes":[{"id":"","kind":null,"after":[null],"join":7}]}`,
		`{"nodes":{}}`, `[]`, `{`, ``, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parseGraph(raw, testScope)
		if err != nil {
			if !failure(t, err).Permanent {
				t.Fatalf("%q: %v is not permanent", raw, err)
			}
			return
		}
		checkPlan(t, p)
	})
}

// checkPlan runs the plan by the naive rule and finds every node runnable, with
// all that its references name done before it.
func checkPlan(t *testing.T, p *graphPlan) {
	t.Helper()
	done := map[pgexec.NodeID]bool{"root": true, "before": true, "g": true}
	for progress := true; progress; {
		progress = false
		for _, n := range p.nodes {
			ready := !done[n.id] && !slices.ContainsFunc(n.after, func(i int) bool { return !done[p.nodes[i].id] })
			if !ready {
				continue
			}
			for _, ref := range n.refs {
				if !done[ref.NodeID] {
					t.Fatalf("node %q refers to %q, which is not done before it", n.id, ref.NodeID)
				}
			}
			done[n.id], progress = true, true
		}
	}
	if len(done) != len(p.nodes)+3 {
		t.Fatalf("%d of %d nodes can run", len(done)-3, len(p.nodes))
	}
}
