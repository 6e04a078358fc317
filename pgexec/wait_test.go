package pgexec_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// briefly parks runs at once, so that tests need not wait for a linger.
func briefly(c *pgexec.Config) { c.Linger = time.Millisecond }

// spawning returns kinds whose root spawns one node of the kind and input it is given, called "it".
func spawning() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, in struct {
		Kind  string
		Input json.RawMessage
	},
	) (int, error) {
		n.Spawn(in.Kind, in.Input, &pgexec.SpawnOpts{ID: "it"})
		return 0, nil
	}, nil)
	return kinds
}

func (b *bundle) startNode(kind, input string) pgexec.RunID {
	b.t.Helper()
	return b.start("root", json.RawMessage(fmt.Sprintf(`{"Kind": %q, "Input": %s}`, kind, input)))
}

const isParked = `select status = 'parked' and owner is null and wake_job is null from pgexec.runs where run_id = $1`

// A signal is consumed by the wait, once, whether it was sent before the wait
// began (C13), while the run was in memory, or after it was parked.
func TestSignal_ReachesTheWaitWheneverItIsSent(t *testing.T) {
	send := func(b *bundle, id pgexec.RunID) {
		b.t.Helper()
		if err := b.client.Signal(b.ctx, id, "go", map[string]int{"n": 7}, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		linger time.Duration
		drive  func(b *bundle, start func()) pgexec.RunID
	}{
		"before the run starts": {time.Hour, func(b *bundle, start func()) pgexec.RunID {
			id := b.startNode("signal", `{"name": "go"}`)
			send(b, id)
			start()
			return id
		}},
		"while it is hot": {time.Hour, func(b *bundle, start func()) pgexec.RunID {
			start()
			id := b.startNode("signal", `{"name": "go"}`)
			b.eventually(`select exists (select from pgexec.nodes where run_id = $1)`, id)
			send(b, id)
			return id
		}},
		"after it is parked": {time.Millisecond, func(b *bundle, start func()) pgexec.RunID {
			start()
			id := b.startNode("signal", `{"name": "go"}`)
			b.eventually(isParked, id)
			send(b, id)
			return id
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			id := tc.drive(b, func() { b.replica(spawning(), func(c *pgexec.Config) { c.Linger = tc.linger }) })
			run := b.succeed(id)
			if string(run.Result) != `{"n": 7}` {
				t.Errorf("result %s", run.Result)
			}
			b.checkLog(id)
			err := b.client.Signal(b.ctx, id, "go", nil, nil)
			if !errors.Is(err, pgexec.ErrRunEnded) || !strings.Contains(err.Error(), "succeeded") {
				t.Errorf("signal to a finished run: %v", err)
			}
		})
	}
}

// A signal that was there before a wait's time came ends it, although no
// notification told the replica of it.
func TestSignal_ThatCameInTimeCountsAlsoUnheard(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(ctx context.Context, n *pgexec.Node, _ any) (int, error) {
		err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local pgexec.notify_on_insert = off`); err != nil {
				return err
			}
			return b.client.SignalTx(ctx, tx, n.RunID(), "go", "unheard", nil)
		})
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go", Timeout: "0s", Default: json.RawMessage(`"nothing"`)}, nil)
		return 0, err
	}, nil)
	b.replica(kinds)
	var ids []pgexec.RunID
	for range 20 {
		ids = append(ids, b.start("root", nil))
	}
	for _, id := range ids {
		if run := b.succeed(id); string(run.Result) != `"unheard"` {
			t.Errorf("the wait ended with %s", run.Result)
		}
	}
}

// A name is read with every look at an inbox, so that it has a bound: on both sides, and with words.
func TestSignal_NamesHaveABound(t *testing.T) {
	b := setup(t)
	b.replica(spawning())
	long := strings.Repeat("x", 1024)
	id := b.startNode("signal", fmt.Sprintf(`{"name": %q}`, long))
	b.eventually(isParked, id)
	if n := query[int](b, `select length(reason) from pgexec.runs where run_id = $1`, id); n > 300 {
		t.Errorf("the reason has %d characters", n)
	}
	for _, opts := range []*pgexec.SignalOpts{nil, {NodeID: pgexec.NodeID(long + "x")}} {
		name := long + "x"
		if opts != nil {
			name = "x"
		}
		if err := b.client.Signal(b.ctx, id, name, 1, opts); err == nil || !strings.Contains(err.Error(), "of a signal has 1025 bytes, the limit is 1024") {
			t.Errorf("error %v", err)
		}
	}
	if err := b.client.Signal(b.ctx, id, long, 1, nil); err != nil {
		t.Fatal(err)
	}
	b.succeed(id)
	run := b.wait(b.startNode("signal", fmt.Sprintf(`{"name": %q}`, long+"x")))
	if want := `"name" has 1025 bytes; no signal's has more than 1024`; !strings.Contains(run.Error, want) {
		t.Errorf("error %q, want %q", run.Error, want)
	}
}

func TestSignal_UnknownRunAndDedupeKey(t *testing.T) {
	b := setup(t)
	if err := b.client.Signal(b.ctx, pgexec.RunID{1}, "go", nil, nil); !errors.Is(err, pgexec.ErrRunNotFound) {
		t.Errorf("signal to an unknown run: %v", err)
	}
	id := b.startNode("signal", `{"name": "go"}`)
	for range 3 {
		if err := b.client.Signal(b.ctx, id, "go", 1, &pgexec.SignalOpts{DedupeKey: "once"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := query[int](b, `select count(*) from pgexec.signals where run_id = $1`, id); n != 1 {
		t.Errorf("%d signals, want 1", n)
	}
}

// C38: parallel approvals are addressed by their node ids and never mix.
func TestSignal_AddressedByNodeIDNeverMixes(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "ask", func(_ context.Context, n *pgexec.Node, count int) (int, error) {
		var waits []pgexec.NodeRef
		for i := range count {
			waits = append(waits, n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "approval"},
				&pgexec.SpawnOpts{ID: pgexec.NodeID(fmt.Sprintf("approve-%d", i))}))
		}
		n.Spawn("collect", nil, &pgexec.SpawnOpts{After: waits})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "collect", func(_ context.Context, n *pgexec.Node, _ none) ([]int, error) {
		var got []int
		for _, p := range n.Parents() {
			var v int
			if err := p.Output(&v); err != nil {
				return nil, err
			}
			got = append(got, v)
		}
		return got, nil
	}, nil)
	b.replica(kinds, briefly)
	b.replica(kinds, briefly)
	id := b.start("ask", 10)
	for i := 9; i >= 0; i-- {
		opts := &pgexec.SignalOpts{NodeID: pgexec.NodeID(fmt.Sprintf("approve-%d", i))}
		if err := b.client.Signal(b.ctx, id, "approval", i, opts); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(b.succeed(id).Result); got != `[0,1,2,3,4,5,6,7,8,9]` {
		t.Errorf("result %s", got)
	}
}

func TestWait_TimeAloneEndsIt(t *testing.T) {
	past := time.Now().Add(-time.Hour).Format(time.RFC3339)
	for name, tc := range map[string]struct {
		kind, input, result, fails string
	}{
		"sleep for":             {kind: "sleep", input: `{"for": "30ms"}`, result: "null"},
		"sleep until the past":  {kind: "sleep", input: fmt.Sprintf(`{"until": %q}`, past), result: "null"},
		"sleep for less than 0": {kind: "sleep", input: `{"for": "-5s"}`, result: "null"},
		"signal with default":   {kind: "signal", input: `{"name": "go", "timeout": "30ms", "default": {"ok":false}}`, result: `{"ok": false}`},
		"signal without":        {kind: "signal", input: `{"name": "go", "timeout": "30ms"}`, fails: `no signal "go" within 30ms`},
		"sleep without input":   {kind: "sleep", input: `{}`, fails: `"for"`},
		"sleep for nonsense":    {kind: "sleep", input: `{"for": "tomorrow"}`, fails: `"tomorrow"`},
		"sleep unknown field":   {kind: "sleep", input: `{"fore": "1s"}`, fails: "fore"},
		"sleep with a list":     {kind: "sleep", input: `[1]`, fails: "it is a JSON array; want an object"},
		"signal with a number":  {kind: "signal", input: `{"name": 7}`, fails: `"name" is a JSON number; want a string`},
		"signal without name":   {kind: "signal", input: `{}`, fails: `"name"`},
		"run without kind":      {kind: "run", input: `{}`, fails: `"kind"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.replica(spawning(), briefly)
			run := b.wait(b.startNode(tc.kind, tc.input))
			switch {
			case tc.fails != "" && (run.Status != pgexec.RunFailed || !strings.Contains(run.Error, tc.fails)):
				t.Errorf("run %s: %s, want an error that says %s", run.Status, run.Error, tc.fails)
			case tc.fails == "" && (run.Status != pgexec.RunSucceeded || string(run.Result) != tc.result):
				t.Errorf("run %s: %s%s", run.Status, run.Result, run.Error)
			}
		})
	}
}

// A parked run uses no memory and nobody owns it; its time comes on any replica, years off or soon.
func TestPark_SleepingRunsAreNobodysAndWakeOnTime(t *testing.T) {
	b := setup(t)
	first := b.replica(spawning(), briefly, named("first"))
	soon := b.startNode("sleep", `{"for": "1500ms"}`)
	far := b.startNode("sleep", `{"for": "876000h"}`)
	b.eventually(isParked, soon)
	b.eventually(isParked, far)
	first.cool()
	const reason = `select reason from pgexec.runs where run_id = $1`
	if got := query[string](b, reason, far); !strings.Contains(got, "it sleeps until 21") {
		t.Errorf("reason %q", got)
	}
	first.drain()
	b.replica(spawning(), briefly, named("second"))
	b.succeed(soon)
	late := query[float64](b, `select extract(epoch from finished_at - started_at) - 1.5
		from pgexec.nodes where run_id = $1 and node_id = 'it'`, soon)
	if late < 0 {
		t.Errorf("the sleep ended %.3f s early", -late)
	}
	if got := query[string](b, `select status from pgexec.runs where run_id = $1`, far); got != "parked" {
		t.Errorf("the far run is %s", got)
	}
}

// A long backoff parks the run, and attempts survive it.
func TestPark_LongBackoffParks(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "later", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		if n.Attempt() == 1 {
			return 0, pgexec.RetryAfter(errors.New("busy"), 2*time.Second)
		}
		return n.Attempt(), nil
	}, nil)
	r := b.replica(kinds, briefly)
	id := b.start("later", nil)
	b.eventually(isParked, id)
	r.drain()
	b.replica(kinds, briefly)
	if got := string(b.succeed(id).Result); got != "2" {
		t.Errorf("result %s", got)
	}
}

// A node's own retry policy goes before its kind's.
func TestRun_RetryPolicyOfANode(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		n.Spawn("bad", nil, &pgexec.SpawnOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 4, MinBackoff: time.Millisecond}})
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "bad", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		return 0, fmt.Errorf("attempt %d", n.Attempt())
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 1}})
	b.replica(kinds)
	if run := b.wait(b.start("root", nil)); !strings.Contains(run.Error, "attempt 4") {
		t.Errorf("error %q", run.Error)
	}
}

// A run is sent far more than it waits for: it reads a bounded part at a time, and each wait ends with what was sent for it,
// also when nobody has marked what is consumed already.
func TestSignal_FoundAmongManyThatNobodyWaitsFor(t *testing.T) {
	const noise, gos = 2500, 1200 // both more than one look returns
	flood := func(b *bundle, id pgexec.RunID) {
		b.t.Helper()
		b.exec(`insert into pgexec.signals (run_id, name, payload) select $1, 'noise', to_jsonb(repeat('x', 60000)) from generate_series(1, $2)`, id, noise)
		b.exec(`insert into pgexec.signals (run_id, name, payload) select $1, 'go', to_jsonb(i) from generate_series(1, $2) i`, id, gos)
	}
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ any) (int, error) {
		var all []pgexec.NodeRef
		for i := range gos {
			all = append(all, n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, &pgexec.SpawnOpts{ID: pgexec.NodeID(fmt.Sprint("w", i))}))
		}
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, &pgexec.SpawnOpts{ID: "last", After: all})
		return 0, nil
	}, nil)
	for name, before := range map[string]bool{"sent before it starts": true, "sent when it is parked": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			id := b.start("root", nil)
			if before {
				flood(b, id)
			}
			b.replica(kinds, briefly)
			if !before {
				b.eventually(isParked, id)
				flood(b, id)
			}
			b.eventually(`select status = 'parked' and nodes_done = $2 from pgexec.runs where run_id = $1`, id, gos+1)
			b.exec(`update pgexec.signals set consumed_at = null where run_id = $1`, id)
			b.exec(`select pgexec.signal($1, 'go', '0')`, id)
			if run := b.succeed(id); string(run.Result) != "0" {
				t.Errorf("the last wait ended with %s", run.Result)
			}
			b.checkLog(id)
			if got := pgtest.Value[int](t, b.pool, `select count(distinct output) from pgexec.nodes where run_id = $1 and kind = 'signal'`, id); got != gos+1 {
				t.Errorf("%d signals ended a wait each, want %d", got, gos+1)
			}
		})
	}
}
