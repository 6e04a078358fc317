package wake

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// G4, C16: with several replicas and no River leader, a timer starts when its
// time has come, never before it, and once. It does not wait for a poll.
func TestTimers_WithoutLeader(t *testing.T) {
	b := setup(t)
	const poll = 20 * time.Second
	seen := make(chan delivery, 100)
	for id := range runlog.ReplicaID(3) {
		cfg := b.config(id + 1)
		cfg.WakeFunc = b.claim(id+1, seen)
		cfg.SweepInterval = time.Hour
		cfg.PollInterval = poll
		b.start(cfg)
	}
	b.exec(`insert into pgexec.runs (kind, run_at) values ('k', now() + interval '90 years'), ('k', 'infinity')`)
	const runs = 20
	b.exec(`insert into pgexec.runs (kind, run_at)
		select 'k', clock_timestamp() + interval '1.2 s' + i * interval '50 ms' from generate_series(1, $1) i`, runs)
	var all []time.Duration
	for range runs {
		d := next(b, seen)
		late := d.at.Sub(get[time.Time](b, `select run_at from pgexec.runs where run_id = $1`, d.RunID))
		if !d.claimed || late < 0 {
			t.Errorf("claimed %v, %v after its time", d.claimed, late)
		}
		all = append(all, late)
	}
	slices.Sort(all)
	t.Logf("p50 %v, latest %v after its time", all[runs/2], all[runs-1])
	if all[runs/2] > poll/2 {
		t.Errorf("half of them started later than %v after their time: the poll would do as well", all[runs/2])
	}
	if n := get[int](b, `select count(*) from pgexec.runs where wake_job is not null or (owner is null and run_at < now() + interval '1 year')`); n != 0 {
		t.Errorf("%d runs have a wake that they should not have, or have not started", n)
	}
	if n := get[int](b, `select count(*) from pgexec.river_leader`); n != 0 {
		t.Errorf("%d leaders", n)
	}
}

// C16: the next look at the timers is when the next one is due, however rare looks are otherwise.
func TestTimers_NextLookIsWhenTheNextOneIsDue(t *testing.T) {
	b := setup(t)
	cfg := b.config(1)
	cfg.TimerInterval = time.Hour
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	due := get[time.Time](b, `insert into pgexec.runs (kind, run_at) values ('k', now() + interval '10 minutes') returning run_at`)
	before := get[time.Time](b, `select clock_timestamp()`)
	rest, err := w.wakeDue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if late := before.Add(rest).Sub(due); late > 2*time.Millisecond || late < -limit {
		t.Errorf("the next look comes %v after the run is due", late)
	}
}

// A run becomes due at once when its time is moved to the past, as SQL may do.
func TestTimers_TimeMoved(t *testing.T) {
	b := setup(t)
	seen := make(chan delivery, 1)
	cfg := b.config(1)
	cfg.WakeFunc = b.claim(1, seen)
	cfg.SweepInterval = time.Hour
	b.start(cfg)
	id := get[runlog.RunID](b, `insert into pgexec.runs (kind, run_at) values ('k', 'infinity') returning run_id`)
	b.exec(`update pgexec.runs set run_at = '-infinity' where run_id = $1`, id)
	if d := next(b, seen); d.RunID != id || !d.claimed {
		t.Errorf("got %+v", d)
	}
}

// Many replicas look at the same due runs at once: each run gets one wake.
func TestTimers_ConcurrentReplicasMakeOneWakeEach(t *testing.T) {
	b := setup(t)
	const runs = 3000
	b.exec(`insert into pgexec.runs (kind, run_at) select 'k', now() + interval '1 day' from generate_series(1, $1)`, runs)
	b.exec(`update pgexec.runs set run_at = now() - interval '1 second'`)
	var done sync.WaitGroup
	for id := range runlog.ReplicaID(4) {
		w, err := New(b.config(id + 1))
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for range runs/dueBatch + 1 {
				if _, err := w.wakeDue(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if n := get[int](b, `select count(distinct wake_job) from pgexec.runs r join pgexec.river_job j
		on j.id = r.wake_job and j.args ->> 'run_id' = r.run_id::text`); n != runs {
		t.Errorf("%d runs have their wake, want %d", n, runs)
	}
	if n := get[int](b, `select count(*) from pgexec.river_job`); n != runs {
		t.Errorf("%d jobs, want %d", n, runs)
	}
}

// A row that somebody else has locked holds up nothing.
func TestTimers_LockedRowIsLeft(t *testing.T) {
	b := setup(t)
	b.exec(`insert into pgexec.runs (kind, run_at) select 'k', now() + interval '1 day' from generate_series(1, 2)`)
	b.exec(`update pgexec.runs set run_at = now() - interval '1 second'`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `select from pgexec.runs order by run_at limit 1 for update`); err != nil {
		t.Fatal(err)
	}
	w, err := New(b.config(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.wakeDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := get[int](b, `select count(*) from pgexec.runs where wake_job is not null`); n != 1 {
		t.Errorf("%d runs woken, want the one that is not locked", n)
	}
}

// Partitions are made when a replica starts.
func TestHousekeeping_MakesPartitions(t *testing.T) {
	b := setup(t)
	part := get[string](b, `select max(relname) from pg_class where relname ~ '^run_log_[0-9]{8}$'`)
	b.exec(`drop table pgexec.` + part)
	b.start(b.config(1))
	b.eventually("the partition exists", `select to_regclass('pgexec.' || $1) is not null`, part)
}
