package pgexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/sql"
)

// Kinds of nodes that every replica has. They wait, without a goroutine and
// without keeping the run in memory.
const (
	// KindSleep waits for a duration or until a time; see [SleepInput]. Its output is null.
	KindSleep = "sleep"
	// KindSignal waits for a signal; see [SignalInput]. Its output is the signal's payload.
	KindSignal = "signal"
	// KindApproval waits for a person's decision; see [ApprovalInput]. Its output is {"args": …}, what was
	// approved; when it is rejected the node fails with code "rejected".
	KindApproval = "approval"
	// KindRun executes a child run, on any replica; see [RunInput]. Its output
	// is the child's result; it fails if the child does.
	KindRun = "run"
)

// SleepInput is the input of a node of [KindSleep]: one of the two. A time that
// is past ends the wait at once.
type SleepInput struct {
	// For is a duration in Go's form, such as "90s" or "24h", from the moment the node became ready.
	For string `json:"for,omitempty"`
	// Until is a time on the database's clock.
	Until *time.Time `json:"until,omitempty"`
}

// SignalInput is the input of a node of [KindSignal].
type SignalInput struct {
	// About says what it is about to whoever is to send the signal.
	About any `json:"about,omitempty"`
	// Name is the signal to wait for. A signal sent before the wait began counts.
	Name string `json:"name"`
	// Timeout is a duration in Go's form from the moment the node became ready. Without one the wait has no end.
	Timeout string `json:"timeout,omitempty"`
	// Default is the output at the timeout. Without one the node then fails with code "timeout".
	Default json.RawMessage `json:"default,omitempty"`
}

// ApprovalInput is the input of a node of [KindApproval]. The decision is a
// signal "approval" addressed to the node (one without address is not taken):
// {"approve": true}, with "args" to replace what was asked for, or
// {"approve": false, "reason": "…"}.
type ApprovalInput struct {
	// About says what is to be approved.
	About any `json:"about,omitempty"`
	// Args is what the output holds when it is approved unchanged.
	Args any `json:"args,omitempty"`
	// Timeout is a duration in Go's form from the moment the node became ready; the node then fails with
	// code "timeout". Without one the wait has no end.
	Timeout string `json:"timeout,omitempty"`
}

// RunInput is the input of a node of [KindRun]. The child's limits never exceed
// what its parent has left when the child starts.
type RunInput struct {
	Kind       string     `json:"kind"`
	Input      any        `json:"input,omitempty"`
	MaxTokens  int64      `json:"max_tokens,omitempty"`
	MaxCostUSD float64    `json:"max_cost_usd,omitempty"`
	MaxNodes   int64      `json:"max_nodes,omitempty"`
	MaxWallMs  int64      `json:"max_wall_ms,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"`
}

// ErrRunEnded means that the run has ended, so nothing can reach or change it any more.
var ErrRunEnded = errors.New("run has ended")

// SignalOpts are the optional parts of a signal.
type SignalOpts struct {
	// NodeID addresses the signal to one waiting node; without it any wait of that name may consume it.
	NodeID NodeID
	// DedupeKey makes Signal safe to repeat: a second signal to the run with the same key is not sent.
	DedupeKey string
}

// Signal sends a message to a run, durably: it is consumed exactly once,
// by a wait that has begun or by one that will (G4). The name has at most 1,024 bytes, the payload, as JSON, at most
// 128 MiB. It returns [ErrRunNotFound] or [ErrRunEnded] if nothing can consume it.
func (c *Client) Signal(ctx context.Context, id RunID, name string, payload any, opts *SignalOpts) error {
	return c.inTx(ctx, func(tx pgx.Tx) error { return c.SignalTx(ctx, tx, id, name, payload, opts) })
}

// SignalTx is Signal in the caller's transaction.
func (c *Client) SignalTx(ctx context.Context, tx pgx.Tx, id RunID, name string, payload any, opts *SignalOpts) error {
	if opts == nil {
		opts = &SignalOpts{}
	}
	raw, err := encodeJSON(payload)
	if err != nil {
		return fmt.Errorf("payload of signal %q: %w", name, err)
	}
	if err := checkEncoding(tx.Conn()); err != nil {
		return fmt.Errorf("signal run %s: %w", id, err)
	}
	var signalID int64
	err = tx.QueryRow(ctx, sql.ClientSignal, id, name, string(raw), orNil(string(opts.NodeID)), orNil(opts.DedupeKey)).Scan(&signalID)
	if err != nil {
		return fmt.Errorf("signal run %s: %w", id, controlError(startError(err)))
	}
	return nil
}

// Cancel asks for the end of a run and of all runs below it, wherever they
// are: handlers in flight are cancelled with [ErrCancelled] within a second,
// whole trees included. It returns what the database answered: "cancelling", or,
// if the run had ended, "already succeeded", "already failed" or "already
// cancelled", and then nothing has changed. It returns [ErrRunNotFound] if there is none with that id.
func (c *Client) Cancel(ctx context.Context, id RunID, reason string) (string, error) {
	return c.control(ctx, sql.ClientCancel, "cancel", id, orNil(reason))
}

// Pause stops a run and those below it between nodes: what is in flight
// finishes and is recorded, nothing more starts until [Client.Resume]. The
// answer is "paused", "pausing" while nodes are in flight, "already paused",
// "cancelling" if the run's end is wanted, or "already succeeded" and the like. It returns [ErrRunNotFound] if there is
// none with that id.
func (c *Client) Pause(ctx context.Context, id RunID, reason string) (string, error) {
	return c.control(ctx, sql.ClientPause, "pause", id, orNil(reason))
}

// ResumeOpts raise limits. Adding to a limit that the run does not have changes nothing.
type ResumeOpts struct {
	AddTokens  int64
	AddCostUSD float64
	AddNodes   int
	AddWall    time.Duration
	// AddTurns and AddToolCalls raise limits of agents' runs.
	AddTurns, AddToolCalls int
	// Deadline moves the run's deadline; an earlier one than it has changes nothing.
	Deadline time.Time
}

// Resume continues a paused run, and those below it, exactly where it stopped
// (G7), with limits raised if asked for. The answer is "resumed", "limits
// raised" if nothing was paused, "already running" and the like if there was
// nothing to do, "cancelling" if the run's end is wanted, or "already succeeded" and the like. It returns
// [ErrRunNotFound] if there is none with that id.
func (c *Client) Resume(ctx context.Context, id RunID, opts *ResumeOpts) (string, error) {
	if opts == nil {
		opts = &ResumeOpts{}
	}
	if err := inColumns(column{"add_nodes", opts.AddNodes}, column{"add_turns", opts.AddTurns}, column{"add_tool_calls", opts.AddToolCalls}); err != nil {
		return "", fmt.Errorf("resume run %s: %w", id, err)
	}
	return c.control(ctx, sql.ClientResume, "resume", id, orNil(opts.AddTokens), orNil(opts.AddCostUSD),
		orNil(opts.AddNodes), orNil(wholeMillis(opts.AddWall)), orNil(opts.Deadline), orNil(opts.AddTurns), orNil(opts.AddToolCalls))
}

// Retry runs the failed nodes of a failed run again, and goes on from there.
// Nothing that succeeded runs again, and nothing in the log changes. The answer
// is "retrying", or "is succeeded: nothing to retry" and the like. It returns [ErrRunNotFound] if there is none with
// that id.
func (c *Client) Retry(ctx context.Context, id RunID) (string, error) {
	return c.control(ctx, sql.ClientRetry, "retry", id)
}

func (c *Client) control(ctx context.Context, statement, verb string, id RunID, args ...any) (string, error) {
	var answer string
	err := c.inTx(ctx, func(tx pgx.Tx) error {
		if err := checkEncoding(tx.Conn()); err != nil {
			return err
		}
		return tx.QueryRow(ctx, statement, append([]any{id}, args...)...).Scan(&answer)
	})
	if err != nil {
		return "", fmt.Errorf("%s run %s: %w", verb, id, controlError(err))
	}
	return answer, nil
}

// controlError names the refusals that callers branch on.
func controlError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "23503": // foreign_key_violation
		return fmt.Errorf("%w: %s", ErrRunNotFound, pg.Message)
	case "55000": // object_not_in_prerequisite_state
		return fmt.Errorf("%w: %s", ErrRunEnded, pg.Message)
	case "22003": // numeric_value_out_of_range
		return fmt.Errorf("a limit would be larger than it can be (%s): add less", pg.Message)
	}
	return err
}
