package pgexec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/runtime"
	"github.com/pgexec/runtime/pgexec/wake"
	"github.com/pgexec/runtime/schema"
)

// Config configures a replica.
type Config struct {
	// Kinds are the kinds of nodes that this replica runs. Required.
	Kinds *Kinds
	// Queues are the queues whose runs this replica takes. Defaults to "default".
	Queues []string
	// SessionConn is for the three connections that the replica keeps beside the
	// pool: its session and two that append. Straight to the server, never through a
	// transaction-mode pooler. Defaults to the pool's own connection settings.
	SessionConn *pgx.ConnConfig
	// MaxHotRuns bounds the runs in memory at once. Defaults to 1000.
	MaxHotRuns int
	// MaxParallelPerRun bounds the nodes of one run in flight at once. Defaults to 100.
	MaxParallelPerRun int
	// MaxParallel bounds the nodes of all runs in flight at once on this replica. Defaults to 10,000.
	MaxParallel int
	// PoisonAfter pauses a run when this many of its owners in a row died
	// without any progress; the reason names the nodes that were in flight. Defaults to 3.
	PoisonAfter int
	// Grace is how long a drain waits for nodes in flight before it cancels
	// them with [ErrDraining]. Defaults to 25 s, of the 30 s that most platforms give.
	Grace time.Duration
	// Linger is how long a run that only waits stays in memory before it is
	// parked. Defaults to 1 s.
	Linger time.Duration
	// BlobStore is where payloads go that are too large for a record, and files that handlers store: a directory
	// ("file:///var/lib/blobs"), a bucket ("s3://bucket/prefix?region=eu-west-1", "gs://…", "azblob://…"; the program
	// imports its driver, such as gocloud.dev/blob/s3blob), or "db:", the database itself. Defaults to "db:". All
	// replicas need the same ones.
	BlobStore string
	// BlobRead are further stores that blobs are read from: former ones. "db:" is always read.
	BlobRead []string
	// InlineLimit is the most bytes of an input or output that are kept in the log itself. Defaults to 32 KiB.
	InlineLimit int
	// Host and Version are shown in pgexec.replicas. Host defaults to the
	// operating system's host name, Version to "dev".
	Host, Version string
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

func (c Config) withDefaults(pool *pgxpool.Pool) Config {
	if len(c.Queues) == 0 {
		c.Queues = []string{"default"}
	}
	if c.SessionConn == nil {
		c.SessionConn = pool.Config().ConnConfig.Copy()
	}
	if c.MaxHotRuns == 0 {
		c.MaxHotRuns = 1000
	}
	if c.MaxParallelPerRun == 0 {
		c.MaxParallelPerRun = 100
	}
	if c.MaxParallel == 0 {
		c.MaxParallel = 10_000
	}
	if c.PoisonAfter == 0 {
		c.PoisonAfter = 3
	}
	if c.Grace == 0 {
		c.Grace = 25 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = time.Second
	}
	if c.InlineLimit == 0 {
		c.InlineLimit = 32 << 10
	}
	if c.Host == "" {
		c.Host, _ = os.Hostname() // an empty host is shown as such
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Kinds == nil || len(c.Kinds.byName) == 0:
		return errors.New("pgexec: Config.Kinds is empty: a replica without kinds can run nothing")
	case c.MaxHotRuns < 1 || c.MaxParallelPerRun < 1 || c.MaxParallel < 1 || c.PoisonAfter < 1:
		return fmt.Errorf("pgexec: limits must be positive: MaxHotRuns %d, MaxParallelPerRun %d, MaxParallel %d, PoisonAfter %d",
			c.MaxHotRuns, c.MaxParallelPerRun, c.MaxParallel, c.PoisonAfter)
	case c.InlineLimit < 0 || c.InlineLimit > runlog.MaxRecordBytes/2:
		return fmt.Errorf("pgexec: Config.InlineLimit %d must be between 0 and %d: a record has room for more than one payload", c.InlineLimit, runlog.MaxRecordBytes/2)
	case c.Grace < 0 || c.Linger < 0:
		return fmt.Errorf("pgexec: Config.Grace %v and Config.Linger %v must not be negative", c.Grace, c.Linger)
	}
	if err := wake.CheckQueues(c.Queues); err != nil {
		return fmt.Errorf("pgexec: Config.Queues: %w", err)
	}
	return nil
}

// State is what a replica is doing, for a readiness probe.
type State = runtime.State

// A replica is ready from the time its session is open and its loops run to
// the first moment of a drain.
const (
	StateStarting = runtime.StateStarting
	StateReady    = runtime.StateReady
	StateDraining = runtime.StateDraining
	StateStopped  = runtime.StateStopped
)

// Runtime is one replica: it claims runs that are due and executes them.
type Runtime struct {
	pool  *pgxpool.Pool
	blobs *blob.Store
	log   *slog.Logger
	rt    *runtime.Runtime
}

// MinPoolConns is how many connections a replica's pool must be allowed to have: its loops use so many at once (G8).
const MinPoolConns = 4

// New returns a replica on the pool's database, which [Runtime.Run] starts.
// The pool must outlive it. Its connections, [MinPoolConns] of them or more, have client_encoding UTF8.
func New(pool *pgxpool.Pool, cfg *Config) (*Runtime, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	c := cfg.withDefaults(pool)
	if err := c.validate(); err != nil {
		return nil, err
	}
	if size := pool.Config().MaxConns; size < MinPoolConns {
		return nil, fmt.Errorf("pgexec: the pool may have %d connections; a replica needs at least %d: raise MaxConns, or pool_max_conns in the database's address", size, MinPoolConns)
	}
	blobs := blob.New(pool, blob.Config{Write: c.BlobStore, Read: c.BlobRead})
	return &Runtime{pool: pool, blobs: blobs, log: c.Logger, rt: runtime.New(runtime.Config{
		Pool:        pool,
		SessionConn: c.SessionConn,
		Kinds:       c.Kinds.byName,
		Info: ownership.ReplicaInfo{
			Host:       c.Host,
			PID:        os.Getpid(),
			Version:    c.Version,
			Kinds:      c.Kinds.Names(),
			Queues:     c.Queues,
			MaxHotRuns: c.MaxHotRuns,
		},
		MaxParallelPerRun: c.MaxParallelPerRun,
		MaxParallel:       c.MaxParallel,
		PoisonAfter:       c.PoisonAfter,
		Grace:             c.Grace,
		Linger:            c.Linger,
		Blobs:             blobs,
		InlineLimit:       c.InlineLimit,
		Logger:            c.Logger,
	})}, nil
}

// Run may be called once. It serves until ctx is done, then drains and returns nil: no more runs are
// claimed, nodes in flight finish and are recorded, and each run is handed over
// as soon as its own last node in flight is; after [Config.Grace] the rest is
// cancelled. A context that ends during start-up ends the start-up.
//
// Run returns an error if the schema does not fit this build, the pool's connections are not for UTF-8
// (client_encoding), a blob store cannot be opened or the first
// session cannot be. Later losses of the database are waited for, with
// all runs dropped meanwhile, since other replicas may have taken them.
func (r *Runtime) Run(ctx context.Context) error {
	defer r.blobs.Close()
	if err := r.check(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.warnOfUnread(ctx)
	return r.rt.Run(ctx)
}

// check looks whether the database and the blob stores are fit for a replica.
func (r *Runtime) check(ctx context.Context) error {
	if err := schema.Check(ctx, r.pool); err != nil {
		return err
	}
	if err := checkPoolEncoding(ctx, r.pool); err != nil {
		return fmt.Errorf("pgexec: %w", err)
	}
	return r.blobs.Check(ctx)
}

// warnOfUnread names the blob stores that a change of the configuration may have forgotten.
func (r *Runtime) warnOfUnread(ctx context.Context) {
	stores, err := r.blobs.Unread(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.log.Warn("which stores have blobs?", "error", err)
	case len(stores) > 0:
		r.log.Warn("blobs are in stores that this replica does not read: nodes that need them will fail (BlobRead, --blob-read)", "stores", stores)
	}
}

// State returns what the replica is doing now.
func (r *Runtime) State() State { return r.rt.State() }

// HotRuns returns how many runs are in this replica's memory now.
func (r *Runtime) HotRuns() int { return r.rt.HotRuns() }

// Migrate brings the database's schema pgexec up to what this build needs. It
// is safe to run from several processes at once, and does nothing when there is
// nothing to do.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := schema.Up(ctx, pool)
	return err
}
