package wake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// Task is a node that a program outside is to do.
type Task struct {
	NodeID string
	Kind   string
	// Attempt counts from 1; each has a task of its own.
	Attempt int
	// Input is JSON text; bytes that no text has reach the worker with a replacement.
	Input []byte
	// AtMostOnce has the task fail when its lease expires, instead of being done by another worker.
	AtMostOnce bool
	// LimitKey is what the limits of its kind are counted by.
	LimitKey string
}

// TasksParams names a run as its owner knows it, and tasks of its nodes.
type TasksParams struct {
	RunID runlog.RunID
	Owner runlog.ReplicaID
	Epoch runlog.Epoch
	Tasks []Task
}

// TaskEnd is a task that has ended, well or not.
type TaskEnd struct {
	TaskID    int64
	NodeID    string
	Attempt   int
	Succeeded bool
	// Output is JSON text, byte for byte as the worker gave it; nil for one that is not small, which [ReadTaskOutput] reads,
	// and of a task that failed.
	Output []byte
	// Error and ErrorCode say why it failed; ErrorCode is [CodeTaskUnknown] for one
	// that was to be done at most once, [CodeTaskUndeclared] for one that is no program's outside any more.
	Error, ErrorCode string
	Permanent        bool
	// RetryAfterUs, when positive, is the least wait before the next attempt.
	RetryAfterUs     int64
	TakenAt, EndedAt time.Time
	// Usage is what the worker says the attempt has used, as protojson has it; nil for nothing.
	Usage []byte
}

// CodeTaskUnknown says that a task that may be done only once was taken and did
// not end in time.
const CodeTaskUnknown = "outcome_unknown"

// CodeTaskUndeclared says that the kind of a task is not declared any more: its
// node is one of replicas again.
const CodeTaskUndeclared = "undeclared"

// MaxTaskEnds bounds the ends that one look returns.
const MaxTaskEnds = 200

// StartTasks makes the tasks of nodes, or finds that they are there already,
// perhaps ended, or ended at once because their kind is not declared any more: existing says so of any. It fails with [runlog.ErrFenced] when
// the run is not the owner's any more, and with [ErrWanted] when it is to be
// paused or cancelled: a run that stops leaves no task. While somebody holds the
// run's row it tries again until ctx is done. Workers hear of new tasks by [Tasks.Announce].
func StartTasks(ctx context.Context, pool *pgxpool.Pool, p TasksParams) (existing bool, err error) {
	for pause := minChildPause; ; pause = min(2*pause, maxChildPause) {
		made, err := startTasks(ctx, pool, p)
		if err == nil {
			return made < len(p.Tasks), nil
		}
		if !errors.Is(err, errBusy) {
			return false, fmt.Errorf("start tasks: %w", err)
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return false, fmt.Errorf("start tasks: the run's row is locked by another session: %w", context.Cause(ctx))
		}
	}
}

var errBusy = errors.New("locked by another session")

// tasksRow says what became of a start.
type tasksRow struct {
	Made    int
	Asked   bool
	Refused bool
	Ours    bool
}

func startTasks(ctx context.Context, pool *pgxpool.Pool, p TasksParams) (made int, err error) {
	n := len(p.Tasks)
	nodes, kinds, attempts := make([]string, n), make([]string, n), make([]int, n)
	inputs, once, keys := make([][]byte, n), make([]bool, n), make([]string, n)
	for i, t := range p.Tasks {
		nodes[i], kinds[i], attempts[i] = t.NodeID, t.Kind, t.Attempt
		inputs[i], once[i], keys[i] = orNull(t.Input), t.AtMostOnce, t.LimitKey
	}
	answer, err := one[tasksRow](ctx, pool, sql.LifeTasks, p.RunID, int32(p.Owner), int64(p.Epoch), nodes, kinds, attempts, inputs, once, keys)
	switch {
	case err != nil:
		return 0, err
	case answer.Asked:
		return answer.Made, nil
	case answer.Refused:
		return 0, ErrWanted
	case !answer.Ours:
		return 0, runlog.ErrFenced
	}
	return 0, errBusy
}

// ReadTaskEnds reads the tasks of a run that have ended, [MaxTaskEnds] at most,
// and removes those that the log has recorded. What it returns is at least as new
// as an inbox that was read before. It waits for no lock.
func ReadTaskEnds(ctx context.Context, pool *pgxpool.Pool, of Logged) ([]TaskEnd, error) {
	ends, err := runlog.QueryPlanned[TaskEnd](ctx, pool, sql.PlanByKey, sql.LifeTaskEnds,
		of.RunID, orNone(of.Tasks), MaxTaskEnds, int64(of.Head), int32(of.Owner), int64(of.Epoch))
	if err != nil {
		return nil, fmt.Errorf("read ended tasks: %w", err)
	}
	return ends, nil
}
