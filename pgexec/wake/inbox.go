package wake

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

var (
	// ErrNoRun says that the run's row is gone: somebody deleted it.
	ErrNoRun = errors.New("no such run")
	// ErrDamaged says that a record cannot be read, now or later.
	ErrDamaged = errors.New("record is damaged")
)

// Limits is what a run may spend.
type Limits = runlog.Limits

// Signal is a message to a run that its log has not consumed yet, as far as the table shows.
type Signal struct {
	ID   int64
	Name string
	// NodeID is the waiting node it is meant for; empty for any wait of that name.
	NodeID string
	// Payload is JSON text; nil for one that is not small, or is one of many, which [ReadSignal] reads.
	Payload []byte
	// SentUs is when it was sent, in microseconds since the Unix epoch.
	SentUs int64
}

// ChildEnd is a child run that has ended.
type ChildEnd struct {
	// NodeID is the parent's node that waits for it.
	NodeID string
	RunID  runlog.RunID
	// Status is succeeded, failed or cancelled.
	Status string
	Error  string
	// Output is the result as the child's log has it, JSON null if there is none.
	Output *pb.Payload
	// What the child has spent, its own children included.
	InputTokens, OutputTokens, CostNanoUSD, Unpriced, Nodes int64
}

// Inbox is what has reached a run from outside, as of one snapshot.
type Inbox struct {
	// Seen is the version of all of it, which [Park] names.
	Seen int64
	// Wanted is "pause", "cancel" or empty.
	Wanted, WantedReason string
	Limits               Limits
	// Signals in the order in which they were sent, the first [MaxSignals]. Some may be consumed: the log is the truth.
	Signals []Signal
	// MoreSignals: there may be others, of which [FindSignals] finds those that somebody waits for.
	MoreSignals bool
	// Children that have ended, of the nodes that were asked for.
	Children []ChildEnd
	// MoreChildren: others may have ended, and would have made this too large.
	MoreChildren bool
	// Tasks that have ended, as [ReadTaskEnds] finds them.
	Tasks []TaskEnd
}

// What one look returns is bounded, however much others have sent: by the number of signals, and by the bytes of
// payloads and of results of child runs.
const (
	MaxSignals   = 1000
	maxLookBytes = 1 << 20
)

// inboxRow is one signal or one child's end, or neither, beside what every row has.
type inboxRow struct {
	Seen                 int64
	Wanted, WantedReason string
	runlog.Limits
	SignalID     *int64 // 0 for a child, null for neither
	NodeID, What string // What is a signal's name or a child's status
	Payload      []byte
	SentUs       int64
	Child        *runlog.RunID
	Error        string
	Record       []byte
	InputTokens  int64
	OutputTokens int64
	CostNanoUSD  int64
	Unpriced     int64
	Nodes        int64
}

// Logged is a run's log as an owner knows it, and what it has dealt with. Nothing is marked or removed for an owner that is
// not the run's any more, or whose log is not there any more: of what another one does, or a failover has lost, it knows nothing (C03).
type Logged struct {
	RunID runlog.RunID
	Owner runlog.ReplicaID
	Epoch runlog.Epoch
	// Head is the seq of a record of ours behind all that says so.
	Head runlog.Seq
	// Signals are consumed, and the ends of Tasks recorded.
	Signals, Tasks []int64
}

// ReadInbox reads what has reached the run, with the ends of the child runs
// that the given nodes wait for. The signals that the log has consumed are
// marked on the way, so that they are not read again. It waits for no lock.
func ReadInbox(ctx context.Context, pool *pgxpool.Pool, of Logged, childNodes []string) (Inbox, error) {
	found, err := runlog.QueryPlanned[inboxRow](ctx, pool, sql.PlanByKey, sql.LifeInbox,
		of.RunID, orNone(of.Signals), childNodes, MaxSignals, maxLookBytes, int64(of.Head), int32(of.Owner), int64(of.Epoch))
	if err != nil {
		return Inbox{}, fmt.Errorf("read inbox: %w", err)
	}
	if len(found) == 0 {
		return Inbox{}, fmt.Errorf("read inbox: %w: %s", ErrNoRun, of.RunID)
	}
	first := found[0]
	in := Inbox{Seen: first.Seen, Wanted: first.Wanted, WantedReason: first.WantedReason, Limits: first.Limits}
	ends := 0
	for _, r := range found {
		switch {
		case r.Child != nil:
			ends += len(r.Record) + len(r.Error)
			end, err := r.childEnd()
			if err != nil {
				return Inbox{}, err
			}
			in.Children = append(in.Children, end)
		case r.SignalID != nil:
			in.Signals = append(in.Signals, Signal{ID: *r.SignalID, Name: r.What, NodeID: r.NodeID, Payload: r.Payload, SentUs: r.SentUs})
		}
	}
	in.MoreSignals, in.MoreChildren = len(in.Signals) >= MaxSignals, ends >= maxLookBytes
	return in, nil
}

// SignalWait is what a wait for a signal takes.
type SignalWait struct {
	Name   string
	NodeID string
	// Addressed: nothing but what is addressed to the node.
	Addressed bool
	// SinceUs is the earliest time of sending, in microseconds since the Unix epoch.
	SinceUs int64
}

// FindSignals reads the signals that end one of the waits, in the order in which they were sent, the first [MaxSignals]. It waits for no lock.
func FindSignals(ctx context.Context, pool *pgxpool.Pool, id runlog.RunID, waits []SignalWait) ([]Signal, error) {
	n := len(waits)
	names, nodes, addressed, since := make([]string, n), make([]string, n), make([]bool, n), make([]int64, n)
	for i, w := range waits {
		names[i], nodes[i], addressed[i], since[i] = w.Name, w.NodeID, w.Addressed, w.SinceUs
	}
	found, err := runlog.QueryPlanned[Signal](ctx, pool, sql.PlanByKey, sql.LifeSignals, id, names, nodes, addressed, since, MaxSignals, maxLookBytes)
	if err != nil {
		return nil, fmt.Errorf("find signals: %w", err)
	}
	return found, nil
}

// orNone is an empty list instead of NULL.
func orNone(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}

func (r inboxRow) childEnd() (ChildEnd, error) {
	end := ChildEnd{
		NodeID: r.NodeID, RunID: *r.Child, Status: r.What, Error: r.Error,
		InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CostNanoUSD: r.CostNanoUSD, Unpriced: r.Unpriced, Nodes: r.Nodes,
	}
	rec, err := runlog.Decode(r.Record)
	if err != nil {
		return end, fmt.Errorf("%w: result of child run %s: %w", ErrDamaged, end.RunID, err)
	}
	if end.Output = rec.GetNode().GetOutput(); end.Output == nil {
		end.Output = &pb.Payload{Value: &pb.Payload_Json{Json: []byte("null")}}
	}
	return end, nil
}
