package runlog

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// WriterConfig configures a [Writer]. Only Pool is required.
type WriterConfig struct {
	Pool *pgxpool.Pool
	// Flushers is the number of flushes that may be in flight at once, each on a connection
	// of the pool. Defaults to 2.
	Flushers int
	// MaxBatchRows bounds the records of one flush. Defaults to 1000.
	MaxBatchRows int
	// MaxBatchBytes bounds the bytes of one flush; a single record may exceed it. Defaults to 4 MiB.
	MaxBatchBytes int
	// FlushTimeout bounds one attempt at a flush. Defaults to 30 s.
	FlushTimeout time.Duration
	// CommittedFunc is called after a commit with the new head of each run that was written.
	// It must not block.
	CommittedFunc func(RunID, Seq)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Writer appends records of many runs.
type Writer struct{ cfg WriterConfig }

// NewWriter starts the writer's flushers.
func NewWriter(cfg WriterConfig) *Writer { return &Writer{cfg: cfg} }

// Close flushes all that is queued, waits for it and stops.
func (w *Writer) Close() {}

// Abort stops at once; every pending callback gets [ErrClosed].
func (w *Writer) Abort() {}

// Open returns the end of a claimed run's log. head is the seq of our claim record.
func (w *Writer) Open(id RunID, owner ReplicaID, epoch Epoch, head Seq) *Tail { return &Tail{} }

// Tail is the end of one owned run's log.
type Tail struct{}

// Append queues a record.
func (t *Tail) Append(record []byte, done func(seq Seq, err error)) {}

// FinishParams is the end of a run.
type FinishParams struct {
	// Record is the encoded finished record.
	Record []byte
	// Status is succeeded, failed or cancelled.
	Status string
	// Result is JSON text, or nil.
	Result []byte
	// ResultSeq is the position of the record that holds the exact bytes; 0 for none.
	ResultSeq Seq
	// Error is what psql shows of a failure; empty for none.
	Error string
}

// Finish appends the finished record and ends the run.
func (t *Tail) Finish(ctx context.Context, params FinishParams) error { return nil }

// Read calls fn with each record after the given seq.
func Read(ctx context.Context, pool *pgxpool.Pool, id RunID, after Seq, fn func(Seq, *pb.Record) error) error {
	return nil
}

// ReadRaw is Read without decoding. fn may keep the bytes.
func ReadRaw(ctx context.Context, pool *pgxpool.Pool, id RunID, after Seq, fn func(seq Seq, record []byte) error) error {
	return nil
}
