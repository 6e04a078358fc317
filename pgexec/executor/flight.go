package executor

import (
	"cmp"
	"context"

	"github.com/pgexec/runtime/pgexec/graph"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// flight counts what is on its way and comes back through the mailbox.
type flight struct {
	attempts int // handlers that were called, or are about to be
	// line are those of them that wait for slots of the replica, each with what has it leave the line.
	line       map[*attempt]context.CancelFunc
	records    int // sent to the log, of which the commit is not known yet
	ends       int // of these, the ones that end a node
	statements int // in the background
	// spent is what the attempts have spent of which the records are on their way.
	spent graph.Usage
	// marks are those of at-most-once nodes, on the way to the log.
	marks map[*graph.Node]*mark
}

func newFlight() flight {
	return flight{line: make(map[*attempt]context.CancelFunc), marks: make(map[*graph.Node]*mark)}
}

// empty reports that no handler runs and no record is on its way. Statements in the
// background may be.
func (f *flight) empty() bool { return f.attempts == 0 && f.records == 0 }

// sent counts a record that is on its way to the log, back one of which it is known what became of it.
func (f *flight) sent(rec *pb.Record) {
	f.count(rec, 1)
	f.spent.Add(spentBy(rec))
}

func (f *flight) back(rec *pb.Record) {
	f.count(rec, -1)
	f.spent.TakeBack(spentBy(rec))
}

// spentBy is what an attempt has spent, by its record. What a child run has spent is counted with the record's commit: it
// may be counted in part already.
func spentBy(rec *pb.Record) *pb.Usage {
	if rec.GetNode().GetChildRunId() != "" {
		return nil
	}
	return cmp.Or(rec.GetNode().GetUsage(), rec.GetAttemptFailed().GetUsage())
}

func (f *flight) count(rec *pb.Record, n int) {
	f.records += n
	if rec.GetNode() != nil {
		f.ends += n
	}
}

// nodes is the number of nodes that are about to end.
func (f *flight) nodes() int { return f.attempts + f.ends }

// mark notes that an attempt's mark is on the way to the log.
func (f *flight) mark(m *mark) { f.marks[m.node] = m }

// marked lets the handler be called whose mark committed.
func (f *flight) marked(n *graph.Node) {
	if m := f.marks[n]; m != nil {
		delete(f.marks, n)
		m.done <- true
	}
}
