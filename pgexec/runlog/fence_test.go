package runlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// G3: two tails of one run in one batch, of a former claim and of the current one: each gets its own answer.
func TestAppend_FormerAndCurrentClaimInOneBatch_G3(t *testing.T) {
	b := setup(t)
	w, gate := b.gatedWriter(nil)
	var former, current []*appending
	var ids []runlog.RunID
	for range 4 {
		id := b.newRun()
		first := b.open(w, id, 1)
		b.claim(b.pool, id, 2)
		again := b.open(w, id, 1)
		ids = append(ids, id)
		if len(ids)%2 == 0 {
			current = append(current, b.appendAll(again, node(t, "a", 1), node(t, "b", 1)))
			former = append(former, b.appendAll(first, node(t, "late", 1)))
		} else {
			former = append(former, b.appendAll(first, node(t, "late", 1)))
			current = append(current, b.appendAll(again, node(t, "a", 1), node(t, "b", 1)))
		}
	}
	gate()
	for i, id := range ids {
		former[i].wantError(isFenced)
		current[i].wantSeqs(4)
		b.wantLog(id, claimRecord(t, 1, 1), claimRecord(t, 2, 2), claimRecord(t, 1, 3), node(t, "a", 1), node(t, "b", 1))
	}
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

// The other order: the flush's rows are in, its transaction is still open, when the claim comes. The claim's seq
// is taken once the flush has committed; nothing of the flush is lost.
func TestAppend_FlushRacesClaim_G1(t *testing.T) {
	b := setup(t)
	w, gate := b.gatedWriter(nil)
	id, last := b.newRun(), b.newRun()
	tail, lastTail := b.open(w, id, 1), b.open(w, last, 1)
	hold := b.begin()
	b.claim(hold, last, 2)
	a := b.appendAll(tail, node(t, "a", 1), node(t, "b", 1))
	late := b.appendAll(lastTail, node(t, "late", 1))
	gate()
	b.blockedOn(hold, 1)

	claimed := make(chan error, 1)
	go func() {
		_, err := b.pool.Exec(b.ctx, `insert into pgexec.run_log (run_id, seq, record) values ($1, 2, $2)`, id, claimRecord(t, 3, 2))
		claimed <- err
	}()
	b.commit(hold)
	late.wantError(isFenced)
	a.wantSeqs(2)
	if err := await(b, claimed, "claim"); err == nil {
		t.Error("a claim took the seq of a committed append")
	}
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
}

// G2: a failover has lost the newest commits. The owner's head is gone; writing behind it would leave a hole.
func TestAppend_LostHeadWritesNothing_G2(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := setup(t)
			w := b.writer(nil)
			id := b.newRun()
			tail := b.open(w, id, 1)
			b.appendAll(tail, node(t, "a", 1), node(t, "b", 1)).wantSeqs(2)
			b.exec(`delete from pgexec.run_log where run_id = $1 and seq = 3`, id)

			var more [][]byte
			for i := range n {
				more = append(more, node(t, fmt.Sprintf("c-%d", i), 1))
			}
			b.appendAll(tail, more...).wantError(isFenced)
			b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1))
		})
	}
}

// One run's refusal or fault leaves the others of its batch alone: among many good runs are some that a claim has
// fenced and one whose record the database does not take.
func TestAppend_OneBadRunLeavesTheOthers(t *testing.T) {
	b := setup(t)
	b.exec(`alter table pgexec.run_log add constraint no_poison check (record <> '\xbad0')`)
	w, gate := b.gatedWriter(nil)
	var good, fenced, bad []*appending
	var goodIDs []runlog.RunID
	for i := range 30 {
		id := b.newRun()
		tail := b.open(w, id, 1)
		switch i % 10 {
		case 3:
			b.claim(b.pool, id, 2)
			fenced = append(fenced, b.appendAll(tail, node(t, "late", 1), node(t, "later", 1)))
		case 7:
			bad = append(bad, b.appendAll(tail, []byte{0xba, 0xd0}, node(t, "never", 1)))
		default:
			good = append(good, b.appendAll(tail, node(t, "a", 1), node(t, "b", 1)))
			goodIDs = append(goodIDs, id)
		}
	}
	gate()
	for i, a := range good {
		a.wantSeqs(2)
		b.wantLog(goodIDs[i], claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
	}
	for _, a := range fenced {
		a.wantError(isFenced)
	}
	for _, a := range bad {
		a.wantError(func(err error) bool {
			var pgErr *pgconn.PgError
			return errors.As(err, &pgErr) && pgErr.ConstraintName == "no_poison"
		})
	}
}
