package pgexec

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/feed"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// RunStatus is where a run stands.
type RunStatus string

// The statuses of a run. The last three are final.
const (
	RunQueued    RunStatus = "queued"
	RunRunning   RunStatus = "running"
	RunParked    RunStatus = "parked"
	RunPaused    RunStatus = "paused"
	RunSucceeded RunStatus = "succeeded"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Final reports whether a run of this status has ended.
func (s RunStatus) Final() bool {
	return s == RunSucceeded || s == RunFailed || s == RunCancelled
}

// Run is a run as its row in pgexec.runs shows it.
type Run struct {
	ID   RunID
	Kind string
	// Input is nil in what [Client.List] and [Client.Descendants] return if it is not small (some 64 KiB).
	Input  json.RawMessage
	Status RunStatus
	// Owner is the id of the replica that runs it; 0 if none does.
	Owner int32
	// Epoch counts the claims so far.
	Epoch          int64
	Queue          string
	Priority       int
	Labels         map[string]string
	IdempotencyKey string
	// RunAt is when the run is next due; zero while no time makes it due.
	RunAt      time.Time
	CreatedBy  string
	CreatedAt  time.Time
	StartedAt  time.Time // zero until the first claim
	FinishedAt time.Time // zero until the end
	// Result is the output of the run's result node, set when it succeeded.
	// [Client.Wait] gives the bytes as the handler returned them; [Client.Get]
	// and [Client.List] as jsonb shows them, with a [BlobRef] in the place of one that is too large for the log.
	Result json.RawMessage
	// Error says why the run failed.
	Error string
	// Reason says why the run is paused, what it waits for, or what somebody wants of it.
	Reason string
	// ParentRunID and ParentNodeID are the run and the node that this run is the
	// execution of; zero for a run that no other one started.
	ParentRunID  RunID
	ParentNodeID NodeID
	// Depth counts the runs above this one.
	Depth int
	// Spent is what the run has spent, child runs that have ended included: some seconds ago, if it is in a replica's memory.
	Spent Usage
	// NodesDone counts the run's own nodes, as of then.
	NodesDone int64
	Limits    Limits

	resultSeq Seq
}

// Err returns a [*RunError] if the run ended without success, else nil.
func (r *Run) Err() error {
	if r.Status == RunFailed || r.Status == RunCancelled {
		return &RunError{RunID: r.ID, Status: r.Status, Message: r.Error}
	}
	return nil
}

// Output decodes the result into dst, or returns the run's error.
func (r *Run) Output(dst any) error {
	if err := r.Err(); err != nil {
		return err
	}
	if !r.Status.Final() {
		return fmt.Errorf("run %s is %s: it has no result yet", r.ID, r.Status)
	}
	return decodeJSON(r.Result, dst)
}

// Get reads one run. It returns [ErrRunNotFound] if there is none with that id.
func (c *Client) Get(ctx context.Context, id RunID) (*Run, error) {
	runs, err := c.readRuns(ctx, sql.ClientGet, id)
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", id, err)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("run %s: %w", id, ErrRunNotFound)
	}
	return runs[0], nil
}

// ListOpts narrow a listing.
type ListOpts struct {
	// Status lists runs of these statuses only; empty means any.
	Status []RunStatus
	// Kind lists runs of this kind only; empty means any.
	Kind string
	// Before lists runs older than this one: the last id of the page before.
	Before RunID
	// Roots lists only runs that are no child of another one.
	Roots bool
	// Limit bounds the page. Defaults to 100.
	Limit int
}

// List reads a page of runs, the newest first.
func (c *Client) List(ctx context.Context, opts *ListOpts) ([]*Run, error) {
	if opts == nil {
		opts = &ListOpts{}
	}
	var statuses []string
	for _, s := range opts.Status {
		statuses = append(statuses, string(s))
	}
	limit := opts.Limit
	if limit == 0 {
		limit = 100
	}
	runs, err := c.readRuns(ctx, sql.ClientList, orNil(opts.Before), statuses, orNil(opts.Kind), limit, opts.Roots)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// Descendants reads the runs below some runs, their children first, then
// theirs, and so on; at most limit of them.
func (c *Client) Descendants(ctx context.Context, ids []RunID, limit int) ([]*Run, error) {
	runs, err := c.readRuns(ctx, sql.ClientDescendants, runlog.Texts(ids), limit)
	if err != nil {
		return nil, fmt.Errorf("list child runs: %w", err)
	}
	return runs, nil
}

func (c *Client) readRuns(ctx context.Context, statement string, args ...any) ([]*Run, error) {
	rows, err := c.pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(rows.Conn()); err != nil {
		rows.Close()
		return nil, err
	}
	return pgx.CollectRows(rows, scanRun)
}

func scanRun(row pgx.CollectableRow) (*Run, error) {
	var r Run
	var owner *int32
	var key, runErr, reason *string
	var due, started, finished, deadline *time.Time
	var wallMs int64
	var found map[string]json.RawMessage
	l := &r.Limits
	err := row.Scan(&r.ID, &r.Kind, &r.Input, &r.Status, &owner, &r.Epoch, &r.Queue, &r.Priority, &found, &key,
		&due, &r.CreatedBy, &r.CreatedAt, &started, &finished, &r.Result, &r.resultSeq, &runErr, &reason,
		&r.ParentRunID, &r.ParentNodeID, &r.Depth,
		&r.Spent.InputTokens, &r.Spent.OutputTokens, &r.Spent.CostNanoUSD, &r.Spent.Unpriced, &r.NodesDone,
		&l.MaxTokens, &l.MaxCostUSD, &l.MaxNodes, &l.MaxTurns, &l.MaxToolCalls, &wallMs, &deadline, &l.MaxParallel, &l.SoftLimit)
	r.Owner, r.IdempotencyKey, r.Error, r.Reason = orZero(owner), orZero(key), orZero(runErr), orZero(reason)
	r.RunAt, r.StartedAt, r.FinishedAt, l.Deadline = orZero(due), orZero(started), orZero(finished), orZero(deadline)
	r.Labels = texts(found)
	l.MaxWall = time.Duration(wallMs) * time.Millisecond
	return &r, err
}

// texts are the labels of a run. Whoever inserts it may give them values that are no texts: they are shown as JSON.
func texts(labels map[string]json.RawMessage) map[string]string {
	out := make(map[string]string, len(labels))
	for name, value := range labels {
		var text *string
		if json.Unmarshal(value, &text) == nil && text != nil {
			out[name] = *text
			continue
		}
		out[name] = string(value)
	}
	return out
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Wait returns the run when it has ended, whatever its status; see [Run.Err]
// and [Run.Output]. It learns of the end by notification, and by polling where
// notifications do not arrive. A paused run is waited for. It returns [ErrRunNotFound] if there is none with that id, an
// error with ctx's cause when that is done, and an error when the client is closed. Once it has found the
// run it outlasts failures of the database, until ctx is done.
func (c *Client) Wait(ctx context.Context, id RunID) (*Run, error) {
	l, err := c.listen()
	if err != nil {
		return nil, err
	}
	tick, cancel := l.Subscribe(id)
	defer cancel()
	var known RunStatus
	for {
		status, err := c.status(ctx, id)
		if err == nil && status.Final() {
			var run *Run
			var result []byte
			run, result, err = c.ended(ctx, id)
			if err == nil && run.Status.Final() { // else somebody has it retried meanwhile
				return run, c.exactResult(ctx, run, result)
			}
		}
		if err != nil && (known == "" || errors.Is(err, ErrRunNotFound) || !feed.Transient(err)) {
			return nil, err
		}
		known = cmp.Or(status, known)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for run %s (%s): %w", id, known, context.Cause(ctx))
		case _, ok := <-tick:
			if !ok {
				return nil, fmt.Errorf("wait for run %s (%s): the client was closed", id, known)
			}
		}
	}
}

// status reads where a run stands, and nothing else of it, as its input may be large.
func (c *Client) status(ctx context.Context, id RunID) (status RunStatus, err error) {
	err = c.pool.QueryRow(ctx, sql.ClientStatus, id).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrRunNotFound
	}
	if err != nil {
		return "", fmt.Errorf("read run %s: %w", id, err)
	}
	return status, nil
}

// ended reads a run that has ended, with the record that has its result, nil if there is none.
func (c *Client) ended(ctx context.Context, id RunID) (run *Run, result []byte, err error) {
	if run, err = c.Get(ctx, id); err != nil || run.resultSeq == 0 {
		return run, nil, err
	}
	err = c.pool.QueryRow(ctx, sql.ClientRecord, run.ID, run.resultSeq).Scan(&result)
	if err != nil {
		return nil, nil, fmt.Errorf("read result of run %s: %w", run.ID, err)
	}
	return run, result, nil
}

// exactResult replaces what jsonb made of the result by the bytes in its record.
func (c *Client) exactResult(ctx context.Context, run *Run, record []byte) error {
	if record == nil {
		return nil
	}
	rec, err := runlog.Decode(record)
	if err != nil {
		return fmt.Errorf("decode result of run %s: %w", run.ID, err)
	}
	output := rec.GetNode().GetOutput()
	if ref := output.GetBlob(); ref != nil {
		run.Result, err = c.blobs.Get(ctx, ref)
		if err != nil {
			return fmt.Errorf("result of run %s: %w", run.ID, blobError(err))
		}
		return nil
	}
	run.Result = output.GetJson()
	return nil
}

// Entry is one record of a run's log.
type Entry = feed.Entry

// Watch yields the run's records in order, each once, from the one after the
// given seq, as they commit (G5). It ends after the run's last record, or with
// an error: [ErrRunNotFound], or when ctx is done.
func (c *Client) Watch(ctx context.Context, id RunID, after Seq) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		l, err := c.listen()
		if err == nil {
			err = c.mustExist(ctx, id)
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		l.Watch(ctx, id, after)(yield)
	}
}

func (c *Client) mustExist(ctx context.Context, id RunID) error {
	var exists bool
	if err := c.pool.QueryRow(ctx, sql.ClientExists, id).Scan(&exists); err != nil {
		return fmt.Errorf("look for run %s: %w", id, err)
	}
	if !exists {
		return fmt.Errorf("%w: %s", ErrRunNotFound, id)
	}
	return nil
}
