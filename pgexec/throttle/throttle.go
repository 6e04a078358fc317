package throttle

import (
	"container/heap"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// Config configures the throttle of one replica session. All fields but Declared, CapFunc and WokeFunc are required.
type Config struct {
	Pool      *pgxpool.Pool
	ReplicaID runlog.ReplicaID
	// Declared are the limits that this program declares. Those of the database win.
	Declared map[string]Limit
	// CapFunc returns how many nodes of a kind this replica can run at once; 0 for no bound of its own.
	CapFunc func(kind string) int
	// WokeFunc is called when runs have been woken that nobody is told of yet. It must not block. By default nobody is
	// told: they are found by polling.
	WokeFunc func()
	Logger   *slog.Logger
}

// Throttle keeps the fleet's limits for one replica session.
type Throttle struct {
	cfg    Config
	limits atomic.Pointer[map[string]Limit]
	kick   chan struct{}
	stop   context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	entries map[ID]*entry
	asked   uint64
}

// New returns a throttle that [Throttle.Start] starts.
func New(cfg Config) *Throttle {
	if cfg.CapFunc == nil {
		cfg.CapFunc = func(string) int { return 0 }
	}
	if cfg.WokeFunc == nil {
		cfg.WokeFunc = func() {}
	}
	t := &Throttle{cfg: cfg, kick: make(chan struct{}, 1), entries: make(map[ID]*entry)}
	t.limits.Store(&map[string]Limit{})
	return t
}

// Start declares this program's limits and reads those in force. Until it has
// returned without an error nothing may start.
func (t *Throttle) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := t.declare(ctx); err != nil {
		return err
	}
	limits, err := t.readLimits(ctx)
	if err != nil {
		return err
	}
	t.limits.Store(&limits)
	loopCtx, stop := context.WithCancel(context.Background())
	t.stop, t.done = stop, make(chan struct{})
	go func() {
		defer close(t.done)
		t.loop(loopCtx)
	}()
	return nil
}

// Stop ends what [Throttle.Start] began. What slots the replica still has are
// freed when it is taken off the list.
func (t *Throttle) Stop() {
	if t.stop != nil {
		t.stop()
		<-t.done
	}
}

// Limit returns the limit of a kind; false if it has none.
func (t *Throttle) Limit(kind string) (Limit, bool) {
	l, ok := (*t.limits.Load())[kind]
	return l, ok
}

// Ask puts a node in the line for its limit, before all that began to wait
// later. granted is called once, perhaps before Ask returns and from any goroutine, when
// the node may start; it must not block. [Ticket.Release] is called in any case, [Ticket.Use] before it if the node starts.
func (t *Throttle) Ask(id ID, since time.Time, granted func()) *Ticket {
	t.mu.Lock()
	e := t.entries[id]
	if e == nil {
		e = &entry{id: id, limit: t.limitOf(id.Kind), cap: t.cfg.CapFunc(id.Kind), holding: holding{slots: make(map[int32]bool)}}
		t.entries[id] = e
	}
	t.asked++
	k := &Ticket{t: t, e: e, since: since, nth: t.asked, granted: granted}
	heap.Push(&e.waiting, k)
	granting := e.settle(time.Now())
	if k.index >= 0 && !e.noted {
		t.wake()
	}
	t.mu.Unlock()
	call(granting)
	return k
}

// limitOf returns the kind's limit, or one that limits nothing.
func (t *Throttle) limitOf(kind string) Limit {
	if l, ok := t.Limit(kind); ok {
		return l
	}
	return Limit{MaxInFlight: NoBound}
}

// Use is called when the node that may start does. What a node has of a rate is used up then.
func (k *Ticket) Use() {
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	if k.unused {
		k.unused = false
		k.e.unused--
	}
}

// Release ends the wait, or gives back what the node had. It may be called more than once.
func (k *Ticket) Release() {
	t, e := k.t, k.e
	t.mu.Lock()
	if k.index >= 0 {
		heap.Remove(&e.waiting, k.index)
	}
	used := time.Since(k.began)
	if k.unused {
		k.unused, used = false, 0
		e.unused--
		if e.limit.rated() {
			e.tokens++
		}
	}
	if k.slot != 0 {
		e.release(k.slot, used)
		k.slot = 0
	}
	granting := e.settle(time.Now())
	if len(e.giving) > 0 || e.queued && len(e.free) > 0 {
		t.wake()
	}
	t.mu.Unlock()
	call(granting)
}

// Until returns how long the rate lets no node start; 0 if it does not hold this one.
func (k *Ticket) Until() time.Duration {
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	return max(time.Until(k.e.paidAt), 0)
}

// wake makes the loop take a turn soon.
func (t *Throttle) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

func call(granted []*Ticket) {
	for _, k := range granted {
		k.granted()
	}
}
