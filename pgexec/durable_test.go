package pgexec_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// aMoment is far longer than what must not happen would take to happen.
const aMoment = 300 * time.Millisecond

// pair returns kinds of a run whose root "first" spawns "second"; what starts is sent.
func pair(started chan<- string) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "first", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
		started <- "first"
		n.Spawn("second", nil, nil)
		return 1, nil
	}, nil)
	pgexec.AddKind(kinds, "second", func(context.Context, *pgexec.Node, none) (int, error) {
		started <- "second"
		return 2, nil
	}, nil)
	return kinds
}

// beforeNodes makes the database do something before the record of a node is inserted.
func (b *bundle) beforeNodes(statement string) {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx, `create function public.before_node() returns trigger language plpgsql as $$
		begin
			if pgexec.decode(new.record) ? 'node' then `+statement+`; end if;
			return new;
		end $$;
		create trigger before_node before insert on pgexec.run_log for each row execute function public.before_node()`)
	if err != nil {
		b.t.Fatal(err)
	}
}

// G5: while the record that spawned a successor stands before its commit, the
// successor does not start and no watcher sees the record; then both happen.
func TestRun_SuccessorsStartAfterTheCommit(t *testing.T) {
	b := setup(t)
	b.beforeNodes(`perform pg_advisory_xact_lock_shared(5)`)
	gate, err := pgx.Connect(b.ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close(b.ctx)
	if _, err := gate.Exec(b.ctx, `select pg_advisory_lock(5)`); err != nil {
		t.Fatal(err)
	}
	started, seen := make(chan string, 10), make(chan pgexec.Seq, 10)
	b.replica(pair(started))
	id := b.start("first", nil)
	go func() {
		defer close(seen)
		for e, err := range b.client.Watch(b.ctx, id, 0) {
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			seen <- e.Seq
		}
	}()
	if seq := receive(t, "claim", seen); seq != 1 {
		t.Fatalf("a watcher sees record %d first", seq)
	}
	receive(t, "start", started)
	b.eventually(`select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory')`)
	select {
	case <-started:
		t.Error("the successor started before the record that spawned it was committed")
	case seq := <-seen:
		t.Errorf("a watcher saw record %d before it was committed", seq)
	case <-time.After(aMoment):
	}
	if _, err := gate.Exec(b.ctx, `select pg_advisory_unlock(5)`); err != nil {
		t.Fatal(err)
	}
	if kind := receive(t, "start of the successor", started); kind != "second" {
		t.Errorf("%s started", kind)
	}
	for want := pgexec.Seq(2); want <= 4; want++ {
		if seq := receive(t, "record", seen); seq != want {
			t.Errorf("a watcher saw record %d, want %d", seq, want)
		}
	}
	b.succeed(id)
}

// G5: while the record that spawns a successor is refused, again and again, the
// successor does not start; it starts once when the record is taken.
func TestRun_SuccessorOfARefusedRecordDoesNotStart(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `create sequence public.refused`); err != nil {
		t.Fatal(err)
	}
	b.beforeNodes(`perform nextval('public.refused'); raise check_violation`)
	started := make(chan string, 1000)
	b.replica(pair(started))
	id := b.start("first", nil)
	b.eventually(`select last_value >= 2 from public.refused`) // it is not rolled back
	if _, err := b.pool.Exec(b.ctx, `drop trigger before_node on pgexec.run_log`); err != nil {
		t.Fatal(err)
	}
	b.succeed(id)
	close(started)
	seconds := 0
	for kind := range started {
		if kind == "second" {
			seconds++
		}
	}
	if seconds != 1 {
		t.Errorf("the successor was executed %d times", seconds)
	}
}
