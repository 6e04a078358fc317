package runlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/runlog"
)

func isFenced(err error) bool { return errors.Is(err, runlog.ErrFenced) }

// G3: after a claim commits, the former owner adds nothing, be it one record or several.
func TestAppend_FormerOwnerIsFenced_G3(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := setup(t)
			w := b.writer(nil)
			id := b.newRun()
			former := b.open(w, id, 1)
			b.appendAll(former, node(t, "a", 1)).wantSeqs(2)

			current := b.open(w, id, 2)
			var late [][]byte
			for i := range n {
				late = append(late, node(t, fmt.Sprintf("late-%d", i), 1))
			}
			b.appendAll(former, late...).wantError(isFenced)
			b.appendAll(current, node(t, "b", 2), node(t, "c", 2)).wantSeqs(4)

			b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), claimRecord(t, 2, 2), node(t, "b", 2), node(t, "c", 2))
		})
	}
}

// G3 without the log's help: a release and a claim that a failover has half lost. The former owner's head exists
// again, written by somebody else; only owner and epoch tell.
func TestAppend_SameHeadOfAnotherOwnerIsFenced_G3(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := setup(t)
			w := b.writer(nil)
			id := b.newRun()
			former := b.open(w, id, 1)
			b.appendAll(former, node(t, "a", 1)).wantSeqs(2)
			// Record 2 is lost, and the next owner's claim has its place.
			b.exec(`delete from pgexec.run_log where run_id = $1 and seq = 2`, id)
			b.claim(b.pool, id, 2)

			var late [][]byte
			for i := range n {
				late = append(late, node(t, fmt.Sprintf("late-%d", i), 1))
			}
			b.appendAll(former, late...).wantError(isFenced)
			b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2))
		})
	}
}

// G3: the owner that gets its run back has another epoch; the tail of its former claim stays fenced.
func TestAppend_FormerEpochOfTheSameOwnerIsFenced_G3(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	first := b.open(w, id, 1)
	b.claim(b.pool, id, 2)
	again := b.open(w, id, 1)
	// As if the failover had given back the first claim's head.
	stale := w.Open(id, 1, 1, 3)

	b.appendAll(first, node(t, "late", 1)).wantError(isFenced)
	b.appendAll(stale, node(t, "late", 1), node(t, "later", 1)).wantError(isFenced)
	b.appendAll(again, node(t, "a", 1)).wantSeqs(4)
	b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2), claimRecord(t, 1, 3), node(t, "a", 1))
}

// G3: a run without an owner (queued, parked) takes no append.
func TestAppend_ReleasedRunIsFenced_G3(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.exec(`update pgexec.runs set owner = null, status = 'queued' where run_id = $1`, id)
	b.appendAll(tail, node(t, "late", 1)).wantError(isFenced)
	b.wantLog(id, claimRecord(t, 1, 1))
}

// G3: a claim whose transaction is still open when the flush begins. The flush's snapshot shows the former
// owner, so that only the primary key can decide, when the claim has.
func TestAppend_ClaimRacesFlush_G3(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d records, claim commits", n), func(t *testing.T) {
			b, id, tx, a := raceClaim(t, n)
			b.commit(tx)
			a.wantError(isFenced)
			b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2))
		})
		t.Run(fmt.Sprintf("%d records, claim rolls back", n), func(t *testing.T) {
			b, id, tx, a := raceClaim(t, n)
			if err := tx.Rollback(b.ctx); err != nil {
				t.Fatal(err)
			}
			a.wantSeqs(2)
			if got := b.log(id); len(got) != n+1 {
				t.Errorf("log has %s", describe(got))
			}
		})
	}
}

func raceClaim(t *testing.T, n int) (*bundle, runlog.RunID, pgx.Tx, *appending) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	tx := b.begin()
	b.claim(tx, id, 2)
	var late [][]byte
	for i := range n {
		late = append(late, node(t, fmt.Sprintf("late-%d", i), 1))
	}
	a := b.appendAll(tail, late...)
	b.blockedOn(tx, 1)
	return b, id, tx, a
}

// The other order: the flush is in the log, its transaction open, when the claim comes. The claim waits, finds
// its seq taken and takes the next; nothing of the flush is lost.
func TestAppend_FlushRacesClaim_G1(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	// Stop the flush behind its insert of the first run: a second run of the same batch is held up.
	blocker := b.newRun()
	if blocker.String() < id.String() {
		t.Fatal("ids are not in the order of their making")
	}
	blocked := b.open(w, blocker, 1)
	tx := b.begin()
	b.claim(tx, blocker, 2)
	// Both runs in one batch: queued while the only flusher is busy.
	one := b.writer(func(cfg *runlog.WriterConfig) { cfg.Flushers = 1 })
	gate := b.begin()
	stopper := b.newRun()
	stop := b.open(one, stopper, 1)
	b.claim(gate, stopper, 2)
	first := b.appendAll(stop, node(t, "stop", 1))
	b.blockedOn(gate, 1)
	tail = one.Open(id, 1, 1, 1)
	blocked = one.Open(blocker, 1, 1, 1)
	a := b.appendAll(tail, node(t, "a", 1), node(t, "b", 1))
	late := b.appendAll(blocked, node(t, "late", 1))
	b.commit(gate)
	first.wantError(isFenced)
	b.blockedOn(tx, 1)

	claimed := make(chan error, 1)
	go func() {
		_, err := b.pool.Exec(b.ctx, `insert into pgexec.run_log (run_id, seq, record) values ($1, 2, $2)`, id, claimRecord(t, 3, 2))
		claimed <- err
	}()
	b.commit(tx)
	late.wantError(isFenced)
	a.wantSeqs(2)
	if err := await(b, claimed, "claim"); err == nil {
		t.Error("a claim took the seq of a committed append")
	}
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
}
