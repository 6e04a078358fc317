package pgexec_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// gated returns kinds whose kind "work" says that it has begun and then waits for the gate, or its cancellation.
func gated(opts *pgexec.KindOpts) (kinds *pgexec.Kinds, began chan string, gate chan struct{}) {
	began, gate = make(chan string, 100), make(chan struct{})
	kinds = pgexec.NewKinds()
	pgexec.AddKind(kinds, "work", func(ctx context.Context, _ *pgexec.Node, in struct{ Name, Tenant string }) (string, error) {
		began <- in.Name
		select {
		case <-gate:
			return in.Name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}, opts)
	return kinds, began, gate
}

func one(n int) *pgexec.KindOpts {
	return &pgexec.KindOpts{FleetLimit: &pgexec.FleetLimit{MaxInFlight: n}}
}

func lingers(d time.Duration) func(*pgexec.Config) {
	return func(c *pgexec.Config) { c.Linger = d }
}

func job(name string) map[string]string { return map[string]string{"name": name} }

const slotsInUse = `select count(*) = $1 from pgexec.kind_slots`

func TestFleetLimit_HoldsOnAllReplicasTogether(t *testing.T) {
	b := setup(t)
	var g gauge
	kinds := fan(10, func(context.Context, *pgexec.Node, none) (int, error) {
		g.enter()
		defer g.exit()
		time.Sleep(2 * time.Millisecond) // what is being limited: time in flight
		return 0, nil
	}, one(3))
	for range 3 {
		b.replica(kinds, lingers(50*time.Millisecond))
	}
	var ids []pgexec.RunID
	for range 12 {
		ids = append(ids, b.start("fan", nil))
	}
	for _, id := range ids {
		b.succeed(id)
		b.checkLog(id)
	}
	if most := g.most.Load(); most > 3 {
		t.Errorf("%d nodes in flight at once, want at most 3", most)
	}
	b.eventually(slotsInUse, 0)
	if n := query[int](b, `select count(*) from pgexec.limit_overview where max_in_flight = 3 and declared_by is not null`); n == 0 {
		t.Error("limit_overview does not show what the program declares")
	}
}

// Runs that wait are parked and no load, and each goes on when there is room.
func TestFleetLimit_ParkedRunsGoOn(t *testing.T) {
	b := setup(t)
	kinds, began, gate := gated(one(1))
	b.replica(kinds, lingers(20*time.Millisecond))
	b.replica(kinds, lingers(20*time.Millisecond))
	b.start("work", job("holder"))
	receive(t, "start of the holder", began)
	const parked = `select status = 'parked' and reason like '%waits for a slot of kind work%' from pgexec.runs where run_id = $1`
	names := []string{"first", "second", "third", "fourth"}
	var ids []pgexec.RunID
	for _, name := range names {
		ids = append(ids, b.start("work", job(name)))
		b.eventually(parked, ids[len(ids)-1])
	}
	if got := query[int](b, `select parked_runs from pgexec.limit_overview where kind = 'work'`); got != 4 {
		t.Errorf("limit_overview: %d parked runs", got)
	}
	epochs := func() int { return query[int](b, `select sum(epoch)::integer from pgexec.runs`) }
	before := epochs()
	time.Sleep(2 * time.Second) // long enough for two sweeps: nothing wakes them
	if after := epochs(); after != before {
		t.Errorf("%d claims of runs that could only wait", after-before)
	}
	for range names {
		gate <- struct{}{}
		receive(t, "start of the next one", began)
	}
	gate <- struct{}{}
	for _, id := range ids {
		b.succeed(id)
	}
	b.eventually(`select count(*) = 0 from pgexec.kind_queue`)
	b.eventually(slotsInUse, 0)
}

// Whatever ends the wait or the node, its place is given back.
func TestFleetLimit_PlacesComeBack(t *testing.T) {
	b := setup(t)
	kinds, began, gate := gated(one(1))
	r := b.replica(kinds, lingers(time.Minute))
	cancel := func(id pgexec.RunID) {
		t.Helper()
		if _, err := b.client.Cancel(b.ctx, id, ""); err != nil {
			t.Fatal(err)
		}
		if run := b.wait(id); run.Status != pgexec.RunCancelled {
			t.Fatalf("run is %s", run.Status)
		}
	}
	waitingNodes := `select coalesce(sum(waiting), 0) = $1 from pgexec.kind_demand`
	inFlight := b.start("work", job("in flight"))
	receive(t, "start", began)
	stand := func(name string) pgexec.RunID {
		b.eventually(waitingNodes, 0)
		id := b.start("work", job(name))
		b.eventually(waitingNodes, 1)
		return id
	}
	waiting := stand("waiting")
	cancel(waiting)
	paused := stand("paused")
	if _, err := b.client.Pause(b.ctx, paused, ""); err != nil {
		t.Fatal(err)
	}
	b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, paused)
	cancel(inFlight)
	next := b.start("work", job("next"))
	if got := receive(t, "start of the next", began); got != "next" {
		t.Errorf("%s starts", got)
	}
	left := stand("left")
	r.stop() // a drain parks what waits, and lets what is in flight end
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, left)
	close(gate)
	b.succeed(next)
	r.drain()
	if n := query[int](b, `select count(*) from pgexec.kind_slots`); n != 0 {
		t.Errorf("%d slots are left by a replica that drained", n)
	}
	b.replica(kinds)
	b.succeed(left)
	if _, err := b.client.Resume(b.ctx, paused, nil); err != nil {
		t.Fatal(err)
	}
	b.succeed(paused)
}

// The mark of an at-most-once node is left when it has its slot: one that waits is not in doubt.
func TestFleetLimit_NodeThatWaitsHasLeftNoMark(t *testing.T) {
	b := setup(t)
	opts := one(1)
	opts.AtMostOnce = pgexec.UnknownFails
	kinds, began, gate := gated(opts)
	r := b.replica(kinds)
	b.start("work", job("holder"))
	receive(t, "start", began)
	id := b.start("work", job("waits"))
	b.eventually(`select count(*) > 0 from pgexec.kind_demand`)
	r.stop()
	close(gate)
	r.drain()
	b.replica(kinds)
	if run := b.succeed(id); run.Error != "" {
		t.Errorf("run: %s", run.Error)
	}
	if n := query[int](b, `select count(*) from pgexec.run_log where run_id = $1 and pgexec.decode(record) ? 'started'`, id); n != 1 {
		t.Errorf("%d marks, want 1", n)
	}
}

// A node that waits for its fleet-wide limit keeps nothing else of its run from starting.
func TestFleetLimit_HoldsNothingElse(t *testing.T) {
	b := setup(t)
	kinds, began, gate := gated(one(1))
	free := make(chan string, 10)
	pgexec.AddKind(kinds, "free", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		free <- string(n.ID())
		return 0, nil
	}, nil)
	pgexec.AddKind(kinds, "both", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		for _, name := range []string{"a", "b"} {
			n.Spawn("work", job(name), nil)
		}
		for range 3 {
			n.Spawn("free", nil, nil)
		}
		return 0, nil
	}, nil)
	b.replica(kinds, func(c *pgexec.Config) { c.MaxParallelPerRun = 1; c.Linger = 20 * time.Millisecond })
	b.start("work", job("holder"))
	receive(t, "start of the holder", began)
	id := b.start("both", nil)
	for range 3 {
		receive(t, "start of a node without a limit", free)
	}
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	close(gate)
	b.succeed(id)
}

// The key of a limit is read from a node's input with its references resolved.
func TestFleetLimit_EachKeyHasItsOwn(t *testing.T) {
	b := setup(t)
	opts := one(1)
	opts.FleetLimit.KeyPointer = "/tenant"
	kinds, began, gate := gated(opts)
	pgexec.AddKind(kinds, "name", func(_ context.Context, n *pgexec.Node, tenant string) (string, error) {
		n.Spawn("work", map[string]any{"name": "of " + tenant, "tenant": map[string]string{"$ref": string(n.ID()) + "#"}}, &pgexec.SpawnOpts{InputRefs: true})
		return tenant, nil
	}, nil)
	b.replica(kinds, lingers(20*time.Millisecond))
	b.start("name", "acme")
	receive(t, "first of acme", began)
	second := b.start("name", "acme")
	b.eventually(`select status = 'parked' and reason like '%waits for a slot of kind work, key "acme"%' from pgexec.runs where run_id = $1`, second)
	b.start("name", "bolt")
	if got := receive(t, "first of bolt", began); got != "of bolt" {
		t.Errorf("%s starts", got)
	}
	close(gate)
	b.succeed(second)
}

func TestFleetLimit_Rate(t *testing.T) {
	b := setup(t)
	kinds, began, gate := gated(&pgexec.KindOpts{FleetLimit: &pgexec.FleetLimit{Rate: 2, Per: 100 * time.Hour, Burst: 2}})
	close(gate)
	b.replica(kinds, lingers(20*time.Millisecond))
	var ids []pgexec.RunID
	for range 3 {
		ids = append(ids, b.start("work", nil))
	}
	receive(t, "start", began)
	receive(t, "start", began)
	b.eventually(`select count(*) = 1 from pgexec.runs where status = 'parked' and reason like '%waits for the rate of kind work%'`)
	b.eventually(`select next_start > now() + interval '49 hours' from pgexec.limit_overview where kind = 'work'`)
	// The table wins, and what was started at the lower rate holds nothing up.
	if _, err := b.pool.Exec(b.ctx, `insert into pgexec.kind_limits (kind, rate) values ('work', 1000)`); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		b.succeed(id)
	}
}

func TestAddKind_RefusesFleetLimitsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]pgexec.FleetLimit{
		"neither":      {},
		"out of range": {MaxInFlight: -1},
		"Per is":       {Rate: 1, Per: time.Microsecond},
		"JSON pointer": {Rate: 1, KeyPointer: "tenant"},
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, want) {
					t.Errorf("%+v: %q, want it to say %q", l, p, want)
				}
			}()
			gated(&pgexec.KindOpts{FleetLimit: &l})
		}()
	}
}
