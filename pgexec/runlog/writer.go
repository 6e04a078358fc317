package runlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// WriterConfig configures a [Writer]. Only Pool is required.
type WriterConfig struct {
	// Pool is for what follows an append.
	Pool *pgxpool.Pool
	// Conn is how the flushers connect: to the server itself, not to a transaction-mode pooler, since the
	// settings of a session decide how their statements are planned. Defaults to the pool's own settings.
	Conn *pgx.ConnConfig
	// ReplicaID is in the application_name of the connections.
	ReplicaID ReplicaID
	// Flushers is the number of flushes that may be in flight at once, each on a connection
	// of its own. Defaults to 2.
	Flushers int
	// MaxBatchRows bounds the records of one flush. Defaults to 1000.
	MaxBatchRows int
	// MaxBatchBytes bounds the bytes of one flush; a single record may exceed it. Defaults to 4 MiB.
	MaxBatchBytes int
	// FlushTimeout bounds one attempt at a flush, so that a connection to nowhere is given up. Defaults to 30 s.
	FlushTimeout time.Duration
	// CommittedFunc, if set, is called after a commit with the new head of each run that was written,
	// after the callbacks of the run's records. It must not block.
	CommittedFunc func(RunID, Seq)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (cfg WriterConfig) withDefaults() WriterConfig {
	if cfg.Conn == nil {
		cfg.Conn = cfg.Pool.Config().ConnConfig
	}
	cfg.Conn = flusherConfig(cfg.Conn, cfg.ReplicaID)
	if cfg.Flushers <= 0 {
		cfg.Flushers = 2
	}
	if cfg.MaxBatchRows <= 0 {
		cfg.MaxBatchRows = 1000
	}
	if cfg.MaxBatchBytes <= 0 {
		cfg.MaxBatchBytes = 4 << 20
	}
	if cfg.FlushTimeout <= 0 {
		cfg.FlushTimeout = 30 * time.Second
	}
	if cfg.CommittedFunc == nil {
		cfg.CommittedFunc = func(RunID, Seq) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// Writer appends the records of many runs. A few flushers share the work: while flushes are in
// flight, what comes in gathers for the next ones. At most one flush of a run is in flight,
// so its records leave in order. No goroutine belongs to a run.
type Writer struct {
	cfg    WriterConfig
	queue  *queue
	teller *teller
	abort  context.CancelFunc
	wg     sync.WaitGroup
}

// NewWriter starts the writer's flushers. Close or Abort ends them.
func NewWriter(cfg WriterConfig) *Writer {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{cfg: cfg, queue: newQueue(cfg), teller: newTeller(cfg), abort: cancel}
	flushers := make([]*flusher, cfg.Flushers)
	for i := range flushers {
		flushers[i] = &flusher{cfg: cfg, queue: w.queue, teller: w.teller}
		w.wg.Go(func() { flushers[i].run(ctx) })
	}
	w.wg.Go(func() { w.queue.commitAll(ctx, flushers) })
	w.teller.wg.Go(func() { w.teller.run(ctx) })
	return w
}

// Close flushes all that is queued, waits for it and stops. It belongs after the last Append, and
// not in a callback. What is appended later gets [ErrClosed].
func (w *Writer) Close() {
	w.queue.close(false)
	w.wg.Wait()
	w.teller.close()
	w.abort()
}

// Abort stops at once: flushes in flight are cut, and every pending callback gets [ErrClosed]
// before it returns. It must not be called in a callback.
func (w *Writer) Abort() {
	w.queue.close(true)
	w.abort()
	w.wg.Wait()
	w.teller.close()
}

// TellOwner has the owner of a run told, in a moment, that something has reached it. It never blocks. What is to be
// told is a hint, in a transaction of its own, and lost with the replica: owners look at their runs.
func (w *Writer) TellOwner(id RunID) { w.teller.owner(id) }

// TellQueues has the replicas that take wakes of some queues told that there are some, as TellOwner does; they also poll.
func (w *Writer) TellQueues(names []string) {
	for _, name := range names {
		w.teller.queue(name)
	}
}

// TellAllQueues is TellQueues with the queues of all replicas.
func (w *Writer) TellAllQueues() { w.teller.allQueues() }

// Open returns the end of a claimed run's log. owner and epoch are those of the claim, head is
// the seq of the last record, at first that of the claim's own.
func (w *Writer) Open(id RunID, owner ReplicaID, epoch Epoch, head Seq) *Tail {
	return &Tail{queue: w.queue, id: id, owner: owner, epoch: epoch, head: head}
}
