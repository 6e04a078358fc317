package wake

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/sql"
)

const (
	// kindsInterval is the time between two looks at the declared kinds.
	kindsInterval = time.Second
	// announceInterval is the least time between two notifications about tasks.
	announceInterval = 5 * time.Millisecond
)

// TaskKind is a kind that programs outside do, and how its failures are retried.
type TaskKind struct {
	Name                       string
	MaxAttempts                int
	MinBackoffUs, MaxBackoffUs int64
}

// Tasks is what a replica knows of the work that programs outside do: the kinds
// that are declared, a second old at most, and the new tasks that workers are to be told of.
type Tasks struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	kinds  atomic.Pointer[map[string]TaskKind]

	reading sync.Mutex
	readAt  time.Time // when the last look that succeeded began

	mu    sync.Mutex
	fresh map[string]struct{} // kinds with new tasks
	kick  chan struct{}
}

// NewTasks returns the knowledge of a replica that has not looked yet.
func NewTasks(pool *pgxpool.Pool, logger *slog.Logger) *Tasks {
	return &Tasks{pool: pool, logger: logger, fresh: make(map[string]struct{}), kick: make(chan struct{}, 1)}
}

// Kind returns a kind that was declared as of the last look.
func (t *Tasks) Kind(name string) (TaskKind, bool) {
	kinds := t.kinds.Load()
	if kinds == nil {
		return TaskKind{}, false
	}
	k, ok := (*kinds)[name]
	return k, ok
}

// Refresh returns when a look that began after the call has succeeded, be it
// another caller's. On an error the kinds are those of the look before.
func (t *Tasks) Refresh(ctx context.Context) error {
	called := time.Now()
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.readAt.After(called) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	began := time.Now()
	rows, err := t.pool.Query(ctx, sql.LifeTaskKinds)
	if err != nil {
		return fmt.Errorf("read declared kinds: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TaskKind])
	if err != nil {
		return fmt.Errorf("read declared kinds: %w", err)
	}
	kinds := make(map[string]TaskKind, len(found))
	for _, k := range found {
		kinds[k.Name] = k
	}
	t.kinds.Store(&kinds)
	t.readAt = began
	return nil
}

// Announce has the workers of a kind told, in a moment, that there are tasks. It
// never blocks. Many announcements become one notification; one may be lost with
// the replica, so workers also poll.
func (t *Tasks) Announce(kind string) {
	t.mu.Lock()
	t.fresh[kind] = struct{}{}
	t.mu.Unlock()
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// Run looks at the declared kinds and tells workers of tasks until ctx is done.
func (t *Tasks) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { t.refreshAll(ctx) })
	loops.Go(func() { t.announceAll(ctx) })
	loops.Wait()
}

func (t *Tasks) refreshAll(ctx context.Context) {
	out := outage{logger: t.logger, task: "read declared kinds"}
	for delay := time.Duration(0); sleep(ctx, delay); delay = jittered(kindsInterval, 5) {
		out.report(ctx, t.Refresh(ctx))
	}
}

func (t *Tasks) announceAll(ctx context.Context) {
	out := outage{logger: t.logger, task: "tell workers of tasks"}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		}
		out.report(ctx, t.announce(ctx))
		if !sleep(ctx, announceInterval) {
			return
		}
	}
}

// announce sends what is pending; what cannot be sent is found by polling.
func (t *Tasks) announce(ctx context.Context) error {
	t.mu.Lock()
	kinds := slices.Sorted(maps.Keys(t.fresh))
	clear(t.fresh)
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := t.pool.Exec(ctx, sql.LifeTaskNotify, kinds); err != nil {
		return fmt.Errorf("notify workers: %w", err)
	}
	return nil
}
