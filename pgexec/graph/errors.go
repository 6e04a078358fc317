package graph

import "fmt"

// SpecError says what is wrong with the record a node is about to end with.
// The fault is the handler's: another attempt makes sense only if it would
// return something else.
type SpecError struct {
	// NodeID is the node the fault is about: the one that ends, or one it spawns.
	NodeID NodeID
	// Fault says what is wrong and names the ids involved.
	Fault string
}

// Error names the node and the fault.
func (e *SpecError) Error() string {
	return fmt.Sprintf("node %s: %s", quoteID(e.NodeID), e.Fault)
}

// CorruptError says that a record cannot be part of the log it was found in.
type CorruptError struct {
	// Seq is the position of the record.
	Seq int64
	// Found says what was found there.
	Found string
	// Err is the SpecError behind it, if there is one.
	Err error
}

// Error names the position and what was found there.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("log corrupt at seq %d: %s", e.Seq, e.Found)
}

// Unwrap returns Err.
func (e *CorruptError) Unwrap() error { return e.Err }

// quoteID quotes an id for a message; ids can be anything, so a long one is cut.
func quoteID[T ~string](id T) string {
	const most = 80
	if len(id) > most {
		return fmt.Sprintf("%q… (%d bytes)", string(id[:most]), len(id))
	}
	return fmt.Sprintf("%q", string(id))
}
