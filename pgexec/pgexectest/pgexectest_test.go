package pgexectest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgexec/runtime/internal/doctest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sum is a run of three nodes: two numbers and their sum.
func sum() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "numbers", func(_ context.Context, n *pgexec.Node, in []int) (int, error) {
		var refs []pgexec.NodeRef
		for _, v := range in {
			refs = append(refs, n.Spawn("number", v, nil))
		}
		n.Spawn("sum", nil, &pgexec.SpawnOpts{After: refs})
		return len(in), nil
	}, nil)
	pgexec.AddKind(kinds, "number", func(_ context.Context, n *pgexec.Node, in int) (int, error) {
		if in < 0 {
			return 0, pgexec.Permanent(errors.New("below zero"))
		}
		n.AddUsage(pgexec.Usage{InputTokens: int64(in)})
		return in, nil
	}, nil)
	pgexec.AddKind(kinds, "sum", func(_ context.Context, n *pgexec.Node, _ any) (total int, err error) {
		for _, p := range n.Parents() {
			var v int
			if err := p.Output(&v); err != nil {
				return 0, err
			}
			total += v
		}
		return total, nil
	}, nil)
	return kinds
}

func TestDB_IsTheTestsOwn(t *testing.T) {
	t.Parallel()
	pool := pgexectest.DB(t)
	if pool != pgexectest.DB(t) {
		t.Error("one test has two databases")
	}
	t.Run("subtest", func(t *testing.T) {
		if pool == pgexectest.DB(t) {
			t.Error("a subtest shares its parent's database")
		}
	})
	if nodes := pgexectest.Nodes(t, pool, pgexec.RunID{}); len(nodes) != 0 {
		t.Errorf("nodes of no run: %v", nodes)
	}
}

func TestRun_GivesTheRunAndItsNodes(t *testing.T) {
	t.Parallel()
	pool := pgexectest.DB(t)
	got := pgexectest.Run(t, pool, sum(), "numbers", []int{40, 2})
	var total int
	if err := got.Output(&total); err != nil || total != 42 {
		t.Errorf("%d, %v", total, err)
	}
	if len(got.Nodes) != 4 {
		t.Fatalf("got %+v", got.Nodes)
	}
	first, last := got.Nodes[0], got.Nodes[3]
	if first.ID != pgexec.RootID || first.Kind != "numbers" || string(first.Output) != "2" || first.Status != "succeeded" || first.Attempt != 1 {
		t.Errorf("got %+v", first)
	}
	if last.Kind != "sum" || len(last.Parents) != 2 || !slices.Contains(last.Parents, got.Nodes[1].ID) || got.Nodes[1].Tokens+got.Nodes[2].Tokens != 42 {
		t.Errorf("got %+v", got.Nodes)
	}
	again := pgexectest.Run(t, pool, sum(), "numbers", []int{1})
	if again.ID == got.ID || len(again.Nodes) != 3 {
		t.Errorf("a second run: %+v", again.Nodes)
	}
}

func TestRun_GivesARunThatFailed(t *testing.T) {
	t.Parallel()
	got := pgexectest.Run(t, pgexectest.DB(t), sum(), "numbers", []int{-1})
	if got.Status != pgexec.RunFailed || !strings.Contains(got.Error, "below zero") {
		t.Errorf("%s: %s", got.Status, got.Error)
	}
	if last := got.Nodes[len(got.Nodes)-1]; last.Status != "failed" || last.Error != "below zero" || string(last.Output) != "" {
		t.Errorf("got %+v", last)
	}
}

func TestRun_GivesARunThatIsPaused(t *testing.T) {
	t.Parallel()
	pool := pgexectest.DB(t)
	client := pgexec.NewClient(pool, nil)
	defer client.Close()
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "asks", func(ctx context.Context, n *pgexec.Node, _ any) (any, error) {
		n.Spawn("asks", nil, nil)
		_, err := client.Pause(ctx, n.RunID(), "enough")
		return nil, err
	}, nil)
	got := pgexectest.Run(t, pool, kinds, "asks", nil)
	if got.Status != pgexec.RunPaused || !strings.Contains(got.Reason, "enough") {
		t.Errorf("%s: %s", got.Status, got.Reason)
	}
}

func TestServe_RunsUntilTheTestEnds(t *testing.T) {
	t.Parallel()
	pool := pgexectest.DB(t)
	client := pgexectest.Serve(t, pool, sum())
	for range 2 {
		id, err := client.Start(t.Context(), "numbers", []int{3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, err := client.Wait(t.Context(), id)
		if err != nil || run.Status != pgexec.RunSucceeded {
			t.Fatalf("%v %v", run, err)
		}
	}
}

func TestNewModel_EndsWithTheTestAlthoughAReplyStalls(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("stalls", func(t *testing.T) {
		m := pgexectest.NewModel(t, `rules: [{reply: {text: so, break: {with: stall}}}]`)
		url = m.URL
		resp, err := http.Post(m.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if got := m.Requests(); len(got) != 1 || got[0].Model != "m" {
			t.Errorf("got %+v", got)
		}
	})
	resp, err := http.Get(url + "/requests")
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		t.Error("the model outlives its test")
	}
}

// The Go code of docs/testing.md is what example_test.go runs.
func TestDocs_TestingGoIsTheExample(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	example := strings.Replace(string(raw), "package pgexectest_test", "package support_test", 1)
	if blocks := doctest.Blocks(t, "../../docs/testing.md", "go"); blocks[0] != example {
		t.Errorf("docs/testing.md has\n%s\nand example_test.go\n%s", blocks[0], example)
	}
}
