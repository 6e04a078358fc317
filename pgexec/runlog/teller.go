package runlog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/sql"
)

// tellTimeout bounds one statement of the teller.
const tellTimeout = 5 * time.Second

// teller tells the owners of runs whose children have ended, and those who
// take wakes. It is a hint beside the flushes, never in one: a commit that notifies
// queues behind others that do, and fails when the server's queue is full. What comes
// in while a statement is in flight makes the next one.
type teller struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	wg   sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond
	parents map[RunID]struct{}
	queues  map[string]struct{}
	closing bool
}

func newTeller(cfg WriterConfig) *teller {
	t := &teller{pool: cfg.Pool, log: cfg.Logger, parents: make(map[RunID]struct{}), queues: make(map[string]struct{})}
	t.wake.L = &t.mu
	return t
}

// owner will tell the owner of a run.
func (t *teller) owner(id RunID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parents[id] = struct{}{}
	t.wake.Signal()
}

// queue will tell those who take a queue's wakes.
func (t *teller) queue(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[name] = struct{}{}
	t.wake.Signal()
}

// close sends what is left, unless the writer was aborted, and stops.
func (t *teller) close() {
	t.mu.Lock()
	t.closing = true
	t.mu.Unlock()
	t.wake.Signal()
	t.wg.Wait()
}

func (t *teller) run(ctx context.Context) {
	for {
		parents, queues := t.take()
		if len(parents)+len(queues) == 0 {
			return
		}
		t.tell(ctx, parents, queues)
	}
}

// take waits for news; none are left when it returns none.
func (t *teller) take() (parents []RunID, queues []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.parents)+len(t.queues) == 0 && !t.closing {
		t.wake.Wait()
	}
	parents, queues = slices.Collect(maps.Keys(t.parents)), slices.Collect(maps.Keys(t.queues))
	clear(t.parents)
	clear(t.queues)
	return parents, queues
}

// tell sends one hint. That it is lost costs half a second: owners look at their runs, and queues are polled.
func (t *teller) tell(ctx context.Context, parents []RunID, queues []string) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if _, err := t.pool.Exec(ctx, sql.RunlogTell, Texts(parents), queues); err != nil {
		t.log.DebugContext(ctx, "tell owners of parents", "error", err)
	}
}
