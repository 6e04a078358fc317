package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

func (a *app) newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start runs, look at them, wait for them, steer them",
		Args:  noSuchCommand,
		RunE:  needsCommand,
	}
	a.blobs.add(cmd.PersistentFlags())
	cmd.AddCommand(a.newRunStart(), a.newRunLs(), a.newRunShow(), a.newRunWait(),
		a.newRunSignal(), a.newRunCancel(), a.newRunPause(), a.newRunResume(), a.newRunRetry(), a.newRunFork())
	return cmd
}

// runJSON is a run as programs see it: the columns of pgexec.runs.
type runJSON struct {
	RunID          pgexec.RunID      `json:"run_id"`
	Kind           string            `json:"kind"`
	Status         pgexec.RunStatus  `json:"status"`
	Owner          *int32            `json:"owner"`
	Epoch          int64             `json:"epoch"`
	Queue          string            `json:"queue"`
	Priority       int               `json:"priority"`
	Labels         map[string]string `json:"labels"`
	IdempotencyKey *string           `json:"idempotency_key"`
	RunAt          *time.Time        `json:"run_at"` // null while no time makes it due
	CreatedBy      string            `json:"created_by"`
	CreatedAt      time.Time         `json:"created_at"`
	StartedAt      *time.Time        `json:"started_at"`
	FinishedAt     *time.Time        `json:"finished_at"`
	Input          json.RawMessage   `json:"input"`
	Result         json.RawMessage   `json:"result"`
	Error          *string           `json:"error"`
	Reason         *string           `json:"reason"`
	ParentRunID    *pgexec.RunID     `json:"parent_run_id"`
	ParentNodeID   *pgexec.NodeID    `json:"parent_node_id"`
	Depth          int               `json:"depth"`
	InputTokens    int64             `json:"input_tokens"`
	OutputTokens   int64             `json:"output_tokens"`
	CostUSD        *float64          `json:"cost_usd"` // null if it is not known, or not all of it
	Unpriced       int64             `json:"unpriced"`
	NodesDone      int64             `json:"nodes_done"`
	MaxTokens      *int64            `json:"max_tokens"`
	MaxCostUSD     *float64          `json:"max_cost_usd"`
	MaxNodes       *int              `json:"max_nodes"`
	MaxTurns       *int              `json:"max_turns"`
	MaxToolCalls   *int              `json:"max_tool_calls"`
	MaxWallMs      *int64            `json:"max_wall_ms"`
	Deadline       *time.Time        `json:"deadline"`
	MaxParallel    *int              `json:"max_parallel"`
	SoftLimit      float64           `json:"soft_limit"`
}

func newRunJSON(r *pgexec.Run) runJSON {
	l := r.Limits
	return runJSON{
		RunID: r.ID, Kind: r.Kind, Status: r.Status, Owner: orAbsent(r.Owner), Epoch: r.Epoch, Queue: r.Queue,
		Priority: r.Priority, Labels: r.Labels, IdempotencyKey: orAbsent(r.IdempotencyKey), RunAt: orNull(r.RunAt),
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, StartedAt: orNull(r.StartedAt), FinishedAt: orNull(r.FinishedAt),
		Input: r.Input, Result: r.Result, Error: orAbsent(r.Error), Reason: orAbsent(r.Reason),
		ParentRunID: orAbsent(r.ParentRunID), ParentNodeID: orAbsent(r.ParentNodeID), Depth: r.Depth,
		InputTokens: r.Spent.InputTokens, OutputTokens: r.Spent.OutputTokens, CostUSD: knownCost(r.Spent), Unpriced: r.Spent.Unpriced, NodesDone: r.NodesDone,
		MaxTokens: orAbsent(l.MaxTokens), MaxCostUSD: orAbsent(l.MaxCostUSD), MaxNodes: orAbsent(l.MaxNodes),
		MaxTurns: orAbsent(l.MaxTurns), MaxToolCalls: orAbsent(l.MaxToolCalls),
		MaxWallMs: orAbsent(l.MaxWall.Milliseconds()), Deadline: orNull(l.Deadline),
		MaxParallel: orAbsent(l.MaxParallel), SoftLimit: l.SoftLimit,
	}
}

func newRunsJSON(runs []*pgexec.Run) []runJSON {
	list := make([]runJSON, len(runs))
	for i, r := range runs {
		list[i] = newRunJSON(r)
	}
	return list
}

func usd(nano int64) float64 { return float64(nano) / 1e9 }

// orAbsent is the JSON form of a value whose zero means that there is none.
func orAbsent[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// parseRunID reads a run's id from the command line.
func parseRunID(text string) (pgexec.RunID, error) {
	id, err := pgexec.ParseRunID(text)
	if err != nil {
		return id, usageErrorf("%q is not a run's id: want a UUID, as `pgexec run ls` lists them", text)
	}
	return id, nil
}

// outcome is one line about where a run stands.
func outcome(r *pgexec.Run) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Reason != "":
		return r.Reason
	default:
		return string(r.Result)
	}
}

// took is how long a run took, or has taken so far, with its waiting in the queue.
func took(now time.Time, r *pgexec.Run) string {
	end := r.FinishedAt
	if end.IsZero() {
		end = now
	}
	from := r.CreatedAt
	if r.RunAt.After(from) { // it was to start later, or it was parked since
		from = r.RunAt
		if !r.StartedAt.IsZero() && r.StartedAt.Before(from) {
			from = r.StartedAt
		}
	}
	if end.Before(from) {
		return "-"
	}
	return span(end.Sub(from))
}

// owner shows which replica runs it.
func owner(r *pgexec.Run) string {
	if r.Owner == 0 {
		return "-"
	}
	return fmt.Sprint(r.Owner)
}
