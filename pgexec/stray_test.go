package pgexec_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
)

// stray makes a run that belongs to the only replica and is not in its memory,
// as after a claim whose answer was lost, or a release that could not be made.
func (b *bundle) stray(kind string) pgexec.RunID {
	b.t.Helper()
	id := query[pgexec.RunID](b, `insert into pgexec.runs (kind, run_at) values ($1, 'infinity') returning run_id`, kind)
	b.adopt(id)
	return id
}

func (b *bundle) adopt(id pgexec.RunID) {
	b.t.Helper()
	const statement = `update pgexec.runs set owner = (select replica_id from pgexec.replicas), status = 'running', epoch = 1, run_at = now()
		where run_id = $1`
	if _, err := b.pool.Exec(b.ctx, statement, id); err != nil {
		b.t.Fatal(err)
	}
}

// G4: a run that the replica has to let go, and whose row an application keeps
// locked, holds up nothing else: neither claims nor what comes after it.
func TestRuntime_LockedStrayRunHoldsUpNoOther_G4(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "quick", func(context.Context, *pgexec.Node, none) (int, error) { return 1, nil }, nil)
	b.replica(kinds)
	b.eventually(`select count(*) = 1 from pgexec.replicas`)

	locked := b.stray("quick")
	tx := b.lockOwned(locked)
	defer tx.Rollback(context.Background())
	other := b.stray("quick") // found no sooner than the locked one
	b.succeed(other)
	b.succeed(b.start("quick", nil))
	if !query[bool](b, `select owner is not null from pgexec.runs where run_id = $1`, locked) {
		t.Error("the locked run was released")
	}
	if err := tx.Commit(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.succeed(locked)
	b.checkLog(locked)
}

// lockOwned locks a stray run's row as an application does that sends it a signal.
func (b *bundle) lockOwned(id pgexec.RunID) pgx.Tx {
	b.t.Helper()
	for {
		tx, err := b.pool.Begin(b.ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		var owned bool
		if err := tx.QueryRow(b.ctx, `select owner is not null from pgexec.runs where run_id = $1 for update`, id).Scan(&owned); err != nil {
			b.t.Fatal(err)
		}
		if owned {
			return tx
		}
		_ = tx.Rollback(b.ctx)
		b.adopt(id)
	}
}

// G3: a run of which the database says that it is not the replica's is let go, also while it records nothing: what it
// does may be done elsewhere.
func TestRuntime_RunThatIsNotOursIsLetGo_G3(t *testing.T) {
	b := setup(t)
	bl := newBlocker()
	b.replica(bl.kinds("only"))
	id := b.start("block", nil)
	receive(t, "start", bl.started)
	const change = `update pgexec.runs set owner = null, status = 'queued', run_at = 'infinity' where run_id = $1`
	if _, err := b.pool.Exec(b.ctx, change, id); err != nil {
		t.Fatal(err)
	}
	if cause := receive(t, "cause", bl.causes); !errors.Is(cause, pgexec.ErrOwnershipLost) {
		t.Errorf("cause is %v", cause)
	}
	if _, err := b.pool.Exec(b.ctx, `update pgexec.runs set run_at = now() where run_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	receive(t, "second start", bl.started)
	close(bl.gate)
	if run := b.succeed(id); run.Epoch != 2 {
		t.Errorf("the run was claimed %d times", run.Epoch)
	}
	b.checkLog(id)
}
