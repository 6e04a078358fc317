package wake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// tasksOf is the first attempt of some nodes of a run of replica 1.
func tasksOf(id runlog.RunID, nodes ...string) TasksParams {
	p := TasksParams{RunID: id, Owner: 1, Epoch: 1}
	for _, node := range nodes {
		p.Tasks = append(p.Tasks, Task{NodeID: node, Kind: "t", Attempt: 1, Input: []byte(`{"of": "` + node + `"}`)})
	}
	return p
}

func (b *bundle) startTasks(p TasksParams, wantExisting bool) {
	b.t.Helper()
	existing, err := StartTasks(b.t.Context(), b.pool, p)
	if err != nil || existing != wantExisting {
		b.t.Fatalf("some existed: %v, want %v; error %v", existing, wantExisting, err)
	}
}

// withTasks makes runs that are replica 1's and wait for one task each, of kind t.
func withTasks(b *bundle, n int) []runlog.RunID {
	b.t.Helper()
	b.exec(`select pgexec.declare_kind('t')`)
	ids := b.ownMany(n)
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1, wake_job = null, has_tasks = true where run_id = any ($1)`, ids)
	b.exec(`insert into pgexec.tasks (run_id, node_id, kind, attempt, input, priority, at_most_once)
		select run_id, 'wait', 't', 1, '1', priority, false from pgexec.runs where run_id = any ($1)`, ids)
	return ids
}

// take takes tasks of kind t and returns their ids.
func (b *bundle) take(ctx context.Context, worker string, lease time.Duration, most int) ([]int64, error) {
	rows, err := b.pool.Query(ctx, `select task_id from pgexec.take('t', $1, $2, $3)`, worker, lease, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// refusal is the answer to who says something of a task that is not his.
func refusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55000"
}

// A task is made once for each attempt, whoever asks again; a new attempt has a new one.
func TestStartTasks_OnceForEachAttempt(t *testing.T) {
	b := setup(t)
	b.exec(`select pgexec.declare_kind('t')`)
	id := b.ownMany(1)[0]
	b.own(id)
	b.exec(`update pgexec.runs set priority = 3`)
	p := tasksOf(id, "a", "b")
	p.Tasks[1].AtMostOnce, p.Tasks[1].Input = true, []byte("[1.50, \"\\u0000\\ud800 \x00\xff\", 1e999]")
	b.startTasks(p, false)
	b.startTasks(p, true)
	if got, want := get[string](b, `select string_agg(concat_ws(' ', task_id, node_id, kind, attempt, input::text, priority, at_most_once, state), '; ' order by node_id) from pgexec.tasks`),
		"1 a t 1 {\"of\": \"a\"} 3 f waiting; 2 b t 1 [1.50, \"\\u0000\\ud800 \uFFFD\uFFFD\", 1e999] 3 t waiting"; got != want {
		t.Errorf("tasks are\n%s, want\n%s", got, want)
	}
	taken, err := b.take(t.Context(), "w", time.Minute, 2)
	if err != nil || len(taken) != 2 {
		t.Fatalf("took %v, error %v", taken, err)
	}
	b.startTasks(p, true) // as a takeover does
	if n := get[int](b, `select count(*) from pgexec.tasks where state = 'taken' and deliveries = 1`); n != 2 {
		t.Errorf("%d of 2 tasks are still taken", n)
	}
	b.exec(`select pgexec.fail($1, 'w', 'no')`, taken[0])
	b.exec(`select pgexec.complete($1, 'w', $2)`, taken[1], `{"x": "\u0000" , "y":1e999}`)
	ends, err := ReadTaskEnds(t.Context(), b.pool, Logged{RunID: id})
	if err != nil || len(ends) != 2 || ends[0].Succeeded || ends[0].Error != "no" || ends[0].ErrorCode != "error" || ends[0].RetryAfterUs != 0 ||
		!ends[1].Succeeded || string(ends[1].Output) != `{"x": "\u0000" , "y":1e999}` || ends[1].TakenAt.IsZero() || ends[1].EndedAt.IsZero() {
		t.Errorf("ends are %+v, error %v", ends, err)
	}
	again := tasksOf(id, "a")
	again.Tasks[0].Attempt = 2
	b.startTasks(again, false)
	if got := get[string](b, `select concat_ws(' ', attempt, state, deliveries, worker is null, lease_until is null, error is null) from pgexec.tasks where node_id = 'a'`); got != "2 waiting 0 t t t" {
		t.Errorf("the second attempt is %s", got)
	}
	// What the log has is removed; the former attempt's id is no longer there.
	ends, err = ReadTaskEnds(t.Context(), b.pool, b.logged(id, taken[0], taken[1]))
	if n := get[int](b, `select count(*) from pgexec.tasks`); err != nil || len(ends) != 0 || n != 1 {
		t.Errorf("ends are %+v, error %v, %d tasks are left", ends, err, n)
	}
	if in, err := ReadInbox(t.Context(), b.pool, Logged{RunID: id}, nil); err != nil || in.Seen != 2 {
		t.Errorf("the inbox is at %d, error %v", in.Seen, err)
	}
}

// C03: an owner that is none any more, or whose log a failover has shortened, removes no task and marks no signal.
func TestLogged_FormerOwnersDealWithNothing_C03(t *testing.T) {
	for name, change := range map[string]func(*Logged){
		"another epoch": func(l *Logged) { l.Epoch = 2 },
		"another owner": func(l *Logged) { l.Owner = 2 },
		"no such head":  func(l *Logged) { l.Head = 2 },
		"the owner":     func(*Logged) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.exec(`select pgexec.declare_kind('t')`)
			id := b.ownMany(1)[0]
			b.own(id)
			b.startTasks(tasksOf(id, "a"), false)
			b.exec(`select pgexec.complete(task_id, 'w', '1') from pgexec.take('t', 'w')`)
			b.exec(`select pgexec.signal($1, 's')`, id)
			logged := b.logged(id, get[int64](b, `select task_id from pgexec.tasks`))
			logged.Signals = []int64{get[int64](b, `select signal_id from pgexec.signals`)}
			change(&logged)
			if _, err := ReadTaskEnds(t.Context(), b.pool, logged); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadInbox(t.Context(), b.pool, logged, nil); err != nil {
				t.Fatal(err)
			}
			want := "1 0"
			if name == "the owner" {
				want = "0 1"
			}
			if got := get[string](b, `select concat_ws(' ', (select count(*) from pgexec.tasks), (select count(consumed_at) from pgexec.signals))`); got != want {
				t.Errorf("tasks and consumed signals: %s, want %s", got, want)
			}
		})
	}
}

func TestStartTasks_Refused(t *testing.T) {
	b := setup(t)
	id := b.ownMany(1)[0]
	b.own(id)
	other := tasksOf(id, "a")
	other.Epoch = 2
	if _, err := StartTasks(t.Context(), b.pool, other); !errors.Is(err, runlog.ErrFenced) || errors.Is(err, ErrWanted) {
		t.Errorf("of another epoch: %v", err)
	}
	bad := tasksOf(id, "a")
	bad.Tasks[0].Input = []byte(`{`)
	var pg *pgconn.PgError
	if _, err := StartTasks(t.Context(), b.pool, bad); !errors.As(err, &pg) || pg.Code != "22P02" {
		t.Errorf("with an input that is no JSON: %v", err)
	}
	for _, want := range []string{"pause", "cancel"} {
		b.exec(`select pgexec.` + want + `(run_id) from pgexec.runs`)
		if _, err := StartTasks(t.Context(), b.pool, tasksOf(id, "a")); !errors.Is(err, ErrWanted) || !errors.Is(err, runlog.ErrFenced) {
			t.Errorf("while %s is wanted: %v", want, err)
		}
	}
	if n := get[int](b, `select count(*) from pgexec.tasks`); n != 0 {
		t.Errorf("%d tasks were made", n)
	}
}

// Many workers, whatever they take at once: no task is taken twice under a lease, none is forgotten, and those of
// urgent runs come first.
func TestTake_NoTaskTwice(t *testing.T) {
	b := setup(t)
	const tasks, workers = 3000, 8
	ids := withTasks(b, tasks)
	b.exec(`update pgexec.tasks set priority = 1 + task_id % 4`)
	var taken [tasks + 1]atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := 0; ; n++ {
				got, err := b.take(t.Context(), fmt.Sprint("w", w), time.Hour, 1+(n+w)%7)
				if err != nil {
					t.Error(err)
				}
				for _, id := range got {
					taken[id].Add(1)
				}
				if len(got) == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	for id := 1; id <= len(ids); id++ {
		if n := taken[id].Load(); n != 1 {
			t.Fatalf("task %d was taken %d times", id, n)
		}
	}
	if n := get[int](b, `select count(*) from pgexec.tasks a where priority = 1
		and taken_at > (select min(taken_at) from pgexec.tasks b where b.priority = 4)`); n > workers*7 {
		t.Errorf("%d urgent tasks were taken after the first that is not", n)
	}
}

// Hundreds of times a worker completes its task just when its lease is over and another one takes what it finds: either
// the completion counts, or the other one has the task and the completion is refused.
func TestTask_CompletionRacesTakeover(t *testing.T) {
	b := setup(t)
	const rounds = 600
	ids := withTasks(b, rounds)
	b.exec(`update pgexec.tasks set state = 'taken', worker = 'late', taken_at = now(), lease_until = clock_timestamp() - interval '1 second', deliveries = 1`)
	var completed, refused int
	for round := range ids {
		id := get[int64](b, `select task_id from pgexec.tasks where state = 'taken' and worker = 'late' order by lease_until, task_id limit 1`)
		var late error
		var taken []int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for range round % 4 { // the other one needs a moment to find it
				b.exec(`select 1`)
			}
			_, late = b.pool.Exec(t.Context(), `select pgexec.complete($1, 'late')`, id)
		})
		wg.Go(func() {
			rows, err := b.pool.Query(t.Context(), `select task_id from pgexec.take('t', 'next', '1 hour', 1)`)
			if err == nil {
				taken, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			}
			if err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		state := get[string](b, `select concat_ws(' ', state, worker) from pgexec.tasks where task_id = $1`, id)
		switch {
		case late == nil && state == "succeeded late":
			completed++
		case refusal(late) && state == "taken next" && len(taken) == 1 && taken[0] == id:
			refused++
		default:
			t.Fatalf("task %d is %s; late: %v; next took %v", id, state, late, taken)
		}
		// Whatever next took of other rounds is late's again, and first in line.
		b.exec(`update pgexec.tasks set state = 'taken', worker = 'late', lease_until = clock_timestamp() - interval '1 hour', deliveries = 1 where task_id = any ($1) and task_id <> $2`, taken, id)
		b.exec(`update pgexec.tasks set worker = 'done', lease_until = 'infinity' where task_id = $1 and state = 'taken'`, id)
	}
	t.Logf("%d completions counted, %d were refused", completed, refused)
	if completed == 0 || refused == 0 {
		t.Error("it was no race")
	}
}

// G4: a task's end that comes while its run parks is seen by the owner, or wakes the run.
func TestPark_NoTasksEndIsLost(t *testing.T) {
	b := setup(t)
	var workers atomic.Int64
	parked, hot := parkRace{
		prepare: withTasks,
		reach: func(ctx context.Context, b *bundle, id runlog.RunID) error {
			worker := fmt.Sprint("w", workers.Add(1))
			taken, err := b.take(ctx, worker, time.Hour, 1)
			if err != nil || len(taken) != 1 {
				return errors.Join(err, fmt.Errorf("took %v", taken))
			}
			_, err = b.pool.Exec(ctx, `select pgexec.complete($1, $2)`, taken[0], worker)
			return err
		},
		// Any run's task: each run is reached once, by somebody.
		there: func(in Inbox) bool { return in.Seen > 0 },
		lost:  `r.status = 'parked' and r.wake_job is null or r.inbox <> 1`,
	}.race(b, 1500)
	t.Logf("%d parked first, %d saw the end first", parked, hot)
	if parked == 0 || hot == 0 {
		t.Error("it was no race")
	}
}

// Hundreds of times a task is completed while its run is being cancelled or paused: what counts reaches the run, and
// nobody waits for anybody.
func TestTask_CompletionRacesRequests(t *testing.T) {
	for _, request := range []string{"cancel", "pause"} {
		t.Run(request, func(t *testing.T) {
			b := setup(t)
			ids := withTasks(b, 200)
			var counted, gone int
			for _, id := range ids {
				task := get[int64](b, `update pgexec.tasks set state = 'taken', worker = 'w', taken_at = now(), lease_until = now() + interval '1 hour'
					where run_id = $1 returning task_id`, id)
				var counts bool
				var wg sync.WaitGroup
				wg.Go(func() { counts = get[bool](b, `select pgexec.complete($1, 'w')`, task) })
				wg.Go(func() { b.exec(`select pgexec.`+request+`($1)`, id) })
				wg.Wait()
				state := get[string](b, `select concat_ws(' ', t.state, r.inbox) from pgexec.tasks t join pgexec.runs r using (run_id) where task_id = $1`, task)
				switch {
				case counts && state == "succeeded 2":
					counted++
				case !counts && state == "taken 1" && request == "cancel":
					gone++
				default:
					t.Fatalf("task counts: %v, its state and its run's inbox are %s", counts, state)
				}
			}
			t.Logf("%d counted, %d came too late", counted, gone)
		})
	}
}

// A lease that is lost once too often ends the task, unless somebody holds its run just then: a moment later it does.
func TestTake_EndsWhatIsLostTooOften(t *testing.T) {
	b := setup(t)
	id := withTasks(b, 1)[0]
	expire := func() { b.exec(`update pgexec.tasks set lease_until = clock_timestamp() - interval '1 second'`) }
	b.exec(`update pgexec.tasks set state = 'taken', worker = 'w', taken_at = now(), lease_until = now(), deliveries = 5`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from pgexec.runs where run_id = $1 for update`, id); err != nil {
		t.Fatal(err)
	}
	if taken, err := b.take(t.Context(), "next", time.Hour, 10); err != nil || len(taken) > 0 {
		t.Errorf("took %v, error %v", taken, err)
	}
	if got := get[string](b, `select concat_ws(' ', state, worker, lease_until > now()) from pgexec.tasks`); got != "taken w t" {
		t.Errorf("task is %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	expire()
	if taken, err := b.take(t.Context(), "next", time.Hour, 10); err != nil || len(taken) > 0 {
		t.Errorf("took %v, error %v", taken, err)
	}
	if got := get[string](b, `select concat_ws(' ', state, error_code, permanent, (select inbox from pgexec.runs)) from pgexec.tasks`); got != "failed lost_leases t 1" {
		t.Errorf("task is %s", got)
	}
}

// A run that ends leaves no task, even one that is being made at that moment.
func TestTask_NoneIsLeftByAnEnd(t *testing.T) {
	b := setup(t)
	const rounds = 400
	b.exec(`select pgexec.declare_kind('t')`)
	ids := b.ownMany(rounds)
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1`)
	made := 0
	for i, id := range ids {
		var wg sync.WaitGroup
		var started error
		wg.Go(func() { _, started = StartTasks(t.Context(), b.pool, tasksOf(id, "a", "b", "c")) })
		wg.Go(func() {
			status := []string{"succeeded", "failed", "cancelled", "paused"}[i%4]
			for done := false; !done; {
				done = get[bool](b, `with held as (select run_id from pgexec.runs where run_id = $1 for update skip locked),
					ended as (update pgexec.runs set status = $2, owner = null, finished_at = case when $2 <> 'paused' then now() end where run_id in (select run_id from held) returning run_id)
					select exists (select from ended)`, id, status)
			}
		})
		wg.Wait()
		switch {
		case started == nil:
			made++
		case !errors.Is(started, runlog.ErrFenced):
			t.Fatal(started)
		}
	}
	t.Logf("%d of %d were made in time", made, rounds)
	if left := get[int](b, `select count(*) from pgexec.tasks`); left > 0 {
		t.Errorf("%d tasks are left", left)
	}
	if made == 0 || made == rounds {
		t.Error("it was no race")
	}
	withTasks(b, 1)
	b.exec(`delete from pgexec.runs where run_id in (select run_id from pgexec.tasks)`)
	b.exec(sql.WakeTasks)
	if left := get[int](b, `select count(*) from pgexec.tasks`); left > 0 {
		t.Errorf("%d tasks of a run that was deleted are left", left)
	}
}

// With 100,000 tasks that wait, a few of them taken, nothing reads a table from end to end or more than it needs.
func TestTask_ManyWaitingAreNoLoad(t *testing.T) {
	b := setup(t)
	b.exec(`select pgexec.declare_kind('t')`)
	const waiting = 100_000
	b.exec(`insert into pgexec.runs (kind, run_at) select 'k', now() + interval '1 hour' from generate_series(1, 100)`)
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1`)
	b.exec(`insert into pgexec.tasks (run_id, node_id, kind, attempt, input, priority, at_most_once)
		select run_id, 'n' || n, 't', 1, '1', 2, false from pgexec.runs, generate_series(1, $1::int / 100) n`, waiting)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	work := func(statement string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	work(`create temporary table took on commit drop as select * from pgexec.take('t', 'w', '1 minute', 10)`)
	work(`select pgexec.complete(task_id, 'w'), pgexec.extend(task_id, 'w') from took`)
	work(`select pgexec.fail(task_id, 'w', 'e') from pgexec.take('t', 'w')`)
	work(`select from pgexec.take('t', 'w', '1 minute', 10)`)
	var scans, read int64
	if err := tx.QueryRow(t.Context(), `select pg_stat_get_xact_numscans('pgexec.tasks'::regclass),
		(select sum(pg_stat_get_xact_tuples_returned(indexrelid)) from pg_index where indrelid = 'pgexec.tasks'::regclass)`).Scan(&scans, &read); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries of indexes were read", read)
	if scans > 0 || read > 1000 {
		t.Errorf("%d scans of the table, %d entries of indexes read", scans, read)
	}
}

// Workers are told of new tasks, and not by the statement that makes them.
func TestTasks_AreAnnounced(t *testing.T) {
	b := setup(t)
	b.exec(`select pgexec.declare_kind('t', max_attempts => 7, min_backoff => '1 s', max_backoff => '1 min')`)
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `listen pgexec_task`); err != nil {
		t.Fatal(err)
	}
	tasks := NewTasks(b.pool, b.config(1).Logger)
	if _, ok := tasks.Kind("t"); ok {
		t.Error("a kind is known before the first look")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); tasks.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for range 3 {
		tasks.Announce("t")
	}
	n, err := conn.Conn().WaitForNotification(t.Context())
	if err != nil || n.Channel != "pgexec_task" || n.Payload != "t" {
		t.Errorf("told %+v, error %v", n, err)
	}
	if err := tasks.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k, ok := tasks.Kind("t"); !ok || k != (TaskKind{"t", 7, 1_000_000, 60_000_000}) {
		t.Errorf("kind is %+v, %v", k, ok)
	}
	b.exec(`delete from pgexec.task_kinds`)
	if err := tasks.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := tasks.Kind("t"); ok {
		t.Error("a kind is known that is not declared any more")
	}
}

// With their kind tasks end: one that may be done once only when the lease of its worker is over, and then nobody knows what became of it.
func TestTaskKinds_DeletedEndsTasks(t *testing.T) {
	b := setup(t)
	withTasks(b, 4)
	b.exec(`update pgexec.tasks set at_most_once = true where task_id > 1`)
	b.exec(`update pgexec.tasks set state = 'taken', worker = 'w', taken_at = now(), lease_until = now() + make_interval(hours => case when task_id = 3 then -1 else 1 end) where task_id > 2`)
	states := func(want string) {
		t.Helper()
		if got := get[string](b, `select string_agg(coalesce(error_code, state), ' ' order by task_id) from pgexec.tasks`); got != want {
			t.Errorf("tasks are %s, want %s", got, want)
		}
	}
	b.exec(`delete from pgexec.task_kinds`)
	states("undeclared undeclared outcome_unknown taken")
	b.exec(`update pgexec.tasks set lease_until = now() where state = 'taken'`)
	b.exec(sql.WakeTasks)
	states("undeclared undeclared outcome_unknown outcome_unknown")
}

// What a worker may not ask is refused with words, and changes nothing.
func TestTask_BadArgumentsAreRefused(t *testing.T) {
	b := setup(t)
	withTasks(b, 2)
	b.exec(`update pgexec.tasks set state = 'taken', worker = 'w', taken_at = now(), lease_until = now() + interval '1 hour' where task_id = 1`)
	for _, call := range []string{
		`take('t', null)`, `take('t', '')`, `take('t', 'w', null)`, `take('t', 'w', '0')`, `take('t', 'w', '2 years')`,
		`take('t', 'w', max_tasks => null)`, `take('t', 'w', max_tasks => 1001)`, `take(null, 'w')`,
		`extend(1, 'w', null)`, `extend(1, 'w', '-1 s')`, `extend(1, 'w', '2 years')`, `extend(3, 'w')`,
		`complete(2, null)`, `fail(2, null, 'e')`, `complete(1, null)`, `complete(3, 'w')`, `fail(3, 'w', 'e')`,
	} {
		_, err := b.pool.Exec(t.Context(), `select pgexec.`+call)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "22023" && pg.Code != "55000" {
			t.Errorf("%s: %v", call, err)
		}
	}
	if got := get[string](b, `select string_agg(state, ' ' order by task_id) from pgexec.tasks`); got != "taken waiting" {
		t.Errorf("tasks are %s", got)
	}
}

// What a declaration may not say is refused.
func TestDeclareKind_Refused(t *testing.T) {
	b := setup(t)
	for _, args := range []string{`''`, `'signal'`, `'approval'`, `'t', max_attempts => 0`, `'t', min_backoff => '2 min'`, `'t', max_lost_leases => 0`} {
		_, err := b.pool.Exec(t.Context(), `select pgexec.declare_kind(`+args+`)`)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, "23") {
			t.Errorf("declare_kind(%s): %v", args, err)
		}
	}
}

// What is shown of runs is removed, where nobody did who knew, once their own rows have it; that of runs that are hot, or
// in between two owners, stays.
func TestHousekeeping_RemovesWhatIsShownOfRunsThatRest(t *testing.T) {
	b := setup(t)
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, 5)`)
	b.exec(`update pgexec.runs set status = s, owner = case s when 'running' then 1 end
		from (select run_id as id, (array['queued', 'running', 'parked', 'paused', 'failed'])[row_number() over (order by run_id)] as s from pgexec.runs) _ where run_id = id`)
	b.exec(`insert into pgexec.run_usage select run_id, 0, 1, 1, 1, 0, 1 from pgexec.runs`)
	b.exec(`insert into pgexec.run_usage select pgexec.uuid7(), 1, 1, 1, 1, 0, 1`)
	w, err := New(b.config(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.removeUsage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := get[string](b, `select string_agg(r.status, ' ' order by r.status) from pgexec.run_usage u left join pgexec.runs r using (run_id)`); left != "queued running" {
		t.Errorf("what is left is of runs that are %s", left)
	}
}
