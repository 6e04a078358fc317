package runlog

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced says that the run is no longer ours: another claim, or a failover that lost
	// commits of ours. Nothing of the refused records is in the log. What is in memory
	// of the run is worthless; drop it.
	ErrFenced = errors.New("run is no longer ours")

	// ErrChanged says that the run was not ended or paused because something has reached it from
	// outside that the decision does not know: a signal, a request, a changed limit, the end of a child.
	// Nothing has been written, and the run is still ours.
	ErrChanged = errors.New("something has reached the run meanwhile")

	// errBusy says that another session holds the lock of a row that the end of a run changes.
	errBusy = errors.New("the row of the run, or of its parent, is locked by another session")

	// ErrTxEnded says that a transaction begun by [BeginTx] was ended by something else than an append, with SQL or on
	// its connection: what was committed by that is there, and the record is not.
	ErrTxEnded = errors.New("the handler ended the transaction of the node's record itself: what it committed with that stays; return from the handler to commit, or with an error to roll back")

	// ErrTxUndoes says that the record does not fit into the log or the run as its own transaction has left them, while
	// without it the run is ours.
	ErrTxUndoes = errors.New("the handler has changed the log or the row of its own run in the transaction of the node's record, so that the record has no place: it was rolled back")

	// ErrClosed says that the writer was closed or aborted before the record was confirmed.
	// Whether the record is in the log is not known.
	ErrClosed = errors.New("log writer is closed")
)

// GapError says that a log is not seq 1…n. No writer can cause it (G2); it means that rows
// were deleted by hand or that storage is damaged.
type GapError struct {
	RunID RunID
	Want  Seq
	Got   Seq
}

func (e *GapError) Error() string {
	return fmt.Sprintf("log of run %s has a gap: record %d is missing, the next one there is %d", e.RunID, e.Want, e.Got)
}

// DecodeError says that a record is not one, or not one of this format: storage is damaged, or
// somebody has written the row by hand.
type DecodeError struct {
	RunID RunID
	Seq   Seq
	Err   error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode record %d of run %s: %v", e.Seq, e.RunID, e.Err)
}

// Unwrap returns what the decoder said.
func (e *DecodeError) Unwrap() error { return e.Err }

// TooLargeError says that a record is over the hard limit. It is permanent: the same record
// will never fit.
type TooLargeError struct {
	NodeID string
	Size   int
	Limit  int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("record of node %q has %d bytes, the limit is %d", e.NodeID, e.Size, e.Limit)
}

// TxError says that a transaction which was to commit with a record did not: neither is there.
type TxError struct{ Err error }

func (e *TxError) Error() string { return "commit with the node's record: " + e.Err.Error() }

// Unwrap returns what the database said.
func (e *TxError) Unwrap() error { return e.Err }
