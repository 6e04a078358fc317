package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/wake"
)

type runStart struct {
	input  string
	runAt  string
	labels []string
	limits limitFlags
	opts   pgexec.StartOpts
	wait   bool
	limit  time.Duration
	out    outputFlag
}

func (a *app) newRunStart() *cobra.Command {
	var s runStart
	cmd := &cobra.Command{
		Use:   "start KIND",
		Short: "Start a run, and print its id",
		Long: `Start a run of that kind, and print its id. The run is durable when the id is
printed; some replica that has the kind executes it.

With --wait, the result goes to standard output when the run has ended, and the
exit code is that of "pgexec run wait".`,
		Example: `  pgexec run start graph --input @graph.json
  pgexec run start sql --input '{"sql": "select now()"}' --wait`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error { return a.runStart(cmd.Context(), given[0], s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.input, "input", "{}", "the input: JSON, @FILE, or - for standard input")
	flags.StringVar(&s.opts.IdempotencyKey, "idempotency-key", "", "start at most one run with this key; a repeat prints the first one's id")
	flags.StringVar(&s.runAt, "run-at", "", "start no earlier: a time such as 2030-01-31T09:00:00Z, or a duration from now such as 90s")
	flags.StringVar(&s.opts.Queue, "queue", "default", "the queue; replicas serve the queues they were told to")
	flags.IntVar(&s.opts.Priority, "priority", 2, "1, most urgent, to 4")
	flags.StringArrayVar(&s.labels, "label", nil, "NAME=VALUE, for whoever looks for the run; may be repeated")
	s.limits.add(cmd)
	flags.BoolVar(&s.wait, "wait", false, "wait until the run has ended, and print its result")
	flags.DurationVar(&s.limit, "timeout", 0, "with --wait: wait no longer than this (0: for ever)")
	s.out.add(cmd)
	return cmd
}

// check is about what needs no database: nothing of it is found wrong when the run has started.
func (s *runStart) check() error {
	if s.opts.Priority < 1 || s.opts.Priority > 4 {
		return usageErrorf("--priority %d is not between 1 and 4", s.opts.Priority)
	}
	if err := wake.CheckQueues([]string{s.opts.Queue}); err != nil {
		return usageErrorf("--queue: %w", err)
	}
	if s.limit != 0 && !s.wait {
		return usageErrorf("--timeout %s bounds what --wait does: add --wait, or leave it out", s.limit)
	}
	if err := checkTimeout(s.limit); err != nil {
		return err
	}
	return s.limits.check()
}

func (a *app) runStart(ctx context.Context, kind string, s runStart) error {
	if err := s.check(); err != nil {
		return err
	}
	input, err := a.readJSON("--input", s.input)
	if err != nil {
		return err
	}
	if s.opts.Labels, err = parseLabels(s.labels); err != nil {
		return err
	}
	runAt, err := parseMoment("--run-at", s.runAt)
	if err != nil {
		return err
	}
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if s.opts.RunAt, err = runAt.on(ctx, pool); err != nil {
		return err
	}
	if s.opts.Limits, err = s.limits.on(ctx, pool); err != nil {
		return err
	}
	client := a.client(pool)
	defer client.Close()
	id, err := client.Start(ctx, kind, input, &s.opts)
	if errors.Is(err, pgexec.ErrIdempotencyMismatch) {
		return fmt.Errorf("%w: use another key", err)
	}
	if err != nil {
		return err
	}
	if s.wait {
		fmt.Fprintf(a.err, "started run %s\n", id)
		return a.waitFor(ctx, wait{database{pool, client}, id, s.limit, s.out})
	}
	if s.out.json() {
		return printJSON(a.out, map[string]any{"run_id": id})
	}
	_, err = fmt.Fprintln(a.out, id)
	return err
}

// readJSON returns the bytes of a value untouched: they may be more than a decoder keeps.
func (a *app) readJSON(flag, given string) (json.RawMessage, error) {
	raw, from := []byte(given), flag
	var err error
	switch file, isFile := strings.CutPrefix(given, "@"); {
	case given == "-":
		raw, err = io.ReadAll(a.in)
		from = "standard input"
	case isFile:
		raw, err = os.ReadFile(file)
		from = file
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	if !json.Valid(raw) {
		var v json.RawMessage // only to learn what is wrong
		return nil, usageErrorf("what %s holds is not JSON: %w", from, json.Unmarshal(raw, &v))
	}
	return raw, nil
}

func parseLabels(given []string) (map[string]string, error) {
	labels := make(map[string]string, len(given))
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usageErrorf("--label %q: want NAME=VALUE", text)
		}
		labels[name] = value
	}
	return labels, nil
}
