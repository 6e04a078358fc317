package ownership_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

func heldOf(claimed ...ownership.Claimed) []ownership.Held {
	var held []ownership.Held
	for _, c := range claimed {
		held = append(held, ownership.Held{RunID: c.RunID, Epoch: c.Epoch})
	}
	return held
}

// wakeOf returns a want with the run's present wake.
func (b *bundle) wakeOf(id runlog.RunID) ownership.Want {
	b.t.Helper()
	return ownership.Want{RunID: id, WakeJob: value[int64](b, `select coalesce(wake_job, 0) from pgexec.runs where run_id = $1`, id)}
}

func TestRelease_GoesBackWithAWake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.open(), b.open()
	w := b.start()
	got := b.claim(b.claimer(first), w, "claimed")
	listener := b.listen("pgexec.river_insert")

	released, err := ownership.Release(b.ctx, b.pool, first.ID(), heldOf(got), nil)
	if err != nil || !slices.Equal(released.Queues, []string{"default"}) || released.Locked != 0 {
		t.Fatalf("released %+v, error %v", released, err)
	}

	b.wantRun(w.RunID, "queued owner - epoch 1 wake yes orphaned by -")
	again := b.wakeOf(w.RunID)
	b.wantJob(again.WakeJob, "available")
	b.exec(`select pg_notify('pgexec.river_insert', 'end')`)
	if payload := listener(); payload != "end" {
		t.Errorf("the release notified %s", payload)
	}
	next := b.claim(b.claimer(second), again, "claimed")
	if next.DeadReplicaID != 0 || next.Epoch != 2 || next.Head != 2 {
		t.Errorf("claimed %+v: a release is no death", next)
	}
}

// listen returns a function that waits for the next notification.
func (b *bundle) listen(channel string) func() string {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.ctx, b.connConfig())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(b.ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		b.t.Fatal(err)
	}
	return func() string {
		b.t.Helper()
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			b.t.Fatalf("wait for notification: %v", err)
		}
		return n.Payload
	}
}

func TestRelease_WaitingKinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()
	got := b.claim(b.claimer(s), w, "claimed")

	_, err := ownership.Release(b.ctx, b.pool, s.ID(), heldOf(got), &ownership.ReleaseOpts{WaitingKinds: []string{"x", "y"}})
	if err != nil {
		t.Fatal(err)
	}
	b.wantRun(w.RunID, "queued owner - epoch 1 wake - orphaned by -")
	if reason := value[string](b, `select reason from pgexec.runs where run_id = $1`, w.RunID); reason != "waits for kind x, y" {
		t.Errorf("reason %q", reason)
	}
	b.claim(b.claimer(s), ownership.Want{RunID: w.RunID}, "settled")
	able := b.open(func(cfg *ownership.SessionConfig) { cfg.Info.Kinds = []string{"y"} })
	b.claim(b.claimer(able), ownership.Want{RunID: w.RunID}, "claimed")
	if n := value[int](b, `select count(*) from pgexec.runs where reason is not null`); n != 0 {
		t.Error("a claimed run still says that it waits")
	}
}

// C27: a run that is to wait gets no wake, and is claimed when its time has come.
func TestRelease_After(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()
	got := b.claim(b.claimer(s), w, "claimed")
	_, err := ownership.Release(b.ctx, b.pool, s.ID(), heldOf(got), &ownership.ReleaseOpts{After: time.Hour, Reason: "no \x00 \xff"})
	if err != nil {
		t.Fatal(err)
	}
	b.wantRun(w.RunID, "queued owner - epoch 1 wake - orphaned by -")
	if waits := value[string](b, `select concat_ws(' ', run_at > now() + interval '50 min', run_at < now() + interval '70 min', reason) from pgexec.runs`); waits != "t t no \uFFFD \uFFFD" {
		t.Errorf("the run waits: %q", waits)
	}
	b.claim(b.claimer(s), ownership.Want{RunID: w.RunID}, "settled")
	b.exec(`update pgexec.runs set run_at = now()`)
	b.claim(b.claimer(s), ownership.Want{RunID: w.RunID}, "claimed")
}

// C03: a run that was taken over, or that has ended, is not touched by its former owner's release.
func TestRelease_OnlyWhatIsStillHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.open(), b.open()
	taken, again, finished, held := b.start(), b.start(), b.start(), b.start()
	res, err := b.claimer(first).Claim(b.ctx, []ownership.Want{taken, again, finished, held})
	if err != nil || len(res.Claimed) != 4 {
		t.Fatalf("result %+v, error %v", res, err)
	}
	b.exec(`update pgexec.runs set owner = $2, epoch = 2 where run_id = $1`, taken.RunID, int32(second.ID()))
	b.exec(`update pgexec.runs set epoch = 3 where run_id = $1`, again.RunID) // lost, and claimed by the same replica again
	b.exec(`update pgexec.runs set owner = null, status = 'succeeded' where run_id = $1`, finished.RunID)

	if _, err := ownership.Release(b.ctx, b.pool, first.ID(), heldOf(res.Claimed...), nil); err != nil {
		t.Fatal(err)
	}
	b.wantRun(taken.RunID, running(second, 2))
	b.wantRun(again.RunID, running(first, 3))
	b.wantRun(finished.RunID, "succeeded owner - epoch 1 wake - orphaned by -")
	b.wantRun(held.RunID, "queued owner - epoch 1 wake yes orphaned by -")
}

// C34: a row that somebody else has locked is tried again, not waited for.
func TestRelease_LockedRowIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	locked, free := b.start(), b.start()
	res, err := b.claimer(s).Claim(b.ctx, []ownership.Want{locked, free})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `select from pgexec.runs where run_id = $1 for update`, locked.RunID); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := ownership.Release(ctx, b.pool, s.ID(), heldOf(res.Claimed...), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want a deadline", err)
	}
	b.wantRun(free.RunID, "queued owner - epoch 1 wake yes orphaned by -")
	b.wantRun(locked.RunID, running(s, 1))

	done := make(chan error, 1)
	go func() {
		_, err := ownership.Release(b.ctx, b.pool, s.ID(), heldOf(res.Claimed...), nil)
		done <- err
	}()
	if err := tx.Commit(b.ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.wantRun(locked.RunID, "queued owner - epoch 1 wake yes orphaned by -")
}

func TestOwned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.open(), b.open()
	mine, others := b.start(), b.start()
	got := b.claim(b.claimer(first), mine, "claimed")
	b.claim(b.claimer(second), others, "claimed")
	held, err := ownership.Owned(b.ctx, b.pool, first.ID())
	if err != nil || len(held) != 1 || held[0] != heldOf(got)[0] {
		t.Fatalf("owned %v, error %v", held, err)
	}
}
