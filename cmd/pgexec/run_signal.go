package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

type runSignal struct {
	payload string
	node    string
	dedupe  string
	out     outputFlag
}

func (a *app) newRunSignal() *cobra.Command {
	var s runSignal
	cmd := &cobra.Command{
		Use:   "signal RUN_ID NAME",
		Short: "Send a message to a run that waits for it, or will",
		Long: `Send a message to a run. It is consumed once, by a node that waits for a signal of
that name or that will: it does not matter which of the two comes first.

Prints "sent". Exits with 1 if the run has ended, since nothing can consume it.`,
		Example: `  pgexec run signal 01a227d7-0b93-7229-8735-e31b5f949962 approval --node approve-refund --payload '{"ok": true}'`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := parseRunID(given[0])
			if err != nil {
				return err
			}
			return a.runSignal(cmd.Context(), id, given[1], s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.payload, "payload", "null", "the output of the node that waits: JSON, @FILE, or - for standard input")
	flags.StringVar(&s.node, "node", "", "only for the node of this id (default: any that waits for the name)")
	flags.StringVar(&s.dedupe, "dedupe-key", "", "send at most one signal with this key to the run; a repeat changes nothing")
	s.out.add(cmd)
	return cmd
}

func (a *app) runSignal(ctx context.Context, id pgexec.RunID, name string, s runSignal) error {
	if name == "" {
		return usageErrorf("the name of the signal is empty")
	}
	payload, err := a.readJSON("--payload", s.payload)
	if err != nil {
		return err
	}
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	opts := &pgexec.SignalOpts{NodeID: pgexec.NodeID(s.node), DedupeKey: s.dedupe}
	if err := pgexec.NewClient(pool, nil).Signal(ctx, id, name, payload, opts); err != nil {
		return unknownRun(err)
	}
	if s.out.json() {
		return printJSON(a.out, answerJSON{RunID: id, Answer: "sent"})
	}
	_, err = fmt.Fprintln(a.out, "sent")
	return err
}
