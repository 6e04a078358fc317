package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

func (a *app) newTask() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task",
		Short: "Look at the work of programs outside",
		Args:  noSuchCommand,
		RunE:  needsCommand,
	}
	cmd.AddCommand(a.newTaskLs())
	return cmd
}

type taskLs struct {
	kind  string
	limit int
	out   outputFlag
}

func (a *app) newTaskLs() *cobra.Command {
	var l taskLs
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the nodes that programs outside are to do, the oldest first",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.limit < 1 {
				return usageErrorf("--limit %d: want a positive number", l.limit)
			}
			return a.taskLs(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&l.kind, "kind", "", "only tasks of this kind")
	cmd.Flags().IntVar(&l.limit, "limit", 20, "at most so many")
	l.out.add(cmd)
	return cmd
}

// taskRow is a task as `task ls -o json` shows it.
type taskRow struct {
	TaskID     int64        `json:"task_id"`
	RunID      pgexec.RunID `json:"run_id"`
	NodeID     string       `json:"node_id"`
	Kind       string       `json:"kind"`
	Attempt    int          `json:"attempt"`
	State      string       `json:"state"`
	Worker     string       `json:"worker,omitempty"`
	LeaseUntil *time.Time   `json:"lease_until,omitempty"`
	Deliveries int          `json:"deliveries"`
	CreatedAt  time.Time    `json:"created_at"`
}

func (a *app) taskLs(ctx context.Context, l taskLs) error {
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	rows, err := pool.Query(ctx, sql.CliTasks, l.kind, l.limit)
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[taskRow])
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	if l.out.json() {
		return printJSON(a.out, tasks)
	}
	t := newTable(a.out, "TASK", "RUN ID", "NODE", "KIND", "ATTEMPT", "STATE", "WORKER", "LEASE UNTIL")
	for _, r := range tasks {
		lease := ""
		if r.LeaseUntil != nil {
			lease = r.LeaseUntil.UTC().Format(time.RFC3339)
		}
		t.row(strconv.FormatInt(r.TaskID, 10), r.RunID.String(), clip(r.NodeID, 24), clip(r.Kind, 24), strconv.Itoa(r.Attempt), r.State,
			orDash(clip(r.Worker, 32)), orDash(lease))
	}
	return t.flush()
}
