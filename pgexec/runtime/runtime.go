// Package runtime starts and stops the loops of one replica, in order: the
// session that proves it lives, the log's writer, the claims that River's jobs
// ask for, the executor, the search for the dead, and the drain.
//
// # Guarantees
//
//   - A replica whose session ends trusts nothing in memory: it cancels all
//     handlers, drops all runs and starts again with a new id:
//     TestRuntime_StartsAgainAfterItsSessionEnds.
//   - A drain hands each run over the moment its own last node in flight is
//     recorded: TestRuntime_DrainReleasesEachRunOnItsOwn.
//   - A replica never claims a run twice (C01): TestRuntime_DuplicateWakesAreHarmless.
//
// The package is internal to pgexec: no compatibility is promised.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/executor"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// Config configures a replica. Package pgexec documents and defaults the fields.
type Config struct {
	Pool *pgxpool.Pool
	// SessionConn connects straight to the server, not through a transaction-mode pooler.
	SessionConn       *pgx.ConnConfig
	Kinds             map[string]*executor.Kind
	Info              ownership.ReplicaInfo
	MaxParallelPerRun int
	MaxParallel       int
	PoisonAfter       int
	Grace             time.Duration
	Linger            time.Duration
	Blobs             *blob.Store
	InlineLimit       int
	Logger            *slog.Logger
}

// State is what a replica is doing, for a readiness probe.
type State int32

// A replica is ready between the moment its session is open and its loops
// run, and the first moment of a drain.
const (
	StateStarting State = iota
	StateReady
	StateDraining
	StateStopped
)

func (s State) String() string {
	return [...]string{"starting", "ready", "draining", "stopped"}[s]
}

// maxFormerIDs bounds how many of its sessions a process remembers: more than a run can lose one after another.
const maxFormerIDs = 100

// Runtime is one replica.
type Runtime struct {
	cfg   Config
	state atomic.Int32
	hot   atomic.Int64
	// hotSet is that of the current incarnation.
	hotSet atomic.Pointer[hotSet]
}

// New returns a replica that [Runtime.Run] starts.
func New(cfg Config) *Runtime { return &Runtime{cfg: cfg} }

// State returns what the replica is doing now.
func (r *Runtime) State() State { return State(r.state.Load()) }

// HotRuns returns how many runs are in memory now.
func (r *Runtime) HotRuns() int { return int(r.hot.Load()) }

// Run serves until ctx is done, then drains and returns nil. It returns an
// error only if the first session cannot be opened; later losses of the
// session or the database are retried for as long as ctx lives.
func (r *Runtime) Run(ctx context.Context) error {
	defer r.state.Store(int32(StateStopped))
	stop := context.AfterFunc(ctx, r.noLongerReady)
	defer stop()
	info := r.cfg.Info
	for first := true; ctx.Err() == nil; first = false {
		inc, err := r.open(ctx, info, first)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		inc.serve(ctx)
		if inc.session.Outlived() {
			info.FormerIDs = lastOf(append(info.FormerIDs, int32(inc.session.ID())), maxFormerIDs)
		}
		r.state.CompareAndSwap(int32(StateReady), int32(StateStarting))
	}
	return nil
}

// noLongerReady is called when the drain's context has ended, by whoever sees that first.
func (r *Runtime) noLongerReady() {
	for s := r.state.Load(); s < int32(StateDraining); s = r.state.Load() {
		r.state.CompareAndSwap(s, int32(StateDraining))
	}
}

// lastOf returns a copy of the last elements of a list, at most so many.
func lastOf[T any](list []T, most int) []T {
	return slices.Clone(list[max(len(list)-most, 0):])
}

// poke hands the news that the session heard to the runs in memory.
func (r *Runtime) poke(ids []runlog.RunID) {
	if hot := r.hotSet.Load(); hot != nil {
		hot.poke(ids)
	}
}

// open opens the session. Only a first failure is final: after that the
// database is known to have worked and is waited for.
func (r *Runtime) open(ctx context.Context, info ownership.ReplicaInfo, first bool) (*incarnation, error) {
	for backoff := 50 * time.Millisecond; ; backoff = min(2*backoff, 2*time.Second) {
		session, err := ownership.Open(ctx, ownership.SessionConfig{
			ConnConfig:  r.cfg.SessionConn,
			Info:        info,
			HotRunsFunc: r.HotRuns,
			ControlFunc: r.poke,
			Logger:      r.cfg.Logger,
		})
		if err == nil {
			return newIncarnation(r, session), nil
		}
		if first || ctx.Err() != nil {
			return nil, fmt.Errorf("open replica session: %w", err)
		}
		r.cfg.Logger.Warn("open replica session, trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil, errors.New("stopped")
		case <-time.After(backoff):
		}
	}
}
