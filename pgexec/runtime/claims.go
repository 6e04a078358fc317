package runtime

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
)

const (
	// maxClaimBatch bounds the runs claimed in one transaction.
	maxClaimBatch = 256
	// slotWait is how long a wake waits for room on a full replica before it
	// goes back to the queue, where a replica with room can take it.
	slotWait = 500 * time.Millisecond
	// claimTimeout bounds one claiming transaction, and one poll: neither waits for locks.
	claimTimeout = 10 * time.Second
	// pollInterval is the time between two looks at the rows of all owned runs:
	// for news of which the notification was lost, and for runs that the
	// database says are ours and memory does not know.
	pollInterval = 500 * time.Millisecond
)

// claimLoop turns wakes into claims. One goroutine makes all claims of the
// replica, many runs in one transaction: while one is in progress the next
// gathers. The poll runs in the same goroutine, so that it never sees a claim
// half made.
type claimLoop struct {
	inc      *incarnation
	claimer  *ownership.Claimer
	requests chan claimRequest
	slots    chan struct{}
	hot      *hotSet
	// strayBefore is what the last poll found owned and not in memory.
	strayBefore []ownership.Held
}

type claimRequest struct {
	want   ownership.Want
	answer chan wake.Outcome
}

func newClaimLoop(inc *incarnation) *claimLoop {
	cfg := inc.rt.cfg
	return &claimLoop{
		inc: inc,
		claimer: ownership.NewClaimer(ownership.ClaimerConfig{
			Pool:      cfg.Pool,
			ReplicaID: inc.session.ID(),
			Info:      cfg.Info,
			Logger:    inc.log,
		}),
		requests: make(chan claimRequest),
		slots:    make(chan struct{}, cfg.Info.MaxHotRuns),
		hot:      newHotSet(),
	}
}

// wake is called by River's jobs, many at once. It returns when the claim has committed or was refused.
func (c *claimLoop) wake(ctx context.Context, w wake.Wake) wake.Outcome {
	if !c.takeSlot(ctx) {
		return wake.Again
	}
	req := claimRequest{
		want:   ownership.Want{RunID: w.RunID, WakeJob: w.JobID},
		answer: make(chan wake.Outcome, 1),
	}
	select {
	case c.requests <- req: // unbuffered: what the loop took, it answers
		return <-req.answer
	case <-ctx.Done():
	case <-c.inc.claimCtx.Done():
	}
	<-c.slots
	return wake.Again
}

func (c *claimLoop) takeSlot(ctx context.Context) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(slotWait/2 + rand.N(slotWait))
	defer t.Stop()
	select {
	case c.slots <- struct{}{}:
		return true
	case <-t.C:
	case <-ctx.Done():
	case <-c.inc.claimCtx.Done():
	}
	return false
}

// run is the one goroutine that claims.
func (c *claimLoop) run(ctx context.Context) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case req := <-c.requests:
			c.claim(ctx, c.gather(req))
		case <-poll.C:
			c.poll(ctx)
		}
	}
}

// gather takes what else is waiting. Several wakes of one run make one want.
func (c *claimLoop) gather(first claimRequest) map[runlog.RunID][]claimRequest {
	batch := map[runlog.RunID][]claimRequest{first.want.RunID: {first}}
	for len(batch) < maxClaimBatch {
		select {
		case req := <-c.requests:
			batch[req.want.RunID] = append(batch[req.want.RunID], req)
		default:
			return batch
		}
	}
	return batch
}

func (c *claimLoop) claim(ctx context.Context, batch map[runlog.RunID][]claimRequest) {
	wants := make([]ownership.Want, 0, len(batch))
	for _, requests := range batch {
		wants = append(wants, requests[0].want)
	}
	// A drain does not cut a claim in two; it releases what was claimed.
	claimCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	res, err := c.claimer.Claim(claimCtx, wants)
	if err != nil {
		c.inc.log.Warn("claim runs, trying again", "runs", len(wants), "error", err)
		for _, requests := range batch {
			c.answer(requests, wake.Again)
		}
		return
	}
	for _, claimed := range res.Claimed {
		requests := batch[claimed.RunID]
		delete(batch, claimed.RunID)
		c.start(claimed)
		requests[0].answer <- wake.Done
		c.answer(requests[1:], wake.Done)
	}
	for _, id := range res.Busy {
		c.answer(batch[id], wake.Again)
		delete(batch, id)
	}
	for _, requests := range batch {
		c.answer(requests, wake.Done)
	}
}

// answer tells wakes that they made no claim here.
func (c *claimLoop) answer(requests []claimRequest, outcome wake.Outcome) {
	for _, req := range requests {
		<-c.slots
		req.answer <- outcome
	}
}

// start hands a claimed run to its owner goroutine, with the slot its wake took.
func (c *claimLoop) start(claimed ownership.Claimed) {
	c.inc.log.Debug("run claimed", "run_id", claimed.RunID, "epoch", int64(claimed.Epoch))
	run := c.inc.exec.Open(claimed)
	c.hot.add(claimed.RunID, hotRun{epoch: claimed.Epoch, run: run})
	c.inc.rt.hot.Add(1)
	c.inc.runs.Go(func() {
		defer func() {
			c.hot.remove(claimed.RunID, claimed.Epoch)
			c.inc.rt.hot.Add(-1)
			<-c.slots
		}()
		run.Drive(c.inc.claimCtx, c.inc.workCtx)
	})
}

// poll tells hot runs what their rows say of their inboxes, and those whose rows say that they are not ours. It also releases
// runs that the database says are ours but that are not in memory: a claim
// whose answer was lost, a run whose release failed. One that somebody else has
// locked is left to the next poll: no run is claimed while this one waits.
func (c *claimLoop) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	owned, err := ownership.Owned(ctx, c.inc.rt.cfg.Pool, c.inc.session.ID())
	if err != nil {
		return // the session or the next poll will tell
	}
	// A run that has just ended may be in the one and not in the other: only what two polls find is stray.
	found := c.hot.tell(owned)
	stray := slices.DeleteFunc(slices.Clone(found), func(h ownership.Held) bool {
		return !slices.ContainsFunc(c.strayBefore, func(b ownership.Held) bool { return b.RunID == h.RunID && b.Epoch == h.Epoch })
	})
	c.strayBefore = found
	if len(stray) == 0 {
		return
	}
	released, err := ownership.TryRelease(ctx, c.inc.rt.cfg.Pool, c.inc.session.ID(), stray, nil)
	switch {
	case err != nil:
		c.inc.log.Warn("release runs that are owned but not in memory", "runs", len(stray), "error", err)
	case released.Locked < len(stray):
		c.inc.writer.TellQueues(released.Queues)
		c.inc.log.Warn("released runs that were owned but not in memory", "runs", len(stray)-released.Locked)
	}
}
