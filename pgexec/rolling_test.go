package pgexec_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// builds makes kinds of different builds of one program, and remembers which
// build ran which node.
type builds struct {
	mu  sync.Mutex
	ran map[string][]string // idempotency key -> builds
}

func newBuilds() *builds { return &builds{ran: make(map[string][]string)} }

func (bs *builds) note(build string, n *pgexec.Node) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.ran[n.IdempotencyKey()] = append(bs.ran[n.IdempotencyKey()], build)
}

// kinds returns a set in which each letter of names is a kind. Its input is a
// route such as "abc": the node is of the first letter's kind and spawns one of
// the next, with the rest. The output of the last node is how it was reached.
func (bs *builds) kinds(build, names string, during func(kind string)) *pgexec.Kinds {
	set := pgexec.NewKinds()
	for _, letter := range names {
		name := string(letter)
		pgexec.AddKind(set, name, func(_ context.Context, n *pgexec.Node, route string) (string, error) {
			bs.note(build, n)
			during(name)
			if len(route) > 1 {
				n.Spawn(route[1:2], route[1:], nil)
			}
			path := name
			if len(n.Parents()) > 0 {
				var before string
				if err := n.Parents()[0].Output(&before); err != nil {
					return "", err
				}
				path = before + name
			}
			return path, nil
		}, nil)
	}
	return set
}

func atOnce(string) {}

// onceEach verifies that every node that ran did so on one build, once.
func (bs *builds) onceEach(t *testing.T, want int) {
	t.Helper()
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for key, ran := range bs.ran {
		if len(ran) != 1 {
			t.Errorf("node %s ran on %v, want once", key, ran)
		}
	}
	if len(bs.ran) != want {
		t.Errorf("%d nodes ran, want %d", len(bs.ran), want)
	}
}

// Two builds with different kinds share the runs of a rolling deploy: each keeps
// the nodes it can run, a run whose next node only the other one can run moves
// there, and while nobody can run it that is visible. No run fails for want of a kind.
func TestRolling_TwoBuildsWithDifferentKinds(t *testing.T) {
	b := setup(t)
	bs := newBuilds()
	routes := []string{"abcab", "bcabc", "cab"}
	const each = 5
	old := b.replica(bs.kinds("old", "ab", atOnce), named("old"))
	var ids []pgexec.RunID
	nodes := 0
	for range each {
		for _, route := range routes {
			ids = append(ids, b.start(route[:1], route))
			nodes += len(route)
		}
	}
	const waiting = `select count(*) = $1 from pgexec.runs join pgexec.run_overview o using (run_id)
		where runs.waiting_kinds = '{c}' and runs.reason = 'waits for kind c' and o.waits_for = 'no replica for kind c'`
	b.eventually(waiting, len(ids))
	for _, id := range ids {
		if run, err := b.client.Get(b.ctx, id); err != nil || run.Status != pgexec.RunQueued || run.Reason != "waits for kind c" {
			t.Fatalf("run %s is %s: %s%s (%v)", id, run.Status, run.Reason, run.Error, err)
		}
	}

	b.replica(bs.kinds("new", "bc", atOnce), named("new"))
	for i, id := range ids {
		want := `"` + routes[i%len(routes)] + `"`
		if got := string(b.succeed(id).Result); got != want {
			t.Errorf("run %s went %s, want %s", id, got, want)
		}
		b.checkLog(id)
	}
	bs.onceEach(t, nodes)
	// A claim for each move, no more: nobody claims what it cannot run.
	if most := query[int](b, `select max(epoch) from pgexec.runs`); most > len("abcab") {
		t.Errorf("a run of 5 nodes was claimed %d times", most)
	}

	// After the deploy nobody has kind a any more, until a build that has it comes back.
	old.drain()
	id := b.start("b", "bca")
	b.eventually(`select waiting_kinds is not distinct from '{a}' from pgexec.runs where run_id = $1`, id)
	b.replica(bs.kinds("newer", "abc", atOnce), named("newer"))
	if got := string(b.succeed(id).Result); got != `"bca"` {
		t.Errorf("the run went %s", got)
	}
}

// A drain of the old build hands its runs over to the new one: what was in
// flight is recorded by the old one, all that comes after runs on the new one.
func TestRolling_DrainOfTheOldBuildHandsOver(t *testing.T) {
	b := setup(t)
	bs := newBuilds()
	const runs = 20
	started, gate := make(chan struct{}, runs), make(chan struct{})
	old := b.replica(bs.kinds("old", "ab", func(kind string) {
		if kind == "a" {
			started <- struct{}{}
			<-gate
		}
	}), named("old"))
	var ids []pgexec.RunID
	for range runs {
		ids = append(ids, b.start("a", "abbcb"))
	}
	for range runs {
		receive(t, "start", started)
	}
	b.replica(bs.kinds("new", "bc", atOnce), named("new"))
	old.stop()
	b.eventually(`select draining from pgexec.replicas where host = 'old'`)
	close(gate)
	for _, id := range ids {
		if got := string(b.succeed(id).Result); got != `"abbcb"` {
			t.Errorf("run %s went %s", id, got)
		}
		b.checkLog(id)
	}
	old.drain()
	bs.onceEach(t, runs*len("abbcb"))
	for key, ran := range bs.ran {
		want := "new"
		if key[len(key)-len("/root"):] == "/root" {
			want = "old"
		}
		if ran[0] != want {
			t.Errorf("node %s ran on %s, want %s", key, ran[0], want)
		}
	}
}

// mixed returns kinds of the old build: a root that leaves a node of a kind it
// lacks beside one that waits for a signal and one in a long backoff.
func mixed(attempts chan<- int) *pgexec.Kinds {
	set := pgexec.NewKinds()
	pgexec.AddKind(set, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("novel", nil, &pgexec.SpawnOpts{ID: "novel"})
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, &pgexec.SpawnOpts{ID: "wait"})
		n.Spawn("busy", nil, &pgexec.SpawnOpts{ID: "busy"})
		return 0, nil
	}, nil)
	pgexec.AddKind(set, "busy", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		attempts <- n.Attempt()
		if n.Attempt() == 1 {
			return 0, pgexec.RetryAfter(errors.New("busy"), time.Second)
		}
		return n.Attempt(), nil
	}, nil)
	return set
}

func novel() *pgexec.Kinds {
	set := pgexec.NewKinds()
	pgexec.AddKind(set, "novel", func(context.Context, *pgexec.Node, none) (string, error) { return "new", nil }, nil)
	return set
}

// What else a run waits for, a signal or the end of a backoff, neither keeps it
// from a replica that has the missing kind nor makes it go round in circles.
func TestRolling_MissingKindBesideOtherWaits(t *testing.T) {
	for name, tc := range map[string]struct{ drain bool }{
		"the old build stays":  {false},
		"the old build drains": {true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			attempts := make(chan int, 10)
			old := b.replica(mixed(attempts), named("old"), briefly)
			id := b.start("root", nil)
			receive(t, "attempt", attempts)
			b.eventually(`select waiting_kinds is not distinct from '{novel}' and status = 'queued' from pgexec.runs where run_id = $1`, id)
			if tc.drain {
				old.drain()
			}
			b.replica(novel(), named("new"), briefly)
			b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'novel')`, id)
			if tc.drain {
				b.replica(mixed(attempts), named("old again"), briefly)
			}
			if err := b.client.Signal(b.ctx, id, "go", 7, nil); err != nil {
				t.Fatal(err)
			}
			b.succeed(id)
			if second := receive(t, "attempt", attempts); second != 2 {
				t.Errorf("attempt %d, want 2", second)
			}
			if claims := query[int](b, `select epoch from pgexec.runs where run_id = $1`, id); claims > 8 {
				t.Errorf("%d claims", claims)
			}
			b.checkLog(id)
		})
	}
}

// A drain does not park a run that has a node for somebody else: parked, it
// would wait for its signal only.
func TestRolling_DrainDoesNotParkWhatOthersCanRun(t *testing.T) {
	b := setup(t)
	started, gate := make(chan struct{}), make(chan struct{})
	set := pgexec.NewKinds()
	pgexec.AddKind(set, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("novel", nil, &pgexec.SpawnOpts{ID: "novel"})
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, nil)
		n.Spawn("slow", nil, nil)
		return 0, nil
	}, nil)
	pgexec.AddKind(set, "slow", func(context.Context, *pgexec.Node, none) (int, error) {
		close(started)
		<-gate
		return 0, nil
	}, nil)
	old := b.replica(set, named("old"))
	id := b.start("root", nil)
	receive(t, "start", started)
	old.stop()
	b.eventually(`select draining from pgexec.replicas where host = 'old'`)
	close(gate)
	old.drain()
	b.replica(novel(), named("new"), briefly)
	b.eventually(`select exists (select from pgexec.nodes where run_id = $1 and node_id = 'novel')`, id)
	if err := b.client.Signal(b.ctx, id, "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	b.succeed(id)
}
