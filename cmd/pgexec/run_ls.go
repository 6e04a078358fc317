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
	l.out.add(cmd)
	return cmd
}

func (a *app) runLs(ctx context.Context, l runLs) error {
	opts := &pgexec.ListOpts{Kind: l.kind, Limit: l.limit}
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
	runs, err := pgexec.NewClient(pool, nil).List(ctx, opts)
	if err != nil {
		return err
	}
	if l.out.json() {
		return a.printRunsJSON(runs)
	}
	now, err := databaseNow(ctx, pool)
	if err != nil {
		return err
	}
	return a.printRuns(runs, now)
}

func parseStatus(text string) (pgexec.RunStatus, error) {
	for _, s := range statuses {
		if string(s) == text {
			return s, nil
		}
	}
	return "", usageErrorf("--status %q: want one of %q", text, statuses)
}

func (a *app) printRunsJSON(runs []*pgexec.Run) error {
	list := make([]runJSON, len(runs))
	for i, r := range runs {
		list[i] = newRunJSON(r)
	}
	return printJSON(a.out, list)
}

func (a *app) printRuns(runs []*pgexec.Run, now time.Time) error {
	t := newTable(a.out, "RUN ID", "KIND", "STATUS", "OWNER", "CREATED", "TOOK", "OUTCOME")
	for _, r := range runs {
		t.row(r.ID.String(), clip(r.Kind, 24), string(r.Status), owner(r), ago(now, r.CreatedAt), took(now, r),
			orDash(clip(outcome(r), 48)))
	}
	return t.flush()
}
