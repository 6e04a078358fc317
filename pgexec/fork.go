package pgexec

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/sql"
)

// ErrBadFork means that the run has no such prefix, or no such output in it.
var ErrBadFork = errors.New("cannot fork there")

// ForkOpts are the optional parts of a fork.
type ForkOpts struct {
	// AtSeq is the last record of the prefix. Defaults to all records there are.
	AtSeq Seq
	// ReplaceNode is a node that succeeded in the prefix, whose output becomes
	// ReplaceOutput in the fork: what a node after it sees.
	ReplaceNode   NodeID
	ReplaceOutput any
}

// Fork makes a new run that begins with a prefix of another one's log and goes
// on from there. Nothing in the prefix is executed again, ended child runs are
// in it as results, and the other run is not touched. The new run keeps kind,
// input, limits, queue and labels; pgexec.runs.forked_from names its origin.
// The error is [ErrRunNotFound] or [ErrBadFork] if there is nothing to fork.
func (c *Client) Fork(ctx context.Context, id RunID, opts *ForkOpts) (RunID, error) {
	if opts == nil {
		opts = &ForkOpts{}
	}
	var output any
	if opts.ReplaceNode != "" {
		raw, err := encodeJSON(opts.ReplaceOutput)
		if err != nil {
			return RunID{}, fmt.Errorf("output of node %s: %w", opts.ReplaceNode, err)
		}
		output = string(raw)
	}
	var fork RunID
	err := c.inTx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql.ClientFork, id, orNil(opts.AtSeq), orNil(string(opts.ReplaceNode)), output).Scan(&fork)
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "22023" { // invalid_parameter_value
		err = fmt.Errorf("%w: %s", ErrBadFork, pg.Message)
	}
	if err != nil {
		return RunID{}, fmt.Errorf("fork run %s: %w", id, controlError(startError(err)))
	}
	return fork, nil
}
