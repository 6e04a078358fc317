package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func TestClaim_NewRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()

	got := b.claim(b.claimer(s), w, "claimed")

	if got.RunID != w.RunID || got.Kind != "k" || string(got.Input) != `{"x": 1}` || got.Epoch != 1 ||
		got.Head != 1 || !got.Fresh || got.DeadReplicaID != 0 || got.Priority != 2 || got.CreatedAt.IsZero() {
		t.Errorf("claimed %+v", got)
	}
	claim := got.Record.GetClaim()
	if claim.GetReplicaId() != int32(s.ID()) || claim.GetEpoch() != 1 || claim.GetHost() != "here" || claim.GetAtUs() == 0 {
		t.Errorf("record %v", got.Record)
	}
	raw, err := runlog.Encode(got.Record)
	if err != nil {
		t.Fatal(err)
	}
	if !value[bool](b, `select record = $2 from pgexec.run_log where run_id = $1 and seq = 1`, w.RunID, raw) {
		t.Error("the log's first record is not the claim that was returned")
	}
	if !value[bool](b, `select started_at is not null from pgexec.runs where run_id = $1`, w.RunID) {
		t.Error("started_at is not set")
	}
	b.wantRun(w.RunID, running(s, 1))
	b.wantJob(w.WakeJob, "completed")
}

// C01, C02: a run whose owner lives is not claimed, neither by the owner itself
// nor by somebody who acts on a stale list; the wake is used up all the same.
func TestClaim_RunOfALivingOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, other := b.open(), b.open()
	w := b.start()
	b.claim(b.claimer(owner), w, "claimed")

	for _, s := range []*ownership.Session{owner, other} {
		again := ownership.Want{RunID: w.RunID, WakeJob: b.strayJob(w.RunID)}
		b.claim(b.claimer(s), again, "settled")
		b.wantJob(again.WakeJob, "completed")
	}
	b.wantRun(w.RunID, running(owner, 1))
}

// strayJob adds a second wake job, such as a repeated delivery, that the run does not know of.
func (b *bundle) strayJob(id runlog.RunID) int64 {
	b.t.Helper()
	return value[int64](b, `insert into pgexec.river_job (args, kind, max_attempts, state, attempt, attempted_by, attempted_at)
		values (jsonb_build_object('run_id', $1::uuid), 'pgexec_wake', 25, 'running', 1, '{pgexec-1}', now()) returning id`, id)
}

// C02: many replicas claim the same runs at the same time, and each run is
// claimed by exactly one of them.
func TestClaim_ManyReplicasAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wants := b.startMany(100)
	var mu sync.Mutex
	claimedBy := make(map[runlog.RunID][]runlog.ReplicaID)
	var all sync.WaitGroup
	for range 4 {
		s := b.open()
		c := b.claimer(s)
		all.Go(func() {
			left := wants
			for len(left) > 0 {
				res, err := c.Claim(b.ctx, left)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range res.Claimed {
					claimedBy[r.RunID] = append(claimedBy[r.RunID], s.ID())
				}
				mu.Unlock()
				left = nil
				for _, id := range res.Busy {
					left = append(left, ownership.Want{RunID: id})
				}
			}
		})
	}
	all.Wait()
	for _, w := range wants {
		if n := len(claimedBy[w.RunID]); n != 1 {
			t.Errorf("run %s was claimed %d times", w.RunID, n)
		}
	}
	if n := value[int](b, `select count(*) from pgexec.run_log`); n != len(wants) {
		t.Errorf("%d claim records for %d runs", n, len(wants))
	}
}

// A run wanted twice in one call is claimed once, and both jobs are used up.
func TestClaim_WantedTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	w := b.start()
	twin := ownership.Want{RunID: w.RunID, WakeJob: b.strayJob(w.RunID)}

	res, err := b.claimer(s).Claim(b.ctx, []ownership.Want{w, twin})
	if err != nil || len(res.Claimed) != 1 || len(res.Busy) != 0 {
		t.Fatalf("result %+v, error %v", res, err)
	}
	b.wantJob(w.WakeJob, "completed")
	b.wantJob(twin.WakeJob, "completed")
	b.wantRun(w.RunID, running(s, 1))
}

// A dead owner's run is claimed at once, without waiting for a finder, and the
// claim record says who died.
func TestClaim_RunOfADeadOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.open(), b.open()
	w := b.start()
	b.claim(b.claimer(first), w, "claimed")
	b.terminate(first)

	got := b.claim(b.claimer(second), ownership.Want{RunID: w.RunID}, "claimed")

	if got.DeadReplicaID != first.ID() || got.Epoch != 2 || got.Head != 2 || got.Fresh {
		t.Errorf("claimed %+v", got)
	}
	b.wantRun(w.RunID, running(second, 2))
}

// C03: nothing of a run that has ended is touched; its late wake is used up.
func TestClaim_FinishedRun(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"paused", "succeeded", "failed", "cancelled"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.open()
			w := b.start()
			b.exec(`update pgexec.runs set status = $2 where run_id = $1`, w.RunID, status)
			b.claim(b.claimer(s), w, "settled")
			b.wantJob(w.WakeJob, "completed")
			// A paused run can be resumed: the used-up wake must not stand in the way of a new one.
			b.wantRun(w.RunID, status+" owner - epoch 0 wake - orphaned by -")
		})
	}
}

func TestClaim_GoneRunAndGoneJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	gone := ownership.Want{RunID: runlog.RunID{15: 1}}
	gone.WakeJob = b.strayJob(gone.RunID)
	b.claim(b.claimer(s), gone, "settled")
	b.wantJob(gone.WakeJob, "completed")

	w := b.start()
	b.exec(`delete from pgexec.river_job where id = $1`, w.WakeJob)
	b.claim(b.claimer(s), w, "claimed")
}

// A run that cannot be claimed yet, or not here, loses the wake that found it,
// so that the next reason to look at it can make a new one.
func TestClaim_NotDueOrOtherKinds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"not due":            `update pgexec.runs set run_at = now() + interval '1 hour' where run_id = $1`,
		"waits for kinds":    `update pgexec.runs set waiting_kinds = '{other}' where run_id = $1`,
		"parked without due": `update pgexec.runs set status = 'parked', wake_job = null, run_at = now() + interval '1 hour' where run_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.open()
			w := b.start()
			b.exec(change, w.RunID)
			b.claim(b.claimer(s), w, "settled")
			b.wantJob(w.WakeJob, "completed")
			if n := value[int](b, `select count(*) from pgexec.runs where wake_job is not null or owner is not null`); n != 0 {
				t.Errorf("the run is %s", b.run(w.RunID))
			}
		})
	}
}

func TestClaim_ParkedAndFittingKinds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"parked and due": `update pgexec.runs set status = 'parked' where run_id = $1`,
		// A signal wakes a parked run before its time.
		"parked and woken": `update pgexec.runs set status = 'parked', run_at = now() + interval '1 hour' where run_id = $1`,
		"kind fits":        `update pgexec.runs set waiting_kinds = '{other,k}' where run_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.open()
			w := b.start()
			b.exec(change, w.RunID)
			b.claim(b.claimer(s), w, "claimed")
			if n := value[int](b, `select count(*) from pgexec.runs where waiting_kinds is not null`); n != 0 {
				t.Error("waiting_kinds is still set")
			}
			b.wantRun(w.RunID, running(s, 1))
		})
	}
}

// C34: a row that another session has locked is not waited for.
func TestClaim_LockedRowIsBusy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	locked, free := b.start(), b.start()
	tx, err := b.pool.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.ctx, `select from pgexec.runs where run_id = $1 for update`, locked.RunID); err != nil {
		t.Fatal(err)
	}

	res, err := b.claimer(s).Claim(b.ctx, []ownership.Want{locked, free})
	if err != nil || len(res.Claimed) != 1 || res.Claimed[0].RunID != free.RunID || len(res.Busy) != 1 || res.Busy[0] != locked.RunID {
		t.Fatalf("result %+v, error %v", res, err)
	}
	b.wantJob(locked.WakeJob, "available")
	b.wantJob(free.WakeJob, "completed")
}

// A replica that has been declared dead claims nothing more: its row is gone.
func TestClaim_AfterBurial(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := b.open()
	c := b.claimer(dead)
	w := b.start()
	b.terminate(dead)
	b.buryOne(b.finder())

	_, err := c.Claim(b.ctx, []ownership.Want{w})
	if !errors.Is(err, ownership.ErrSessionLost) {
		t.Fatalf("error %v, want ErrSessionLost", err)
	}
	b.wantJob(w.WakeJob, "available")
	b.wantRun(w.RunID, "queued owner - epoch 0 wake yes orphaned by -")
}

// G3: former owners that append as fast as they can, while the run is claimed
// away from them, never leave a record behind a claim.
func TestClaim_RacingAppendsLeaveCleanLogs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.start()
	finder := b.finder()
	var appenders sync.WaitGroup
	for epoch := 1; epoch <= 15; epoch++ {
		s := b.open()
		got := b.claim(b.claimer(s), w, "claimed")
		writer := runlog.NewWriter(runlog.WriterConfig{Pool: b.pool, Logger: b.log()})
		confirmed := make(chan struct{}, 3)
		appenders.Go(func() {
			defer writer.Close()
			b.appendUntilFenced(writer.Open(w.RunID, s.ID(), got.Epoch, got.Head), s.ID(), got.Epoch, confirmed)
		})
		for range cap(confirmed) {
			<-confirmed
		}
		b.terminate(s) // the appends go on through the pool
		b.buryOne(finder)
		w.WakeJob = value[int64](b, `select wake_job from pgexec.runs where run_id = $1`, w.RunID)
	}
	appenders.Wait()
	if claims := b.checkLog(w.RunID); claims != 15 {
		t.Errorf("%d claims, want 15", claims)
	}
}

// appendUntilFenced appends nodes one after another and announces the first few.
func (b *bundle) appendUntilFenced(tail *runlog.Tail, id runlog.ReplicaID, epoch runlog.Epoch, confirmed chan<- struct{}) {
	for n := 1; ; n++ {
		done := make(chan error, 1)
		tail.Append(b.nodeRecord(id, fmt.Sprintf("e%d-%d", epoch, n)), func(_ runlog.Seq, err error) { done <- err })
		if err := <-done; err != nil {
			if !errors.Is(err, runlog.ErrFenced) {
				b.t.Errorf("append: %v", err)
			}
			return
		}
		select {
		case confirmed <- struct{}{}:
		default:
		}
	}
}

func (b *bundle) nodeRecord(id runlog.ReplicaID, node string) []byte {
	raw, err := runlog.Encode(&pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: node, Kind: "k", Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED, Attempt: 1, ReplicaId: int32(id),
	}}})
	if err != nil {
		b.t.Error(err)
	}
	return raw
}

// checkLog fails unless the log is a clean prefix: seq 1…n, each node once,
// epochs that only grow, and no record of anybody but the last claim's replica.
// It returns the number of claims.
func (b *bundle) checkLog(id runlog.RunID) (claims int) {
	b.t.Helper()
	var owner int32
	var epoch int64
	nodes := make(map[string]bool)
	err := runlog.Read(b.ctx, b.pool, id, 0, func(seq runlog.Seq, rec *pb.Record) error {
		switch body := rec.GetBody().(type) {
		case *pb.Record_Claim:
			claims++
			if body.Claim.GetEpoch() <= epoch {
				return fmt.Errorf("record %d: claim with epoch %d after epoch %d", seq, body.Claim.GetEpoch(), epoch)
			}
			owner, epoch = body.Claim.GetReplicaId(), body.Claim.GetEpoch()
		case *pb.Record_Node:
			if nodes[body.Node.GetId()] {
				return fmt.Errorf("record %d: node %s is recorded twice", seq, body.Node.GetId())
			}
			nodes[body.Node.GetId()] = true
			if body.Node.GetReplicaId() != owner {
				return fmt.Errorf("record %d: by replica %d, after a claim of %d", seq, body.Node.GetReplicaId(), owner)
			}
		}
		return nil
	})
	if err != nil {
		b.t.Errorf("run %s: %v", id, err)
	}
	return claims
}

// A claim of many runs has a bounded answer, however large their inputs are: what is not small stays where it is (C22).
func TestClaim_InputThatIsNotSmallStaysInTheTable_C22(t *testing.T) {
	b := setup(t)
	wants := b.startMany(4)
	inputs := []string{`'{"n": 1}'::jsonb`, `to_jsonb(repeat('x', 100000))`, `jsonb_agg('1e100000'::jsonb) from generate_series(1, 20)`, `'null'::jsonb`}
	for i, input := range inputs {
		b.exec(`update pgexec.runs set input = (select `+input+`) where run_id = $1`, wants[i].RunID)
	}
	s := b.open()
	res, err := b.claimer(s).Claim(t.Context(), wants)
	if err != nil || len(res.Claimed) != len(wants) {
		t.Fatal(res, err)
	}
	for _, c := range res.Claimed {
		i := slices.IndexFunc(wants, func(w ownership.Want) bool { return w.RunID == c.RunID })
		if want := []string{`{"n": 1}`, "", "", "null"}[i]; string(c.Input) != want || c.InputApart != (want == "") {
			t.Errorf("run %d: input of %d bytes, apart: %t", i, len(c.Input), c.InputApart)
		}
	}
}
