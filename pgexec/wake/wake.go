package wake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// schemaName is where River's tables live, beside pgexec's own.
const schemaName = "pgexec"

// Wake asks for a look at one run.
type Wake struct {
	RunID runlog.RunID
	// JobID is the River job behind this wake; the claim completes it.
	JobID int64
}

// Outcome is what became of a wake.
type Outcome int

const (
	// Done means that the wake is used up: the claim's transaction completed
	// its job, or the run needs no look any more.
	Done Outcome = iota
	// Again means that the run is to be looked at again soon, here or by
	// another replica.
	Again
)

// Config configures a Waker.
type Config struct {
	// Pool runs all statements, River's included. For LISTEN River takes a
	// connection out of it for good, so that there is one more than the pool's
	// limit. Required.
	Pool *pgxpool.Pool
	// ReplicaID names this process in river_job.attempted_by, as
	// "pgexec-<id>". Its pgexec.replicas row must exist before Start and until
	// Stop has returned. Required.
	ReplicaID runlog.ReplicaID
	// Queues whose wakes are taken. Defaults to "default".
	Queues []string
	// Kinds this replica has a handler for: runs that wait for one of them are woken.
	Kinds []string
	// WakeFunc looks at a run. It is called from up to MaxParallel goroutines
	// for each queue, possibly twice for the same wake. It may block for a
	// second or so while there is no room for another run, then answers Again.
	// Its context ends when Stop gives up waiting. Required.
	WakeFunc func(ctx context.Context, w Wake) Outcome
	// WokeFunc is called when runs have been woken that nobody is told of yet, with their queues, if any. It must not
	// block. By default nobody is told: they are found by polling.
	WokeFunc func(queues []string)
	// MaxParallel bounds the calls of WakeFunc in progress for each queue. Defaults to 64.
	MaxParallel int
	// Logger defaults to slog.Default(). River's own messages below warning are dropped.
	Logger *slog.Logger

	// AgainAfter is how long a wake rests after Again, plus up to half of it as
	// jitter. Defaults to 100 ms.
	AgainAfter time.Duration
	// PollInterval bounds how long a wake waits when its notification is lost. Defaults to 1 s.
	PollInterval time.Duration
	// TimerInterval bounds how late a new run's near run_at is noticed. Defaults to 500 ms.
	TimerInterval time.Duration
	// SweepInterval is the time between sweeps, plus up to a fifth of it as jitter. Defaults to 2 s.
	SweepInterval time.Duration
	// LostAfter is how long a job fetched by this replica may be unknown to it
	// before the sweep replaces it. Defaults to 10 s.
	LostAfter time.Duration
	// HousekeepingInterval is the time between looks for missing partitions. Defaults to 1 h.
	HousekeepingInterval time.Duration
	// LeaderElectionDisabled keeps this process from being River's leader,
	// whose only task here is to remove finished jobs.
	LeaderElectionDisabled bool
}

// maxQueueName is River's own bound.
const maxQueueName = 128

var queueName = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

func (c Config) withDefaults() Config {
	if len(c.Queues) == 0 {
		c.Queues = []string{river.QueueDefault}
	}
	if c.MaxParallel == 0 {
		c.MaxParallel = 64
	}
	if c.WokeFunc == nil {
		c.WokeFunc = func([]string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, d := range []struct {
		field  *time.Duration
		normal time.Duration
	}{
		{&c.AgainAfter, 100 * time.Millisecond},
		{&c.PollInterval, time.Second},
		{&c.TimerInterval, 500 * time.Millisecond},
		{&c.SweepInterval, 2 * time.Second},
		{&c.LostAfter, 10 * time.Second},
		{&c.HousekeepingInterval, time.Hour},
	} {
		if *d.field <= 0 {
			*d.field = d.normal
		}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Pool == nil:
		return errors.New("wake: Pool is missing")
	case c.WakeFunc == nil:
		return errors.New("wake: WakeFunc is missing")
	case c.ReplicaID <= 0:
		return fmt.Errorf("wake: ReplicaID %d is not positive", c.ReplicaID)
	case c.MaxParallel < 1 || c.MaxParallel > river.QueueNumWorkersMax:
		return fmt.Errorf("wake: MaxParallel %d is not within 1 and %d", c.MaxParallel, river.QueueNumWorkersMax)
	}
	if err := CheckQueues(c.Queues); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	return nil
}

// CheckQueues says which of some names cannot be that of a queue.
func CheckQueues(names []string) error {
	for _, q := range names {
		if !queueName.MatchString(q) || len(q) >= maxQueueName {
			return fmt.Errorf("queue %q: want lower-case words joined by - or _, of less than %d bytes", q, maxQueueName)
		}
	}
	return nil
}

// Waker delivers wakes to WakeFunc until it is stopped. It is started once; a
// replica that has lost its session makes a new one under its new id.
type Waker struct {
	cfg     Config
	client  *river.Client[pgx.Tx]
	clock   dbClock
	current inProgress
	// rested holds a token while a wake that ended with Again is to be fetched again.
	rested chan struct{}
	// draining is set once LeaveToOthers or Stop is called: wakes that end with Again do not rest any more.
	draining atomic.Bool
	handed   atomic.Bool

	mu        sync.Mutex
	startDone chan struct{}
	cancelRun context.CancelFunc
	endLoops  context.CancelFunc
	loops     sync.WaitGroup
}

// New returns a Waker that is not started yet. It does not use the database.
func New(cfg Config) (*Waker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Waker{cfg: cfg, rested: make(chan struct{}, 1), endLoops: func() {}}
	client, err := river.NewClient(riverpgxv5.New(cfg.Pool), w.riverConfig())
	if err != nil {
		return nil, fmt.Errorf("configure river: %w", err)
	}
	w.client = client
	return w, nil
}

// clientID is the name of a replica in river_job.attempted_by.
func clientID(id runlog.ReplicaID) string { return "pgexec-" + strconv.Itoa(int(id)) }

func (w *Waker) riverConfig() *river.Config {
	queues := make(map[string]river.QueueConfig, len(w.cfg.Queues))
	for _, q := range w.cfg.Queues {
		queues[q] = river.QueueConfig{MaxWorkers: w.cfg.MaxParallel}
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &wakeWorker{waker: w})
	return &river.Config{
		ID:                          clientID(w.cfg.ReplicaID),
		Schema:                      schemaName,
		Queues:                      queues,
		Workers:                     workers,
		Logger:                      slog.New(warnOnly{w.cfg.Logger.Handler()}),
		FetchCooldown:               5 * time.Millisecond,
		FetchPollInterval:           w.cfg.PollInterval,
		JobTimeout:                  time.Minute,
		CompletedJobRetentionPeriod: 10 * time.Minute,
		CancelledJobRetentionPeriod: 10 * time.Minute,
		DiscardedJobRetentionPeriod: 10 * time.Minute,
		LeaderElectionDisabled:      w.cfg.LeaderElectionDisabled,
		Test:                        river.TestConfig{Time: &w.clock},
	}
}

// Start begins to deliver wakes. ctx bounds the start only: when it ends
// during Start, what was started is stopped again and its error returned.
func (w *Waker) Start(ctx context.Context) error {
	runCtx, cancelRun := context.WithCancel(context.WithoutCancel(ctx))
	startDone := make(chan struct{})
	w.mu.Lock()
	again := w.startDone != nil || w.draining.Load()
	if !again {
		w.startDone, w.cancelRun = startDone, cancelRun
	}
	w.mu.Unlock()
	if again {
		cancelRun()
		return errors.New("start waker: it was started or stopped before")
	}
	defer close(startDone)

	release := context.AfterFunc(ctx, cancelRun)
	err := w.start(runCtx)
	if !release() {
		err = context.Cause(ctx)
	} else if err == nil {
		err = runCtx.Err() // Stop came meanwhile
	}
	if err != nil {
		cancelRun()
		w.endLoops()
		_ = w.client.StopAndCancel(context.WithoutCancel(ctx))
		w.loops.Wait()
		return fmt.Errorf("start waker: %w", err)
	}
	return nil
}

func (w *Waker) start(runCtx context.Context) error {
	// River reckons with the database's clock from its first job on.
	if _, err := w.wakeDue(runCtx); err != nil {
		return err
	}
	if err := w.client.Start(runCtx); err != nil {
		return fmt.Errorf("start river: %w", err)
	}
	loopCtx, endLoops := context.WithCancel(runCtx)
	w.endLoops = endLoops
	w.loops.Go(func() { w.runTimers(loopCtx) })
	w.loops.Go(func() { w.runSweeps(loopCtx) })
	w.loops.Go(func() { w.runNudges(loopCtx) })
	w.loops.Go(func() { w.runHousekeeping(loopCtx) })
	return nil
}

// LeaveToOthers says that Stop is about to be called, and that WakeFunc takes no run any more: from now on wakes that end with Again
// are at once free for other replicas, which Stop tells.
func (w *Waker) LeaveToOthers() { w.draining.Store(true) }

// Stop fetches no more wakes from the moment it is called, waits for the calls
// of WakeFunc in progress and for every goroutine of the Waker. When ctx ends
// first, the contexts of those calls are cancelled and an error is returned;
// Stop may then be called again. It may be called before, during or after
// Start, also a Start that failed.
func (w *Waker) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.draining.Store(true)
	startDone, cancelRun := w.startDone, w.cancelRun
	w.mu.Unlock()
	if startDone == nil {
		return nil
	}
	if !isClosed(startDone) {
		cancelRun()
	}
	select {
	case <-startDone:
	case <-ctx.Done():
		return fmt.Errorf("stop waker: %w", context.Cause(ctx))
	}
	w.endLoops()
	if err := w.client.Stop(ctx); err != nil {
		cancelRun()
		return fmt.Errorf("stop waker: %w", err)
	}
	w.loops.Wait()
	cancelRun()
	if w.handed.Load() {
		w.nudge(ctx)
	}
	return nil
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
