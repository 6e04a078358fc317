package runtime

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pgexec/runtime/pgexec/executor"
	"github.com/pgexec/runtime/pgexec/feed"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/throttle"
	"github.com/pgexec/runtime/pgexec/usage"
	"github.com/pgexec/runtime/pgexec/wake"
)

const (
	// notifyInterval is the least time between two notifying transactions of a replica.
	notifyInterval = 5 * time.Millisecond
	// maxWakes bounds the wakes of a queue that a replica holds at once: few, so
	// that a burst of runs spreads over the replicas, and enough for some
	// thousand claims a second.
	maxWakes = 16
	// closeTimeout bounds each step of giving things back at the end.
	closeTimeout = 5 * time.Second
	// recordTimeout is how long after the grace deadline what was cut off may be recorded: a little of what the platform
	// leaves until it kills.
	recordTimeout = 2 * time.Second
)

// incarnation is the time of one session: one replica id, one advisory lock.
// Nothing in memory outlives it.
type incarnation struct {
	rt       *Runtime
	log      *slog.Logger
	session  *ownership.Session
	writer   *runlog.Writer
	notifier *feed.Notifier
	tasks    *wake.Tasks
	throttle *throttle.Throttle
	usage    *usage.Reporter
	exec     *executor.Executor
	claims   *claimLoop

	// claimCtx ends when no more work may be taken, workCtx when all work must stop, with the cause.
	claimCtx, workCtx context.Context
	stopClaims        context.CancelFunc
	stopWork          context.CancelCauseFunc
	runs              sync.WaitGroup
	background        sync.WaitGroup
}

func newIncarnation(rt *Runtime, session *ownership.Session) *incarnation {
	cfg := rt.cfg
	log := cfg.Logger.With("replica_id", int32(session.ID()))
	inc := &incarnation{rt: rt, log: log, session: session}
	inc.workCtx, inc.stopWork = context.WithCancelCause(context.Background())
	inc.claimCtx, inc.stopClaims = context.WithCancel(inc.workCtx)
	inc.notifier = feed.NewNotifier(cfg.Pool, notifyInterval, log)
	inc.writer = runlog.NewWriter(runlog.WriterConfig{
		Pool:          cfg.Pool,
		Conn:          cfg.SessionConn,
		ReplicaID:     session.ID(),
		CommittedFunc: inc.notifier.Committed,
		Logger:        log,
	})
	inc.tasks = wake.NewTasks(cfg.Pool, log)
	inc.throttle = throttle.New(throttle.Config{
		Pool:      cfg.Pool,
		ReplicaID: session.ID(),
		Declared:  declaredLimits(cfg.Kinds),
		CapFunc:   func(kind string) int { return maxParallel(cfg.Kinds, kind) },
		WokeFunc:  inc.writer.TellAllQueues,
		Logger:    log,
	})
	inc.usage = usage.New(cfg.Pool, session.ID(), log)
	inc.exec = executor.New(executor.Config{
		Pool:              cfg.Pool,
		Writer:            inc.writer,
		Throttle:          inc.throttle,
		Usage:             inc.usage,
		ReplicaID:         session.ID(),
		Kinds:             cfg.Kinds,
		Tasks:             inc.tasks,
		MaxParallelPerRun: cfg.MaxParallelPerRun,
		MaxParallel:       cfg.MaxParallel,
		PoisonAfter:       cfg.PoisonAfter,
		Linger:            cfg.Linger,
		Blobs:             cfg.Blobs,
		InlineLimit:       cfg.InlineLimit,
		NowFunc:           session.Now,
		Logger:            log,
	})
	inc.claims = newClaimLoop(inc)
	rt.hotSet.Store(inc.claims.hot)
	return inc
}

func declaredLimits(kinds map[string]*executor.Kind) map[string]throttle.Limit {
	declared := make(map[string]throttle.Limit)
	for name, k := range kinds {
		if k.Limit != nil {
			declared[name] = *k.Limit
		}
	}
	return declared
}

func maxParallel(kinds map[string]*executor.Kind, kind string) int {
	if k := kinds[kind]; k != nil {
		return k.MaxParallel
	}
	return 0
}

// serve runs the loops until ctx is done (drain) or the session is lost.
func (inc *incarnation) serve(ctx context.Context) {
	cfg := inc.rt.cfg
	inc.notifier.Start()
	inc.usage.Start()
	inc.background.Go(func() { inc.claims.run(inc.claimCtx) })
	inc.background.Go(func() { inc.tasks.Run(inc.claimCtx) })
	finder := ownership.NewFinder(ownership.FinderConfig{
		Pool:       cfg.Pool,
		ReplicaID:  inc.session.ID(),
		BuriedFunc: func(b ownership.Buried) { inc.writer.TellQueues(b.Queues) },
		Logger:     inc.log,
	})
	inc.background.Go(func() { finder.Run(inc.claimCtx) })
	inc.background.Go(func() { cfg.Blobs.RunCollector(inc.claimCtx, inc.log) })

	waker, err := wake.New(wake.Config{
		Pool:        cfg.Pool,
		ReplicaID:   inc.session.ID(),
		Queues:      cfg.Info.Queues,
		Kinds:       cfg.Info.Kinds,
		WakeFunc:    inc.claims.wake,
		WokeFunc:    inc.writer.TellQueues,
		MaxParallel: maxWakes,
		Logger:      inc.log,
	})
	if err == nil {
		err = inc.throttle.Start(ctx) // before anything can be claimed
	}
	if err == nil {
		err = waker.Start(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			inc.log.Error("start wakes", "error", err)
			inc.pause(ctx, time.Second)
		}
	} else {
		inc.rt.state.CompareAndSwap(int32(StateStarting), int32(StateReady))
		inc.log.Info("replica is ready", "queues", cfg.Info.Queues, "kinds", cfg.Info.Kinds)
		select {
		case <-ctx.Done():
		case <-inc.session.Lost():
		}
	}
	if lost := inc.session.Err(); lost != nil {
		inc.log.Warn("replica session lost: all runs are dropped, starting again with a new id", "error", lost)
		inc.abandon(waker)
		return
	}
	if ctx.Err() != nil {
		inc.rt.noLongerReady()
	}
	inc.drain(waker)
}

// pause waits d, or less if the incarnation has to end.
func (inc *incarnation) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-inc.session.Lost():
	case <-t.C:
	}
}

// abandon drops everything: another replica may own the runs already.
func (inc *incarnation) abandon(waker *wake.Waker) {
	inc.stopWork(executor.ErrOwnershipLost)
	inc.writer.Abort()
	inc.stopWaker(waker)
	inc.background.Wait()
	inc.runs.Wait()
	inc.throttle.Stop()
	inc.usage.Abort()
	inc.notifier.Stop()
	inc.closeSession()
}

// drain hands all runs over, after readiness has failed. Claims stop first; each run is released by its own owner
// goroutine as soon as it can be; at the grace deadline the rest is cancelled, and soon after nothing is waited for.
// The database pool is the caller's and closes after this.
func (inc *incarnation) drain(waker *wake.Waker) {
	started := time.Now()
	inc.log.Info("draining", "hot_runs", inc.rt.HotRuns(), "grace", inc.rt.cfg.Grace)
	if waker != nil {
		waker.LeaveToOthers()
	}
	inc.stopClaims()
	drained := make(chan struct{})
	defer close(drained)
	go inc.boundDrain(drained)
	inc.background.Go(func() { inc.stopWaker(waker) }) // at once: what it still fetches others have to wait for
	if err := inc.withTimeout(inc.session.SetDraining); err != nil {
		inc.log.Warn("mark replica as draining", "error", err)
	}
	inc.background.Wait()
	inc.runs.Wait()
	inc.throttle.Stop()
	inc.usage.Close()
	inc.writer.Close()
	inc.notifier.Stop()
	inc.closeSession()
	inc.stopWork(executor.ErrDraining)
	inc.log.Info("drained", "took", time.Since(started))
}

// boundDrain sees to it that a drain ends: at the grace deadline work stops, and what cannot be recorded within recordTimeout
// of that is left to the next owner. A session lost in mid-drain ends it at once: others own the runs soon.
func (inc *incarnation) boundDrain(drained <-chan struct{}) {
	deadline := time.NewTimer(inc.rt.cfg.Grace)
	defer deadline.Stop()
	var last <-chan time.Time
	for {
		select {
		case <-drained:
			return
		case <-deadline.C:
			inc.stopWork(executor.ErrDraining)
			last = time.After(recordTimeout)
		case <-last:
			inc.log.Warn("the grace time is over: what is not recorded yet is left to the next owners")
			inc.writer.Abort()
			return
		case <-inc.session.Lost():
			inc.stopWork(executor.ErrOwnershipLost)
			inc.writer.Abort()
			return
		}
	}
}

func (inc *incarnation) stopWaker(waker *wake.Waker) {
	if waker == nil {
		return
	}
	if err := inc.withTimeout(waker.Stop); err != nil {
		inc.log.Warn("stop wakes", "error", err)
	}
}

func (inc *incarnation) closeSession() {
	if err := inc.withTimeout(inc.session.Close); err != nil {
		inc.log.Warn("close replica session", "error", err)
	}
}

func (inc *incarnation) withTimeout(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return f(ctx)
}
