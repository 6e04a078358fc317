package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

type runLs struct {
	status []string
	kind   string
	limit  int
	tree   bool
	out    outputFlag
}

var statuses = []pgexec.RunStatus{
	pgexec.RunQueued, pgexec.RunRunning, pgexec.RunParked, pgexec.RunPaused,
	pgexec.RunSucceeded, pgexec.RunFailed, pgexec.RunCancelled,
}

func (a *app) newRunLs() *cobra.Command {
	var l runLs
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List runs, the newest first",
		Args:  args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.runLs(cmd.Context(), l) },
	}
	cmd.Flags().StringSliceVar(&l.status, "status", nil, "only runs of these statuses: queued, running, parked, paused, succeeded, failed, cancelled")
	cmd.Flags().StringVar(&l.kind, "kind", "", "only runs of this kind")
	cmd.Flags().IntVar(&l.limit, "limit", 20, "at most so many")
	cmd.Flags().BoolVar(&l.tree, "tree", false, "only runs that no other one started, each with the runs below it")
	l.out.add(cmd)
	return cmd
}

func (a *app) runLs(ctx context.Context, l runLs) error {
	opts := &pgexec.ListOpts{Kind: l.kind, Limit: l.limit, Roots: l.tree}
	if l.limit < 1 {
		return usageErrorf("--limit %d: want a positive number", l.limit)
	}
	for _, text := range l.status {
		status, err := parseStatus(text)
		if err != nil {
			return err
		}
		opts.Status = append(opts.Status, status)
	}
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	client := pgexec.NewClient(pool, nil)
	runs, err := client.List(ctx, opts)
	if err != nil {
		return err
	}
	var level map[pgexec.RunID]int
	if l.tree {
		if runs, err = a.withDescendants(ctx, client, runs); err != nil {
			return err
		}
		level = levels(runs)
	}
	if l.out.json() {
		return printJSON(a.out, newRunsJSON(runs))
	}
	now, err := databaseNow(ctx, pool)
	if err != nil {
		return err
	}
	return a.printRuns(runs, level, now)
}

func parseStatus(text string) (pgexec.RunStatus, error) {
	for _, s := range statuses {
		if string(s) == text {
			return s, nil
		}
	}
	return "", usageErrorf("--status %q: want one of %q", text, statuses)
}

// printRuns lists runs, each as far to the right as its level in a tree says.
func (a *app) printRuns(runs []*pgexec.Run, level map[pgexec.RunID]int, now time.Time) error {
	t := newTable(a.out, "RUN ID", "KIND", "STATUS", "OWNER", "CREATED", "TOOK", "SPENT", "OUTCOME")
	for _, r := range runs {
		t.row(indent(level[r.ID])+r.ID.String(), clip(r.Kind, 24), string(r.Status), owner(r), ago(now, r.CreatedAt), took(now, r),
			orDash(spent(r.Spent)), orDash(clip(outcome(r), 48)))
	}
	return t.flush()
}
