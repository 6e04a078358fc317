package pgexec_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
)

// task is what a worker takes.
type task struct {
	ID         int64
	RunID      pgexec.RunID
	NodeID     string
	Attempt    int
	Input      string
	Key        string
	LeaseUntil time.Time
	Deliveries int
}

const takeTasks = `select task_id, run_id, node_id, attempt, input::text, idempotency_key, lease_until, deliveries from pgexec.take($1, $2, $3, $4)`

// declare has a kind done by programs outside.
func (b *bundle) declare(kind string, more ...string) {
	b.t.Helper()
	b.exec(`select pgexec.declare_kind(` + strings.Join(append([]string{`'` + kind + `'`}, more...), ", ") + `)`)
}

func (b *bundle) exec(statement string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.ctx, statement, args...); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
}

// takeAll takes what there is.
func (b *bundle) takeAll(kind, worker string, lease time.Duration) []task {
	b.t.Helper()
	return b.takeMost(kind, worker, lease, 100)
}

func (b *bundle) takeMost(kind, worker string, lease time.Duration, most int) []task {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, takeTasks, kind, worker, lease, most)
	if err != nil {
		b.t.Fatal(err)
	}
	tasks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[task])
	if err != nil {
		b.t.Fatal(err)
	}
	return tasks
}

// take waits for a task.
func (b *bundle) take(kind, worker string, lease time.Duration) task {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if tasks := b.takeMost(kind, worker, lease, 1); len(tasks) > 0 {
			return tasks[0]
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("no task of kind %s", kind)
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatal(b.ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (b *bundle) complete(id int64, worker, output string) bool {
	b.t.Helper()
	return query[bool](b, `select pgexec.complete($1, $2, $3)`, id, worker, output)
}

// orchestra is a replica's kinds beside those of programs outside.
func orchestra() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "album", func(_ context.Context, n *pgexec.Node, songs []string) (bool, error) {
		join := &pgexec.SpawnOpts{ID: "join", Join: pgexec.AllDone}
		for _, song := range songs {
			join.After = append(join.After, n.Spawn("transcribe", song, &pgexec.SpawnOpts{ID: pgexec.NodeID(song)}))
		}
		n.Spawn("join", nil, join)
		return n.HasKind("transcribe") && !n.HasKind("dance"), nil
	}, nil)
	pgexec.AddKind(kinds, "join", func(_ context.Context, n *pgexec.Node, _ json.RawMessage) ([]string, error) {
		var out []string
		for _, p := range n.Parents() {
			text := string(p.ID()) + ": "
			if err := p.Err(); err != nil {
				out = append(out, text+err.Error())
				continue
			}
			raw, err := p.RawOutput()
			if err != nil {
				return nil, err
			}
			out = append(out, text+string(raw))
		}
		return out, nil
	}, nil)
	return kinds
}

// A run whose first node is of a kind that programs outside do: it waits without being in memory, its input and
// output pass byte for byte (C29), and what came of it is recorded once.
func TestTask_RunOfADeclaredKind(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.replica(orchestra())
	id := b.start("transcribe", json.RawMessage(`{"file": "a.ogg", "n": 1.50}`))
	b.eventually(`select status = 'parked' and reason = 'root waits for a worker of kind "transcribe"' from pgexec.runs where run_id = $1`, id)
	got := b.take("transcribe", "w1", time.Minute)
	if got.RunID != id || got.NodeID != "root" || got.Attempt != 1 || got.Deliveries != 1 || got.Key != id.String()+"/root" || got.Input != `{"n": 1.50, "file": "a.ogg"}` {
		t.Errorf("took %+v", got)
	}
	output := `{"text": "\u0000 \ud800", "b":1e999 }`
	if !b.complete(got.ID, "w1", output) {
		t.Error("the completion does not count")
	}
	run := b.succeed(id)
	if string(run.Result) != output {
		t.Errorf("result %s", run.Result)
	}
	b.checkLog(id)
	if n := query[int](b, `select count(*) from pgexec.tasks`); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	if b.complete(got.ID, "w1", output) {
		t.Error("a completion of a run that has ended counts")
	}
}

// Nodes of a declared kind among others: their failures are retried by the kind's policy, and seen by who joins them.
func TestTask_NodesAmongOthers(t *testing.T) {
	b := setup(t)
	b.declare("transcribe", "max_attempts => 2", "min_backoff => '1 ms'", "max_backoff => '2 ms'")
	b.replica(orchestra())
	id := b.start("album", []string{"good", "bad", "ugly"})
	deadline := time.Now().Add(patience)
	for failures := 0; failures < 3; {
		if time.Now().After(deadline) {
			t.Fatal("tasks do not come")
		}
		for _, task := range b.takeAll("transcribe", "w1", time.Minute) {
			if task.Input != `"`+task.NodeID+`"` {
				t.Errorf("took %+v", task)
			}
			switch task.NodeID {
			case "good":
				b.complete(task.ID, "w1", `"la la"`)
			case "bad":
				failures++
				b.exec(`select pgexec.fail($1, 'w1', $2)`, task.ID, "noise "+string(rune('0'+task.Attempt)))
			case "ugly":
				failures++
				b.exec(`select pgexec.fail($1, 'w1', 'no song', permanent => true)`, task.ID)
			}
		}
	}
	run := b.succeed(id)
	if got, want := string(run.Result), `["good: \"la la\"","bad: noise 2","ugly: no song"]`; got != want {
		t.Errorf("result %s, want %s", got, want)
	}
	b.checkLog(id)
	if n := query[int](b, `select count(*) from pgexec.run_log where run_id = $1 and pgexec.decode(record) #>> '{attempt_failed,error,message}' = 'noise 1'`, id); n != 1 {
		t.Errorf("%d failed attempts are recorded, want 1", n)
	}
	if out := query[string](b, `select output::text from pgexec.nodes where run_id = $1 and node_id = 'root'`, id); out != "true" {
		t.Errorf("HasKind answers wrong")
	}
}

// A worker that dies is no failed attempt (C17): another one takes the task when the lease is over, as many times as the
// kind says; then the task fails and says so (C18).
func TestTask_LostLeases_C17_C18(t *testing.T) {
	b := setup(t)
	b.declare("transcribe", "max_lost_leases => 3")
	b.replica(orchestra())
	id := b.start("album", []string{"song"})
	for delivery, worker := range []string{"w1", "w2", "w3"} {
		got := b.take("transcribe", worker, time.Minute)
		if got.Deliveries != delivery+1 || got.Attempt != 1 {
			t.Errorf("took %+v", got)
		}
		if again := b.takeAll("transcribe", "w4", time.Minute); len(again) > 0 {
			t.Errorf("took %+v under a lease", again)
		}
		b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second'`)
	}
	if again := b.takeAll("transcribe", "w4", time.Minute); len(again) > 0 {
		t.Errorf("took %+v after its leases were lost too often", again)
	}
	run := b.succeed(id)
	if got := string(run.Result); !strings.Contains(got, "the leases of 3 workers in a row expired, the last one that of w3 at ") {
		t.Errorf("result %s", got)
	}
	if got := query[string](b, `select string_agg(concat_ws(' ', status, attempt), ',') from pgexec.nodes where run_id = $1 and node_id = 'song'`, id); got != "failed 1" {
		t.Errorf("node is %s", got)
	}
}

// A late completion counts as long as nobody else took the task, and is refused with words when somebody did. What a
// worker says twice, since it did not hear the answer, is harmless.
func TestTask_LateAndRepeatedCompletions(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.exec(`insert into pgexec.task_kinds (kind) values ('mix')`)
	b.replica(orchestra())
	expire := func(id int64) {
		b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second' where task_id = $1`, id)
	}
	refused := func(words string, statement string, args ...any) {
		t.Helper()
		if _, err := b.pool.Exec(b.ctx, statement, args...); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want %q", statement, err, words)
		}
	}
	id := b.start("album", []string{"a", "b"})
	first := b.take("transcribe", "w1", time.Minute)
	expire(first.ID)
	if !b.complete(first.ID, "w1", "1") || !b.complete(first.ID, "w1", "2") {
		t.Error("a late completion does not count")
	}
	b.eventually(`select count(*) = 1 from pgexec.nodes where run_id = $1 and kind = 'transcribe'`, id)
	second := b.take("transcribe", "w1", time.Minute)
	expire(second.ID)
	if got := b.take("transcribe", "w2", time.Minute); got.ID != second.ID {
		t.Errorf("w2 took %+v", got)
	}
	refused("is not that of worker w1: w2 took it at 20", `select pgexec.complete($1, 'w1', '1')`, second.ID)
	refused("is not that of worker w1: w2 took it at 20", `select pgexec.fail($1, 'w1', 'e')`, second.ID)
	if until := query[*time.Time](b, `select pgexec.extend($1, 'w1', '1 minute')`, second.ID); until != nil {
		t.Errorf("w1 has its lease until %v", until)
	}
	until := query[*time.Time](b, `select pgexec.extend($1, 'w2', '1 hour')`, second.ID)
	if until == nil || until.Sub(second.LeaseUntil) < 50*time.Minute {
		t.Errorf("w2 has its lease until %v", until)
	}
	// Given back, it can be taken at once, and counts as not taken.
	if until := query[*time.Time](b, `select pgexec.extend($1, 'w2', '0')`, second.ID); until != nil {
		t.Errorf("given back until %v", until)
	}
	refused("nobody has taken it", `select pgexec.complete($1, 'w2', '1')`, second.ID)
	third := b.take("transcribe", "w3", time.Minute)
	if third.ID != second.ID || third.Deliveries != 2 {
		t.Errorf("w3 took %+v", third)
	}
	b.complete(third.ID, "w3", "3")
	run := b.succeed(id)
	if got := string(run.Result); !strings.Contains(got, ": 1") || !strings.Contains(got, ": 3") {
		t.Errorf("result %s", got)
	}
	for _, statement := range []string{`select pgexec.complete(4711, 'w1')`, `select pgexec.fail(4711, 'w1', 'e')`, `select pgexec.extend(4711, 'w1')`} {
		refused("task 4711 does not exist", statement)
	}
	refused(`kind dance is not declared`, `select pgexec.take('dance', 'w1')`)
	refused(`a worker needs a name`, `select pgexec.take('mix', '')`)
	refused(`want 1 to 1000`, `select pgexec.take('mix', 'w1', '1 minute', 0)`)
	refused(`a lease above 0`, `select pgexec.take('mix', 'w1', '0')`)
}

// Cancelled, paused and resumed: a worker is told to stop, what waits is taken by nobody, and nothing is left.
func TestTask_CancelPauseResume(t *testing.T) {
	b := setup(t)
	b.declare("transcribe")
	b.replica(orchestra())
	id := b.start("album", []string{"a", "b"})
	b.eventually(`select count(*) = 2 from pgexec.tasks`)
	taken := b.take("transcribe", "w1", time.Minute)
	b.exec(`select pgexec.pause($1)`, id)
	b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, id)
	if more := b.takeAll("transcribe", "w2", time.Minute); len(more) > 0 {
		t.Errorf("took %+v of a paused run", more)
	}
	if until := query[*time.Time](b, `select pgexec.extend($1, 'w1')`, taken.ID); until == nil {
		t.Error("what is in flight is stopped by a pause")
	}
	if !b.complete(taken.ID, "w1", "1") {
		t.Error("what is in flight does not count in a pause")
	}
	b.exec(`select pgexec.resume($1)`, id)
	last := b.take("transcribe", "w2", time.Minute)
	b.eventually(`select count(*) = 1 from pgexec.nodes where run_id = $1 and kind = 'transcribe'`, id)
	b.exec(`select pgexec.cancel($1, 'enough')`, id)
	if b.complete(last.ID, "w2", "1") {
		t.Error("a completion counts in a run that is being cancelled")
	}
	if until := query[*time.Time](b, `select pgexec.extend($1, 'w2')`, last.ID); until != nil {
		t.Error("the worker is not told to stop")
	}
	if run := b.wait(id); run.Status != pgexec.RunCancelled {
		t.Errorf("run is %s", run.Status)
	}
	b.eventually(`select not exists (select from pgexec.tasks)`)
}

// A database that does not answer for a moment declares nothing away: what cannot be looked up may be there.
func TestTask_KindsAreNotDeniedUnseen(t *testing.T) {
	b := setup(t)
	exec := func(statement string) {
		if _, err := b.pool.Exec(b.ctx, statement); err != nil {
			t.Error(err)
		}
	}
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "ask", func(_ context.Context, n *pgexec.Node, _ json.RawMessage) ([]bool, error) {
		before := n.HasKind("dance")
		exec(`alter table pgexec.task_kinds rename to task_kinds_away`)
		during := n.HasKind("dance")
		exec(`alter table pgexec.task_kinds_away rename to task_kinds`)
		return []bool{before, during, n.HasKind("dance")}, nil
	}, nil)
	b.replica(kinds)
	if run := b.succeed(b.start("ask", nil)); string(run.Result) != `[false,true,false]` {
		t.Errorf("answers %s", run.Result)
	}
}
