package pgexec_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// A run that is handed over or taken over while a worker is busy goes on elsewhere with the same task: none is
// made or taken a second time.
func TestTask_DrainAndTakeoverKeepIt(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	first := b.replica(orchestra(), func(c *pgexec.Config) { c.Linger = time.Hour })
	id := b.start("album", []string{"a", "b"})
	one := b.take("transcribe", "w1", time.Hour)
	two := b.take("transcribe", "w1", time.Hour)
	b.replica(orchestra(), func(c *pgexec.Config) { c.Linger = time.Hour })
	first.drain()
	if !b.complete(one.ID, "w1", "1") {
		t.Error("the task is gone after a drain")
	}
	b.eventually(`select count(*) = 1 from pgexec.nodes where run_id = $1 and kind = 'transcribe'`, id)
	// The owner's session ends, as it does when its process dies.
	b.exec(`select pg_terminate_backend(backend_pid) from pgexec.replicas`)
	if !b.complete(two.ID, "w1", "2") {
		t.Error("the task is gone after a death")
	}
	b.succeed(id)
	b.checkLog(id)
	if got := b.takeAll("transcribe", "w2", time.Minute); len(got) > 0 {
		t.Errorf("took %+v", got)
	}
}

// A kind may be declared while runs wait for it.
func TestTask_KindIsDeclaredLater(t *testing.T) {
	b := setup(t)
	b.replica(orchestra())
	id := b.start("transcribe", "song")
	b.eventually(`select waiting_kinds is not distinct from '{transcribe}' from pgexec.runs where run_id = $1`, id)
	b.declare("transcribe")
	b.complete(b.take("transcribe", "w1", time.Minute).ID, "w1", `"la"`)
	b.succeed(id)
}

// A kind that is not declared any more is done by replicas again, whatever its runs do at that moment: parked, in memory,
// with a worker. What the worker says then does not count. If it is declared again at once, its tasks are made anew.
func TestTask_KindIsDeclaredNoMore(t *testing.T) {
	b := setup(t)
	b.declare("album")
	b.replica(orchestra())
	b.replica(orchestra(), func(c *pgexec.Config) { c.Linger = time.Hour; c.Queues = []string{"hot"} })
	var ids []pgexec.RunID
	for i := range 10 {
		id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, input, queue) values ('album', '[]', $1) returning run_id`, []string{"default", "hot"}[i%2])
		ids = append(ids, id)
	}
	b.eventually(`select count(*) = 10 from pgexec.tasks`)
	b.eventually(`select count(*) = 5 from pgexec.runs where status = 'parked'`)
	b.exec(`delete from pgexec.task_kinds; select pgexec.declare_kind('album')`)
	b.eventually(`select count(*) = 10 from pgexec.tasks where state = 'waiting' and task_id > 10`)
	taken := b.takeMost("album", "w1", time.Hour, 3)
	b.eventually(`select count(*) = 5 from pgexec.runs where status = 'parked'`)
	b.exec(`delete from pgexec.task_kinds`)
	for _, id := range ids {
		b.succeed(id)
		b.checkLog(id)
	}
	if b.complete(taken[0].ID, "w1", "1") {
		t.Error("the completion of what was taken back counts")
	}
}

// A retry of a failed run makes the task anew, with its attempts counted anew; so does a fork from before its end.
func TestTask_RetryAndFork(t *testing.T) {
	b := setup(t)
	b.declare("transcribe", "max_attempts => 1")
	b.replica(orchestra())
	id := b.start("transcribe", "song")
	b.exec(`select pgexec.fail($1, 'w1', 'no ear')`, b.take("transcribe", "w1", time.Minute).ID)
	if run := b.wait(id); run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "no ear") {
		t.Fatalf("run is %s: %s", run.Status, run.Error)
	}
	fork := query[pgexec.RunID](b, `select pgexec.fork($1, 1)`, id)
	forked := b.take("transcribe", "w1", time.Minute)
	if forked.RunID != fork || forked.Attempt != 1 {
		t.Errorf("took %+v of the fork", forked)
	}
	b.complete(forked.ID, "w1", `"forked"`)
	b.succeed(fork)
	b.exec(`select pgexec.retry($1)`, id)
	retried := b.take("transcribe", "w1", time.Minute)
	if retried.RunID != id || retried.Attempt != 1 || retried.Deliveries != 1 {
		t.Errorf("took %+v of the retried run", retried)
	}
	b.complete(retried.ID, "w1", `"retried"`)
	if run := b.succeed(id); string(run.Result) != `"retried"` {
		t.Errorf("result %s", run.Result)
	}
}

// A node that is to be done at most once is not given to a second worker: what became of it is unknown (G6), and it
// fails or is settled by a person.
func TestTask_AtMostOnce(t *testing.T) {
	kinds := orchestra()
	pgexec.AddKind(kinds, "ship", func(_ context.Context, n *pgexec.Node, policy pgexec.UnknownOutcome) (bool, error) {
		n.Spawn("transcribe", nil, &pgexec.SpawnOpts{ID: "once", AtMostOnce: policy})
		return true, nil
	}, nil)
	b := setup(t)
	b.declare("transcribe")
	b.replica(kinds)
	lose := func(policy pgexec.UnknownOutcome) pgexec.RunID {
		t.Helper()
		id := b.start("ship", policy)
		b.take("transcribe", "w1", time.Minute)
		b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second' where run_id = $1`, id)
		if got := b.takeAll("transcribe", "w2", time.Minute); len(got) > 0 {
			t.Errorf("took %+v", got)
		}
		return id
	}
	if run := b.wait(lose(pgexec.UnknownFails)); run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "the lease of worker w1 expired at") {
		t.Errorf("run is %s: %s", run.Status, run.Error)
	}
	asks := lose(pgexec.UnknownAsks)
	b.eventually(`select status = 'parked' and reason = 'the outcome of once is unknown: a signal "outcome" to it settles that' from pgexec.runs where run_id = $1`, asks)
	b.exec(`select pgexec.signal($1, 'outcome', '{"run_again": true}', node_id => 'once')`, asks)
	again := b.take("transcribe", "w2", time.Minute)
	if again.Attempt != 2 || again.RunID != asks {
		t.Errorf("took %+v", again)
	}
	b.exec(`select pgexec.fail($1, 'w2', 'broken')`, again.ID) // never retried
	if run := b.wait(asks); run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "broken") {
		t.Errorf("run is %s: %s", run.Status, run.Error)
	}
	settled := lose(pgexec.UnknownAsks)
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, settled)
	b.exec(`select pgexec.signal($1, 'outcome', '{"output": "sent"}', node_id => 'once')`, settled)
	if run := b.succeed(settled); string(run.Result) != `"sent"` {
		t.Errorf("result %s", run.Result)
	}
	b.checkLog(settled)
}

// G7: a limit holds tasks like any other node, what is in flight is recorded before the pause, and a higher limit lets
// the rest start, also while the run is parked.
func TestTask_LimitsHoldThem(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.replica(orchestra(), func(c *pgexec.Config) { c.Linger = time.Millisecond })
	id, err := b.client.Start(b.ctx, "album", []string{"a", "b", "c", "d"}, &pgexec.StartOpts{Limits: pgexec.Limits{MaxNodes: 3}})
	if err != nil {
		t.Fatal(err)
	}
	status := func(condition string) {
		t.Helper()
		b.eventually(`select `+condition+` from pgexec.runs where run_id = $1`, id)
	}
	tasks := func() int {
		return query[int](b, `select count(*) from pgexec.tasks where state in ('waiting', 'taken')`)
	}
	status(`status = 'parked'`)
	if n := tasks(); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
	b.exec(`select pgexec.resume($1, add_nodes => 1)`, id)
	b.eventually(`select count(*) = 3 from pgexec.tasks`)
	for range 3 {
		b.complete(b.take("transcribe", "w1", time.Minute).ID, "w1", "1")
	}
	status(`coalesce(status = 'paused' and reason like 'limit max_nodes reached: 4 of 4%', false)`)
	if n := tasks(); n != 0 {
		t.Errorf("%d tasks are beyond the limit", n)
	}
	b.exec(`select pgexec.resume($1, add_nodes => 10)`, id)
	b.complete(b.take("transcribe", "w1", time.Minute).ID, "w1", "1")
	b.succeed(id)
	b.checkLog(id)
}

// A thousand tasks of one node are made by a few statements; an input that the database cannot hold fails its own
// node and no other.
func TestTask_ManyAtOnce(t *testing.T) {
	kinds := orchestra()
	const many = 1000
	pgexec.AddKind(kinds, "choir", func(_ context.Context, n *pgexec.Node, _ any) (bool, error) {
		deep := json.RawMessage(strings.Repeat("[", 9990) + strings.Repeat("]", 9990))
		join := &pgexec.SpawnOpts{ID: "join", Join: pgexec.AllDone, After: []pgexec.NodeRef{n.Spawn("transcribe", deep, &pgexec.SpawnOpts{ID: "deep"})}}
		for range many {
			join.After = append(join.After, n.Spawn("transcribe", "la", nil))
		}
		n.Spawn("join", nil, join)
		return true, nil
	}, nil)
	b := setup(t)
	b.declare("transcribe")
	b.replica(kinds)
	id := b.start("choir", nil)
	for done := 0; done < many; {
		b.eventually(`select exists (select from pgexec.tasks where state = 'waiting')`)
		done += query[int](b, `with taken as materialized (select task_id, node_id from pgexec.take('transcribe', 'w1', '1 hour', 100)),
			ended as materialized (select case node_id when 'deep' then null else pgexec.complete(task_id, 'w1', to_json(node_id)) end as ok from taken)
			select count(*) from ended where ok`)
	}
	b.exec(`select pgexec.complete(task_id, 'w1', '"deep is no problem here"') from pgexec.tasks where node_id = 'deep' and state = 'taken'`)
	run := b.succeed(id)
	var out []string
	if err := json.Unmarshal(run.Result, &out); err != nil {
		t.Fatal(err)
	}
	if len(out) != many+1 || !strings.HasPrefix(out[0], "deep: ") {
		t.Errorf("%d outputs, %.200s", len(out), out)
	}
	t.Logf("%.200s", out[0])
	b.checkLog(id)
}

// Inputs and outputs that are too large for the log pass through tasks as they are.
func TestTask_LargePayloads(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.replica(orchestra())
	song := strings.Repeat("la ", 100_000)
	id := b.start("transcribe", song)
	task := b.take("transcribe", "w1", time.Minute)
	if task.Input != `"`+song+`"` {
		t.Errorf("the input has %d bytes, want %d", len(task.Input), len(song)+2)
	}
	output := `"` + strings.Repeat("do re mi ", 300_000) + `"`
	b.complete(task.ID, "w1", output)
	if run := b.succeed(id); string(run.Result) != output {
		t.Errorf("the result has %d bytes, want %d", len(run.Result), len(output))
	}
	b.checkLog(id)
}

// A worker that gives no error fails its task all the same, and the run says so.
func TestTask_FailedWithoutAWord(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.replica(orchestra())
	for _, word := range []any{nil, ""} {
		id := b.start("transcribe", nil)
		task := b.take("transcribe", "w1", time.Minute)
		b.exec(`select pgexec.fail($1, 'w1', $2, permanent => true)`, task.ID, word)
		if run := b.wait(id); run.Status != pgexec.RunFailed || run.Error != "node root: the worker did not say why" {
			t.Errorf("fail with %#v: run is %s: %s", word, run.Status, run.Error)
		}
	}
}

// A task that has ended well, or is to be tried again much later, does not lie there for as long as its run is parked.
func TestTask_EndedOnesLeaveBeforeTheRunParks(t *testing.T) {
	kinds := orchestra()
	pgexec.AddKind(kinds, "then wait", func(_ context.Context, n *pgexec.Node, _ none) (bool, error) {
		task := n.Spawn("transcribe", nil, nil)
		n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "never"}, &pgexec.SpawnOpts{ID: "wait", After: []pgexec.NodeRef{task}})
		return true, nil
	}, nil)
	b := setup(t)
	b.declare("transcribe")
	b.replica(kinds, briefly)
	const parked = `select status = 'parked' and reason like $2 and not exists (select from pgexec.tasks t where t.run_id = r.run_id)
		from pgexec.runs r where run_id = $1`
	id := b.start("then wait", nil)
	task := b.take("transcribe", "w1", time.Minute)
	b.exec(`select pgexec.complete($1, 'w1')`, task.ID)
	b.eventually(parked, id, `wait waits for signal%`)
	id = b.start("then wait", nil)
	task = b.take("transcribe", "w1", time.Minute)
	b.exec(`select pgexec.fail($1, 'w1', 'busy', retry_after => '1 hour')`, task.ID)
	b.eventually(parked, id, `% is tried again at %`)
}
