package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

func (a *app) newRunWait() *cobra.Command {
	var limit time.Duration
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "wait RUN_ID",
		Short: "Wait until a run has ended, and print its result",
		Long: `Wait until a run has ended, and print its result, byte for byte as the log has it.

Exits with 0 if the run succeeded, 3 if it failed or was cancelled, and 4 if it
had not ended within --timeout; the run itself goes on.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := parseRunID(given[0])
			if err == nil {
				err = checkTimeout(limit)
			}
			if err != nil {
				return err
			}
			return a.runWait(cmd.Context(), id, limit, out)
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "wait no longer than this (0: for ever)")
	out.add(cmd)
	return cmd
}

func checkTimeout(limit time.Duration) error {
	if limit < 0 {
		return usageErrorf("--timeout %s must not be negative", limit)
	}
	return nil
}

func (a *app) runWait(ctx context.Context, id pgexec.RunID, limit time.Duration, out outputFlag) error {
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	client := a.client(pool)
	defer client.Close()
	return a.waitFor(ctx, wait{database{pool, client}, id, limit, out})
}

// errWaitedTooLong is the cause of a wait's end after --timeout.
var errWaitedTooLong = errors.New("not ended in time")

// wait is a run that is waited for.
type wait struct {
	database
	id    pgexec.RunID
	limit time.Duration // 0: for ever
	out   outputFlag
}

// waitFor prints what became of the run; its error carries the exit code.
func (a *app) waitFor(ctx context.Context, w wait) error {
	if w.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.limit, errWaitedTooLong)
		defer cancel()
	}
	run, err := a.waitAloud(ctx, w)
	if err != nil {
		return w.explain(ctx, err)
	}
	if w.out.json() {
		if err := printJSON(a.out, newRunJSON(run)); err != nil {
			return err
		}
	} else if run.Status == pgexec.RunSucceeded {
		fmt.Fprintf(a.out, "%s\n", run.Result)
	}
	if err := run.Err(); err != nil {
		return &exitError{exitRunEnded, err}
	}
	return nil
}

// hintAfter is when somebody who waits begins to wonder.
const hintAfter = 3 * time.Second

// waitAloud waits, and says once what a run that takes its time is waiting for.
func (a *app) waitAloud(ctx context.Context, w wait) (*pgexec.Run, error) {
	short, cancel := context.WithTimeout(ctx, hintAfter)
	defer cancel()
	run, err := w.client.Wait(short, w.id)
	if err == nil || ctx.Err() != nil || short.Err() == nil {
		return run, err
	}
	var status pgexec.RunStatus
	var why string
	// What cannot be read is not said: the wait does not depend on it.
	if err := w.pool.QueryRow(ctx, sql.CliWaits, w.id).Scan(&status, &why); err == nil && why != "" {
		fmt.Fprintf(a.err, "run %s is %s: %s\n", w.id, status, printable(why))
	}
	return w.client.Wait(ctx, w.id)
}

// explain says why a wait has ended before the run.
func (w wait) explain(ctx context.Context, err error) error {
	if errors.Is(err, pgexec.ErrRunNotFound) {
		return unknownRun(err)
	}
	if errors.Is(context.Cause(ctx), errWaitedTooLong) {
		return &exitError{exitTimeout, fmt.Errorf("run %s has not ended within %s; it goes on: pgexec run wait %s", w.id, w.limit, w.id)}
	}
	if sig, ok := caughtSignal(ctx); ok {
		return &exitError{sig.exitCode(), fmt.Errorf("stopped waiting; the run goes on: pgexec run wait %s", w.id)}
	}
	return err
}
