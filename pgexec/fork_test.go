package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// C42: a fork at any prefix executes exactly what is not in it, children
// included, and ends with the same result.
func TestFork_AnyPrefixRunsOnlyTheRest(t *testing.T) {
	b := setup(t)
	var mu sync.Mutex
	ran := map[pgexec.RunID][]string{}
	note := func(n *pgexec.Node) {
		mu.Lock()
		defer mu.Unlock()
		ran[n.RunID()] = append(ran[n.RunID()], string(n.ID()))
	}
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		note(n)
		var legs []pgexec.NodeRef
		for i := range 3 {
			legs = append(legs, n.Spawn("leg", i, &pgexec.SpawnOpts{ID: pgexec.NodeID(fmt.Sprintf("leg-%d", i))}))
		}
		child := n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "leg", Input: 10}, &pgexec.SpawnOpts{ID: "child", After: legs})
		wait := n.Spawn(pgexec.KindSleep, pgexec.SleepInput{For: "1ms"}, &pgexec.SpawnOpts{ID: "nap", After: []pgexec.NodeRef{child}})
		n.Spawn("sum", nil, &pgexec.SpawnOpts{ID: "sum", After: append(legs, child, wait)})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "leg", func(_ context.Context, n *pgexec.Node, i int) (int, error) {
		note(n)
		return i, nil
	}, nil)
	pgexec.AddKind(kinds, "sum", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		note(n)
		total := 0
		for _, p := range n.Parents() {
			var v int
			if err := p.Output(&v); err != nil {
				return 0, err
			}
			total += v
		}
		return total, nil
	}, nil)
	b.replica(kinds, briefly)
	id := b.start("root", nil)
	if got := string(b.succeed(id).Result); got != "13" {
		t.Fatalf("result %s", got)
	}
	head := query[int](b, `select max(seq) from pgexec.run_log where run_id = $1`, id)
	for at := 1; at <= head; at++ {
		fork, err := b.client.Fork(b.ctx, id, &pgexec.ForkOpts{AtSeq: pgexec.Seq(at)})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(b.succeed(fork).Result); got != "13" {
			t.Errorf("fork at %d: result %s", at, got)
		}
		b.checkLog(fork)
		const rest = `select coalesce(array_agg(node_id order by node_id), '{}') from pgexec.nodes
			where run_id = $1 and seq > $2 and kind in ('root', 'leg', 'sum')`
		want := query[[]string](b, rest, id, at)
		mu.Lock()
		got := slices.Sorted(slices.Values(ran[fork]))
		mu.Unlock()
		if !slices.Equal(got, want) {
			t.Errorf("fork at %d ran %v, want %v", at, got, want)
		}
	}
	if n := query[int](b, `select count(*) from pgexec.runs where forked_from = $1`, id); n != head {
		t.Errorf("%d forks are listed, want %d", n, head)
	}
}

func TestFork_WithAnOutputReplaced(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "ask", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		n.Spawn("answer", nil, nil)
		return strings.Repeat("no ", 100), nil
	}, nil)
	pgexec.AddKind(kinds, "answer", func(_ context.Context, n *pgexec.Node, _ none) (string, error) {
		var v string
		err := n.Parents()[0].Output(&v)
		return v, err
	}, nil)
	b.replica(kinds)
	id := b.start("ask", nil)
	b.succeed(id)
	for _, output := range []string{"yes", strings.Repeat("a longer answer ", 5000), ""} {
		fork, err := b.client.Fork(b.ctx, id, &pgexec.ForkOpts{AtSeq: 2, ReplaceNode: "root", ReplaceOutput: output})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := b.succeed(fork).Output(&got); err != nil || got != output {
			t.Errorf("result %.40q, %v, want %.40q", got, err, output)
		}
		const show = `select coalesce(convert_from(pgexec.blob_bytes(output #>> '{$blob,url}'), 'UTF8')::jsonb, output) #>> '{}' from pgexec.nodes where run_id = $1 and node_id = 'root'`
		if shown := query[string](b, show, fork); shown != output {
			t.Errorf("psql shows %.40q, want %.40q", shown, output)
		}
	}
	for _, opts := range []*pgexec.ForkOpts{
		{AtSeq: 99}, {AtSeq: -1}, {AtSeq: 1, ReplaceNode: "root", ReplaceOutput: 1}, {ReplaceNode: "nobody", ReplaceOutput: 1},
	} {
		if _, err := b.client.Fork(b.ctx, id, opts); !errors.Is(err, pgexec.ErrBadFork) {
			t.Errorf("fork %+v: %v", opts, err)
		}
	}
	if _, err := b.client.Fork(b.ctx, pgexec.RunID{9}, nil); !errors.Is(err, pgexec.ErrRunNotFound) {
		t.Errorf("fork of an unknown run: %v", err)
	}
}
