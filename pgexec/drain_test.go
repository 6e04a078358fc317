package pgexec_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// C19: a drain ends soon after its grace time also when the database does not take what is to be
// recorded. The run goes on elsewhere.
func TestRuntime_DrainEndsWhileNothingCanBeRecorded_C19(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	r := b.replica(bl.kinds("first"), named("first"), func(c *pgexec.Config) { c.Grace = 100 * time.Millisecond })
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `lock table pgexec.run_log in share mode`); err != nil {
		t.Fatal(err)
	}
	close(bl.gate)
	b.eventually(`select exists (select from pg_locks where relation = 'pgexec.run_log'::regclass and not granted)`)
	r.stop()
	receive(t, "end of the drain", r.done)
	if !query[bool](b, `select owner is null and status = 'queued' from pgexec.runs where run_id = $1`, id) {
		t.Error("the run was not released")
	}
	if err := tx.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.replica(bl.kinds("second"), named("second"))
	b.succeed(id)
	b.checkLog(id)
}

// C19: a drain ends soon after its grace time also when an application keeps runs locked, long before it would give up to release them
// at another time. They go on elsewhere, and nobody says that their owner has died.
func TestRuntime_DrainEndsWhileRunsAreLocked_C19(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	r := b.replica(bl.kinds("first"), named("first"), func(c *pgexec.Config) { c.Grace = 100 * time.Millisecond })
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `select from pgexec.runs where run_id = $1 for update`, id); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.stop()
	receive(t, "end of the drain", r.done)
	if took := time.Since(began); took > 9*time.Second { // it takes two
		t.Errorf("the drain took %v", took)
	}
	if err := tx.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
	close(bl.gate)
	b.replica(bl.kinds("second"), named("second"))
	b.succeed(id)
	if n := query[int](b, `select count(*) from pgexec.run_log where run_id = $1 and pgexec.decode(record)->'claim' ? 'dead_replica_id'`, id); n != 0 {
		t.Error("the log says that the owner has died")
	}
	b.checkLog(id)
}
