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

// teller tells the owners of runs that something has reached, and those who
// take wakes. It is a hint beside the flushes, never in one: a commit that notifies
// queues behind others that do, and fails when the server's queue is full. What comes
// in while a statement is in flight makes the next one.
type teller struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	wg   sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond
	owners  map[RunID]struct{}
	queues  map[string]struct{}
	all     bool // of the queues
	closing bool
}

func newTeller(cfg WriterConfig) *teller {
	t := &teller{pool: cfg.Pool, log: cfg.Logger, owners: make(map[RunID]struct{}), queues: make(map[string]struct{})}
	t.wake.L = &t.mu
	return t
}

// owner will tell the owner of a run.
func (t *teller) owner(id RunID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owners[id] = struct{}{}
	t.wake.Signal()
}

// queue will tell those who take a queue's wakes.
func (t *teller) queue(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[name] = struct{}{}
	t.wake.Signal()
}

// allQueues will tell those who take any queue's wakes.
func (t *teller) allQueues() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = true
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
		n := t.take()
		if n.none() {
			return
		}
		t.tell(ctx, n)
	}
}

// news is what one hint says.
type news struct {
	owners    []RunID
	queues    []string
	allQueues bool
}

func (n *news) none() bool { return len(n.owners)+len(n.queues) == 0 && !n.allQueues }

// take waits for news; none are left when it returns none.
func (t *teller) take() news {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.owners)+len(t.queues) == 0 && !t.all && !t.closing {
		t.wake.Wait()
	}
	n := news{owners: slices.Collect(maps.Keys(t.owners)), queues: slices.Collect(maps.Keys(t.queues)), allQueues: t.all}
	clear(t.owners)
	clear(t.queues)
	t.all = false
	return n
}

// tell sends one hint. That it is lost costs half a second: owners look at their runs, and queues are polled.
func (t *teller) tell(ctx context.Context, n news) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if _, err := t.pool.Exec(ctx, sql.RunlogTell, Texts(n.owners), n.queues, n.allQueues); err != nil {
		t.log.DebugContext(ctx, "tell owners and queues", "error", err)
	}
}
