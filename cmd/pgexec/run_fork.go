package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

type runFork struct {
	atSeq   int64
	replace string
	out     outputFlag
}

func (a *app) newRunFork() *cobra.Command {
	var f runFork
	cmd := controlCommand("fork RUN_ID", "Start a new run from a prefix of another one's log",
		func(ctx context.Context, id pgexec.RunID) error { return a.runFork(ctx, id, f) })
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("at-seq") && f.atSeq < 1 {
			return usageErrorf("--at-seq %d: a seq is positive", f.atSeq)
		}
		return nil
	}
	cmd.Long = `Start a new run that begins with the records 1 to --at-seq of another one and goes
on from there. Nothing in that prefix runs again. "pgexec run show" lists a run's
records with their seq.

Prints the new run's id.`
	flags := cmd.Flags()
	flags.Int64Var(&f.atSeq, "at-seq", 0, "the last record of the prefix (default: all there are)")
	flags.StringVar(&f.replace, "replace-output", "", "NODE_ID=JSON: another output for a node that succeeded in the prefix")
	f.out.add(cmd)
	return cmd
}

func (a *app) runFork(ctx context.Context, id pgexec.RunID, f runFork) error {
	opts := &pgexec.ForkOpts{AtSeq: pgexec.Seq(f.atSeq)}
	if f.replace != "" {
		node, text, ok := strings.Cut(f.replace, "=")
		if !ok || node == "" {
			return usageErrorf("--replace-output %q: want NODE_ID=JSON", f.replace)
		}
		output, err := a.readJSON("--replace-output", text)
		if err != nil {
			return err
		}
		opts.ReplaceNode, opts.ReplaceOutput = pgexec.NodeID(node), output
	}
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	fork, err := pgexec.NewClient(pool, nil).Fork(ctx, id, opts)
	if err != nil {
		return unknownRun(err)
	}
	if f.out.json() {
		return printJSON(a.out, map[string]pgexec.RunID{"run_id": fork, "forked_from": id})
	}
	_, err = fmt.Fprintln(a.out, fork)
	return err
}
