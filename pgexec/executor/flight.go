package executor

import "github.com/pgexec/runtime/pgexec/graph"

// flight counts what is on its way and comes back through the mailbox.
type flight struct {
	attempts   int // handlers that were called, or are about to be
	records    int // sent to the log, of which the commit is not known yet
	statements int // in the background
	// marks are those of at-most-once nodes, on the way to the log.
	marks map[*graph.Node]*mark
}

// empty reports that no handler runs and no record is on its way. Statements in the
// background may be.
func (f *flight) empty() bool { return f.attempts == 0 && f.records == 0 }

// mark notes that an attempt's mark is on the way to the log.
func (f *flight) mark(m *mark) { f.marks[m.node] = m }

// marked lets the handler be called whose mark committed.
func (f *flight) marked(n *graph.Node) {
	if m := f.marks[n]; m != nil {
		delete(f.marks, n)
		m.done <- true
	}
}
