package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

// nodeJSON is a node that is done, as the view pgexec.nodes shows it.
type nodeJSON struct {
	Seq        int64           `json:"seq"`
	NodeID     string          `json:"node_id"`
	Kind       string          `json:"kind"`
	Parents    []string        `json:"parents"`
	Status     string          `json:"status"`
	Output     json.RawMessage `json:"output"`
	Error      string          `json:"error,omitempty"`
	Attempt    int64           `json:"attempt"`
	StartedAt  *time.Time      `json:"started_at"`
	FinishedAt *time.Time      `json:"finished_at"`
	ReplicaID  int64           `json:"replica_id"`
}

func (a *app) newRunShow() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "show RUN_ID",
		Short: "Show a run and its nodes that are done",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := parseRunID(given[0])
			if err != nil {
				return err
			}
			return a.runShow(cmd.Context(), id, out)
		},
	}
	out.add(cmd)
	return cmd
}

func (a *app) runShow(ctx context.Context, id pgexec.RunID, out outputFlag) error {
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	run, err := pgexec.NewClient(pool, nil).Get(ctx, id)
	if errors.Is(err, pgexec.ErrRunNotFound) {
		return fmt.Errorf("%w: `pgexec run ls` lists those there are", err)
	}
	if err != nil {
		return err
	}
	nodes, err := readNodes(ctx, pool, id)
	if err != nil {
		return err
	}
	if out.json() {
		return printJSON(a.out, struct {
			runJSON
			Nodes []nodeJSON `json:"nodes"`
		}{newRunJSON(run), nodes})
	}
	now, err := databaseNow(ctx, pool)
	if err != nil {
		return err
	}
	return a.printRun(run, nodes, now)
}

func readNodes(ctx context.Context, pool *pgxpool.Pool, id pgexec.RunID) ([]nodeJSON, error) {
	rows, err := pool.Query(ctx, sql.CliNodes, id)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[nodeJSON])
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return nodes, nil
}

func (a *app) printRun(run *pgexec.Run, nodes []nodeJSON, now time.Time) error {
	fmt.Fprintf(a.out, "run      %s\n", run.ID)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.out, "%-8s %s\n", name, value)
		}
	}
	line("kind", run.Kind)
	line("status", string(run.Status))
	line("reason", run.Reason)
	line("error", run.Error)
	line("created", ago(now, run.CreatedAt)+" by "+run.CreatedBy)
	if run.RunAt.After(run.CreatedAt) {
		line("due", ago(now, run.RunAt))
	}
	line("took", took(now, run))
	if run.Owner != 0 {
		line("owner", "replica "+owner(run))
	}
	line("claims", fmt.Sprint(run.Epoch))
	line("queue", fmt.Sprintf("%s, priority %d", run.Queue, run.Priority))
	line("labels", labelText(run.Labels))
	line("input", clip(string(run.Input), 120))
	line("result", clip(string(run.Result), 120))
	fmt.Fprintln(a.out)
	return a.printNodes(nodes)
}

func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	raw, err := json.Marshal(labels)
	if err != nil {
		return fmt.Sprint(labels)
	}
	return string(raw)
}

func (a *app) printNodes(nodes []nodeJSON) error {
	if len(nodes) == 0 {
		fmt.Fprintln(a.out, "no node is done yet")
		return nil
	}
	t := newTable(a.out, "SEQ", "NODE", "KIND", "AFTER", "STATUS", "TOOK", "REPLICA", "OUTPUT")
	for _, n := range nodes {
		took := "-"
		if n.StartedAt != nil && n.FinishedAt != nil {
			took = span(n.FinishedAt.Sub(*n.StartedAt))
		}
		status := n.Status
		if n.Attempt > 1 {
			status += fmt.Sprintf(" (attempt %d)", n.Attempt)
		}
		output := string(n.Output)
		if n.Error != "" {
			output = n.Error
		}
		t.row(fmt.Sprint(n.Seq), clip(n.NodeID, 32), clip(n.Kind, 24), orDash(clip(strings.Join(n.Parents, ", "), 32)),
			orDash(status), took, fmt.Sprint(n.ReplicaID), orDash(clip(output, 60)))
	}
	return t.flush()
}
