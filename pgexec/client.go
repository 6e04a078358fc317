package pgexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/feed"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// ClientConfig configures a client.
type ClientConfig struct {
	// ListenConn is how the client listens for news of the runs it waits for:
	// straight to the server. Defaults to the pool's own connection settings.
	ListenConn *pgx.ConnConfig
	// BlobStore and BlobRead are as in [Config]: the client reads results that are in blobs, and stores files.
	BlobStore string
	BlobRead  []string
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// Client starts runs, reads them and waits for them. It needs the database
// only, no running replica. Its methods may be called from several goroutines.
type Client struct {
	pool  *pgxpool.Pool
	cfg   ClientConfig
	blobs *blob.Store

	mu       sync.Mutex
	listener *feed.Listener // started by the first wait
	closed   bool
}

// NewClient returns a client on the pool's database. The pool must outlive it, and its connections have client_encoding
// UTF8, else calls return an error; [Client.Close] ends the connection that waiting opens.
func NewClient(pool *pgxpool.Pool, cfg *ClientConfig) *Client {
	if cfg == nil {
		cfg = &ClientConfig{}
	}
	c := *cfg
	if c.ListenConn == nil {
		c.ListenConn = pool.Config().ConnConfig.Copy()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Client{pool: pool, cfg: c, blobs: blob.New(pool, blob.Config{Write: c.BlobStore, Read: c.BlobRead})}
}

// StartOpts are the optional parts of a new run.
type StartOpts struct {
	// ID defaults to a new version 7 UUID. Ids that are not time-ordered work as well.
	ID RunID
	// IdempotencyKey makes Start safe to repeat: a second run with the same key
	// is not made, and the first one's id is returned; [ErrIdempotencyMismatch] if that is of another kind or input. At
	// most 1,024 bytes.
	IdempotencyKey string
	// RunAt defaults to now, by the database's clock.
	RunAt time.Time
	// Queue defaults to "default".
	Queue string
	// Priority is 1 (most urgent) to 4. Defaults to 2.
	Priority int
	// Labels are free text for whoever looks for the run: 16 KiB as JSON, at most.
	Labels map[string]string
	// Traceparent is the W3C trace context the run belongs to: 512 bytes at most.
	Traceparent string
	// Limits default to none.
	Limits Limits
}

// Start adds a run of that kind, a name of 1 to 128 characters without # and control characters. Its first node gets
// input, as JSON of at most 128 MiB. The run is durable when Start returns, and starts on some replica as soon as one
// has room. An input, kind or option that cannot be is an error that says why; [ErrIdempotencyMismatch], with the id of
// the run that is there, if the key is that of a run of another kind or input.
func (c *Client) Start(ctx context.Context, kind string, input any, opts *StartOpts) (RunID, error) {
	var id RunID
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		id, err = c.StartTx(ctx, tx, kind, input, opts)
		return err
	})
	return id, err
}

// inTx is a transaction that changes runs: what comes first is waited for and then seen.
func (c *Client) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	return runlog.Briefly(ctx, c.pool, f)
}

// StartTx is Start in the caller's transaction: the run exists, and is started,
// if and only if tx commits. After an error of the database, as of a run that cannot be, tx can only be rolled back.
func (c *Client) StartTx(ctx context.Context, tx pgx.Tx, kind string, input any, opts *StartOpts) (RunID, error) {
	if opts == nil {
		opts = &StartOpts{}
	}
	raw, err := encodeJSON(input)
	if err != nil {
		return RunID{}, fmt.Errorf("input of run: %w", err)
	}
	args, err := startArgs(kind, raw, opts)
	if err != nil {
		return RunID{}, err
	}
	if err := checkEncoding(tx.Conn()); err != nil {
		return RunID{}, fmt.Errorf("start run: %w", err)
	}
	var id RunID
	err = tx.QueryRow(ctx, sql.ClientStart, args...).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return existing(ctx, tx, kind, raw, opts.IdempotencyKey)
	}
	if err != nil {
		return RunID{}, fmt.Errorf("start run: %w", startError(err))
	}
	return id, nil
}

func startArgs(kind string, raw []byte, opts *StartOpts) ([]any, error) {
	labels := opts.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	labelsJSON, err := json.Marshal(labels)
	if err != nil {
		return nil, fmt.Errorf("labels of run: %w", err)
	}
	queue, priority := opts.Queue, opts.Priority
	if queue == "" {
		queue = "default"
	}
	if priority == 0 {
		priority = 2
	}
	if priority != int(int16(priority)) {
		return nil, fmt.Errorf("start run: priority is %d, must be 1 (most urgent) to 4", priority)
	}
	l := opts.Limits
	err = inColumns(column{"max_nodes", l.MaxNodes}, column{"max_turns", l.MaxTurns}, column{"max_tool_calls", l.MaxToolCalls}, column{"max_parallel", l.MaxParallel})
	if err != nil {
		return nil, fmt.Errorf("start run: %w", err)
	}
	return []any{
		orNil(opts.ID), kind, string(raw), queue, priority, string(labelsJSON),
		orNil(opts.IdempotencyKey), orNil(opts.RunAt), orNil(opts.Traceparent),
		orNil(l.MaxTokens), orNil(l.MaxCostUSD), orNil(l.MaxNodes), orNil(wholeMillis(l.MaxWall)), orNil(l.Deadline),
		orNil(l.MaxParallel), orNil(l.SoftLimit), orNil(l.MaxTurns), orNil(l.MaxToolCalls),
	}, nil
}

// column is what is to go into an integer column.
type column struct {
	name  string
	value int
}

// inColumns refuses what no such column can hold; the rest is the database's to refuse.
func inColumns(columns ...column) error {
	for _, c := range columns {
		switch {
		case c.value > math.MaxInt32:
			return fmt.Errorf("%s is %d, must be at most %d", c.name, c.value, math.MaxInt32)
		case c.value < math.MinInt32:
			return fmt.Errorf("%s is %d, must be positive", c.name, c.value)
		}
	}
	return nil
}

// wholeMillis rounds away from zero: what is not nothing stays so.
func wholeMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d % time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms
}

// orNil turns a zero value into NULL.
func orNil[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// startError puts the database's refusals into the caller's words.
func startError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "22P05", "22P02", "22003":
		return fmt.Errorf("the input holds what jsonb cannot (%s: %s): encode it, for example as base64", pg.Message, pg.Detail)
	case "3F000", "42P01":
		return fmt.Errorf("%s: run `pgexec migrate up` on this database first", pg.Message)
	}
	return err
}

func existing(ctx context.Context, tx pgx.Tx, kind string, raw []byte, key string) (RunID, error) {
	var id RunID
	var same bool
	if err := tx.QueryRow(ctx, sql.ClientStartExisting, key, kind, string(raw)).Scan(&id, &same); err != nil {
		return RunID{}, fmt.Errorf("read run of idempotency key %q: %w", key, err)
	}
	if !same {
		return id, fmt.Errorf("start run: key %q, run %s: %w", key, id, ErrIdempotencyMismatch)
	}
	return id, nil
}

// Close ends the client's own connections. Waits in progress, and calls of Wait and Watch after it, return an error; what
// needs no more than the pool goes on.
func (c *Client) Close() {
	c.mu.Lock()
	l := c.listener
	c.listener, c.closed = nil, true
	c.mu.Unlock()
	if l != nil {
		l.Stop()
	}
	c.blobs.Close()
}

// listen returns the client's listener, started on first use.
func (c *Client) listen() (*feed.Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("pgexec: the client is closed")
	}
	if c.listener == nil {
		c.listener = feed.NewListener(c.cfg.ListenConn, c.pool, c.cfg.Logger)
		c.listener.Start()
	}
	return c.listener, nil
}
