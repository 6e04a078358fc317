package executor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

const (
	// maxDepth bounds how deep runs nest; a run that nobody else's node started has depth 0.
	maxDepth = 8
	// statementTimeout bounds each statement a run makes beside its appends.
	statementTimeout = 10 * time.Second
)

// ChildID derives the id of a node's child run: the same however often the node
// is started, so that a repeated start is the same child. It keeps the parent's
// time prefix, so that a tree of runs lives in one partition of the log.
func ChildID(parent runlog.RunID, node graph.NodeID) runlog.RunID {
	sum := sha256.Sum256(append(parent[:], node...))
	var id runlog.RunID
	copy(id[:], sum[:])
	copy(id[:6], parent[:6])
	id[6] = id[6]&0x0f | 0x80 // version 8: an id of the application's own making
	id[8] = id[8]&0x3f | 0x80
	return id
}

func checkRunInput(input []byte) error {
	var in runInput
	if err := strict(input, &in); err != nil {
		return err
	}
	switch {
	case in.Kind == "":
		return errors.New(`"kind" is missing: the kind of the child run`)
	case in.MaxTokens < 0 || in.MaxCostUSD < 0 || in.MaxNodes < 0 || in.MaxWallMs < 0:
		return errors.New("a limit is negative")
	}
	return nil
}

// startChild makes the child run of a run node, in the background.
func (r *Run) startChild(w *wait, input []byte) {
	if r.claimed.Depth >= maxDepth {
		r.failWait(w, &Failure{Err: fmt.Errorf("runs nest %d deep already; no child is started", maxDepth), Code: "too_deep"})
		return
	}
	var in runInput
	if err := strict(input, &in); err != nil {
		r.failWait(w, &Failure{Err: err, Code: "bad_input"})
		return
	}
	if err := checkSize("child run", in.Input); err != nil {
		r.failWait(w, asFailure(r.ctx, err))
		return
	}
	// A run that stops, or is at a limit, starts none; one that is started already is in flight and waited for.
	onlyFind := r.stopping() || r.limitReached() != ""
	if !onlyFind {
		r.waiting.count(w)
	}
	params := wake.ChildParams{
		ParentID:     r.claimed.RunID,
		Owner:        r.x.ReplicaID,
		Epoch:        r.claimed.Epoch,
		ParentNodeID: string(w.node.ID),
		ChildID:      w.child,
		Kind:         in.Kind,
		Input:        in.Input,
		Limits:       r.budget().leftFor(in.limits()),
		Priority:     r.claimed.Priority,
		OnlyFind:     onlyFind,
	}
	r.inBackgroundFor(timeFor(len(in.Input)), func(ctx context.Context) event {
		queue, err := wake.StartChild(ctx, r.x.Pool, params)
		if queue != "" {
			r.x.Writer.TellQueues([]string{queue})
		}
		return event{childOf: w, err: err}
	})
}

// checkSize refuses an input that is longer than the database takes.
func checkSize(of string, input []byte) error {
	if len(input) <= wake.MaxJSONBytes {
		return nil
	}
	err := fmt.Errorf("the input of the %s has %d bytes, the limit is %d: give it a value that stands for a blob", of, len(input), wake.MaxJSONBytes)
	return &Failure{Err: err, Code: "input_too_large", Permanent: true}
}

// timeFor bounds a statement with an input of that size: a large one takes the database its time, of which a second
// for each MiB is far more.
func timeFor(size int) time.Duration { return statementTimeout + time.Duration(size>>20)*time.Second }

// inBackground runs a statement outside of the owner goroutine; its event comes through the mailbox.
func (r *Run) inBackground(f func(context.Context) event) { r.inBackgroundFor(statementTimeout, f) }

func (r *Run) inBackgroundFor(limit time.Duration, f func(context.Context) event) {
	r.flight.statements++
	go func() {
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		defer cancel()
		r.mail.put(f(ctx))
	}()
}

// childStarted looks for the child's end, which may be there already; a child
// that could not be started is tried again, unless it never can be. The start may fail although the child
// is there, and even its end seen: then there is nothing more to wait for.
func (r *Run) childStarted(w *wait, err error) {
	switch {
	case w.ending:
	case err == nil:
		r.waiting.count(w)
		r.look()
	case errors.Is(err, wake.ErrNotStarted): // held until the limit is raised
		r.waiting.drop(w)
		r.ready.enqueue(w.node)
	case errors.Is(err, runlog.ErrFenced):
		r.look() // not ours any more, or being cancelled: the inbox tells which
		r.retryChild(w)
	case refusesData(err), errors.Is(err, wake.ErrNoChild):
		r.failWait(w, &Failure{Err: err, Code: "bad_input"})
	default:
		r.log.Warn("start child run, trying again", "node_id", w.node.ID, "error", err)
		r.retryChild(w)
	}
}

// retryChild starts the child, or makes the task, again in a moment: the wait is due, and begins anew.
func (r *Run) retryChild(w *wait) {
	r.waiting.drop(w)
	r.waiting.timers[w.node] = r.after(time.Second, w.node)
}

// matchChildren ends the waits whose child runs have ended.
func (r *Run) matchChildren() {
	used := 0
	for _, c := range r.outside.inbox.Children {
		n := r.g.Node(graph.NodeID(c.NodeID))
		w := r.waiting.waits[n]
		if w == nil || w.ending || n.Kind != KindRun || c.RunID != w.child {
			continue
		}
		used++
		end := &pb.Node{
			ChildRunId: c.RunID.String(),
			Usage:      &pb.Usage{InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, CostNanoUsd: c.CostNanoUSD, Unpriced: c.Unpriced},
		}
		if c.Status == "succeeded" {
			end.Output = c.Output
			r.endWait(w, end)
			continue
		}
		r.failWaitAs(w, end, &Failure{Err: fmt.Errorf("child run %s %s: %s", c.RunID, c.Status, c.Error), Code: "child_" + c.Status})
	}
	if used > 0 && r.outside.inbox.MoreChildren {
		r.look()
	}
}
