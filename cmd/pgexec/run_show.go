package main

import (
	"context"
	"encoding/json"
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
	Tokens     int64           `json:"tokens"`
	CostUSD    *float64        `json:"cost_usd"` // null if it is not known
}

func (a *app) newRunShow() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "show RUN_ID",
		Short: "Show a run, its nodes that are done and the runs below it",
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
	client := pgexec.NewClient(pool, nil)
	run, err := client.Get(ctx, id)
	if err != nil {
		return unknownRun(err)
	}
	tree, err := a.withDescendants(ctx, client, []*pgexec.Run{run})
	if err != nil {
		return err
	}
	if out.json() {
		nodes, err := readNodes[nodeJSON](ctx, pool, sql.CliNodes, id)
		if err != nil {
			return err
		}
		return printJSON(a.out, struct {
			runJSON
			Nodes       []nodeJSON `json:"nodes"`
			Descendants []runJSON  `json:"descendants"`
		}{newRunJSON(run), nodes, newRunsJSON(tree[1:])})
	}
	nodes, err := readNodes[nodeLine](ctx, pool, sql.CliNodeLines, id, outcomeChars+1)
	if err != nil {
		return err
	}
	now, err := databaseNow(ctx, pool)
	if err != nil {
		return err
	}
	a.printRun(run, now)
	if err := a.printNodes(nodes); err != nil || len(tree) == 1 {
		return err
	}
	fmt.Fprintln(a.out)
	return a.printTree(tree[1:], now)
}

// readNodes reads the nodes of a run that are done, as nodeJSON or as nodeLine.
func readNodes[T any](ctx context.Context, pool *pgxpool.Pool, statement string, args ...any) ([]T, error) {
	rows, err := pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return nodes, nil
}

func (a *app) printRun(run *pgexec.Run, now time.Time) {
	fmt.Fprintf(a.out, "run      %s\n", run.ID)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.out, "%-8s %s\n", name, printableLines(value, "         "))
		}
	}
	line("kind", run.Kind)
	line("status", string(run.Status))
	line("reason", run.Reason)
	line("error", run.Error)
	if run.Depth > 0 {
		line("parent", fmt.Sprintf("%s, node %s", run.ParentRunID, run.ParentNodeID))
	}
	line("created", ago(now, run.CreatedAt)+" by "+run.CreatedBy)
	if run.RunAt.After(now) {
		line("due", ago(now, run.RunAt))
	}
	line("took", took(now, run))
	if run.Owner != 0 {
		line("owner", "replica "+owner(run))
	}
	line("claims", fmt.Sprint(run.Epoch))
	line("queue", fmt.Sprintf("%s, priority %d", run.Queue, run.Priority))
	line("labels", labelText(run.Labels))
	line("limits", limitText(run.Limits, now))
	line("spent", spentText(run))
	line("input", clipJSON(run.Input, 120))
	line("result", clipJSON(run.Result, 120))
	fmt.Fprintln(a.out)
}

// spentText is what the run has spent, with what failed attempts and ended child runs have; nothing if that and the
// number of nodes are of no interest.
func spentText(run *pgexec.Run) string {
	nodes, used := counted(run.NodesDone, "node"), spent(run.Spent)
	switch {
	case used != "":
		return nodes + ", " + used
	case run.Limits.MaxNodes > 0:
		return nodes
	default:
		return ""
	}
}

// printTree lists the runs below one, with the nodes they are the execution of.
func (a *app) printTree(runs []*pgexec.Run, now time.Time) error {
	t := newTable(a.out, "CHILD RUN", "NODE", "KIND", "STATUS", "OWNER", "TOOK", "SPENT", "OUTCOME")
	level := levels(runs)
	for _, r := range runs {
		t.row(indent(level[r.ID])+r.ID.String(), clip(string(r.ParentNodeID), 32), clip(r.Kind, 24), string(r.Status), owner(r), took(now, r),
			orDash(spent(r.Spent)), orDash(clip(outcome(r), 48)))
	}
	return t.flush()
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

// outcomeChars is how much of a node's output or error is shown.
const outcomeChars = 60

// nodeLine is what one line shows of a node that is done.
type nodeLine struct {
	Seq                   int64
	NodeID, Kind          string
	Parents               []string
	Status                string
	Attempt               int64
	StartedAt, FinishedAt *time.Time
	ReplicaID             int64
	Outcome               string
}

func (a *app) printNodes(nodes []nodeLine) error {
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
		t.row(fmt.Sprint(n.Seq), clip(n.NodeID, 32), clip(n.Kind, 24), orDash(clip(strings.Join(n.Parents, ", "), 32)),
			orDash(status), took, fmt.Sprint(n.ReplicaID), orDash(clip(n.Outcome, outcomeChars)))
	}
	return t.flush()
}
