package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Kinds of nodes that wait. They have no handler and no goroutine: the owner
// goroutine ends them when what they wait for is there.
const (
	KindSleep    = "sleep"
	KindSignal   = "signal"
	KindApproval = "approval"
	KindRun      = "run"
)

// IsWait reports whether nodes of that kind wait instead of run.
func IsWait(kind string) bool {
	return kind == KindSleep || kind == KindSignal || kind == KindApproval || kind == KindRun
}

// maxSignalName is the database's own bound.
const maxSignalName = 1024

// sleepInput is the input of a sleep node: one of the two.
type sleepInput struct {
	For   *duration  `json:"for"`
	Until *time.Time `json:"until"`
}

// signalInput is the input of a signal node. Without a timeout it waits for
// ever; at the timeout it ends with the default, or fails if there is none. What
// it is about is for whoever sends it.
type signalInput struct {
	About   json.RawMessage `json:"about"`
	Name    string          `json:"name"`
	Timeout *duration       `json:"timeout"`
	Default json.RawMessage `json:"default"`
}

// runInput is the input of a run node: a child run with limits of its own.
type runInput struct {
	Kind       string          `json:"kind"`
	Input      json.RawMessage `json:"input"`
	MaxTokens  int64           `json:"max_tokens"`
	MaxCostUSD float64         `json:"max_cost_usd"`
	MaxNodes   int64           `json:"max_nodes"`
	MaxWallMs  int64           `json:"max_wall_ms"`
	Deadline   *time.Time      `json:"deadline"`
}

// duration reads Go's text form of a duration, as in "1h30m".
type duration time.Duration

func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("a duration is text such as \"90s\" or \"24h\", not %s", raw)
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration such as \"90s\" or \"24h\"", text)
	}
	*d = duration(v)
	return nil
}

// wait is a node that waits.
type wait struct {
	node *graph.Node
	// dueUs is when time alone ends the wait, on the database's clock; 0 for never.
	dueUs  int64
	timer  *time.Timer
	signal signalInput     // of a signal node
	args   json.RawMessage // of an approval node
	child  runlog.RunID    // of a run node
	task   *task           // of a node that programs outside do
	// counted: the child or the task is one of those in flight.
	counted bool
	// asks: the node is no wait by its kind, but its outcome is unknown and a person is asked.
	asks bool
	// sinceUs is when the attempt began that is in doubt: what was sent before is about another one.
	sinceUs int64
	// overdue: its time has come, and the inbox is being read once more.
	overdue bool
	// ending: its record is on the way to the log, or what it began or ended with is being read or kept.
	ending bool
}

// takesSignal reports whether a signal ends the wait.
func (w *wait) takesSignal() bool {
	return w.asks || w.node.Kind == KindSignal || w.node.Kind == KindApproval
}

// takes reports whether that signal ends the wait: one of its name that is
// addressed to it or to nobody in particular. An approval is always addressed (C38),
// and so is what settles an unknown outcome, which is sent after the attempt began.
func (w *wait) takes(s wake.Signal) bool {
	toNobody := s.NodeID == "" && !w.addressed()
	return s.Name == w.signal.Name && (toNobody || s.NodeID == string(w.node.ID)) && s.SentUs >= w.sinceUs
}

func (w *wait) addressed() bool { return w.node.Kind == KindApproval || w.asks }

// beginWait starts a wait, once its input is known.
func (r *Run) beginWait(n *graph.Node) {
	w := &wait{node: n}
	input, err := resolveInput(n, readRecord)
	if errors.Is(err, errInBlob) {
		r.moveIn(w)
		return
	}
	r.openWait(w, input, err)
}

// openWait opens a wait with its input; bad input, or one that cannot be had, fails the node at once.
func (r *Run) openWait(w *wait, input []byte, err error) {
	n := w.node
	if err == nil {
		err = r.prepare(w, input)
	}
	if err != nil {
		f := &Failure{Err: fmt.Errorf("input of %s: %w", n.Kind, err), Code: "bad_input"}
		var fault *blob.Fault
		if errors.As(err, &fault) {
			f.Code = fault.Code
		}
		r.failWait(w, f)
		return
	}
	r.waiting.waits[n] = w
	switch {
	case n.Kind == KindRun:
		r.startChild(w, input)
	case w.takesSignal() && r.meet(w):
	case w.dueUs != 0:
		w.timer = r.after(r.until(w.dueUs), n)
	}
}

// prepare reads the input and works out when the wait is over.
func (r *Run) prepare(w *wait, input []byte) error {
	switch w.node.Kind {
	case KindSleep:
		var in sleepInput
		if err := strict(input, &in); err != nil {
			return err
		}
		switch {
		case (in.For == nil) == (in.Until == nil):
			return errors.New(`give either "for", a duration, or "until", a time`)
		case in.For != nil:
			w.dueUs = dueUs(w.node, *in.For)
		default:
			w.dueUs = max(in.Until.UnixMicro(), 1)
		}
	case KindSignal:
		if err := strict(input, &w.signal); err != nil {
			return err
		}
		if w.signal.Name == "" {
			return errors.New(`"name" is missing: the name of the signal to wait for`)
		}
		if len(w.signal.Name) > maxSignalName {
			return fmt.Errorf(`"name" has %d bytes; no signal's has more than %d`, len(w.signal.Name), maxSignalName)
		}
		w.boundSignal()
	case KindApproval:
		return w.prepareApproval(input)
	case KindRun:
		w.child = ChildID(r.claimed.RunID, w.node.ID)
		return checkRunInput(input)
	}
	return nil
}

// boundSignal has the wait for a signal end at its timeout.
func (w *wait) boundSignal() {
	if w.signal.Timeout != nil {
		w.dueUs = dueUs(w.node, *w.signal.Timeout)
	}
}

// dueUs counts a length from the moment the log made the node ready, so that it
// is the same on every replica.
func dueUs(n *graph.Node, d duration) int64 {
	return max(n.ReadyUs+time.Duration(d).Microseconds(), 1)
}

// strict decodes JSON and refuses fields it does not know.
func strict(raw []byte, dst any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(dst)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("it is a JSON %s; want an object", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%q is a JSON %s; want a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}

func (r *Run) until(us int64) time.Duration { return time.UnixMicro(us).Sub(r.x.NowFunc()) }

// after tells the owner goroutine when a node's time has come.
func (r *Run) after(d time.Duration, n *graph.Node) *time.Timer {
	return time.AfterFunc(d, func() { r.mail.put(event{due: n}) })
}

// timeOut ends a wait whose time has come.
func (r *Run) timeOut(w *wait) {
	switch {
	case w.ending || r.stop.over():
	case r.until(w.dueUs) > 0: // the estimate of the database's clock has moved
		w.timer = r.after(r.until(w.dueUs), w.node)
	case w.takesSignal() && !w.overdue: // a signal that came in time counts, also if this replica has not heard of it
		w.overdue = true
		r.look()
	case w.node.Kind == KindSleep:
		r.endWait(w, &pb.Node{Output: &pb.Payload{Value: &pb.Payload_Json{Json: []byte("null")}}})
	case w.signal.Default != nil:
		r.endWait(w, &pb.Node{Output: &pb.Payload{Value: &pb.Payload_Json{Json: w.signal.Default}}})
	default:
		r.failWait(w, &Failure{
			Err:  fmt.Errorf("no signal %q within %v", w.signal.Name, time.Duration(*w.signal.Timeout)),
			Code: "timeout",
		})
	}
}

// matchAll gives the known signals to the waits, in the order in which the
// waits began and the signals were sent.
func (r *Run) matchAll() {
	for _, n := range r.g.Frontier() {
		if w := r.waiting.waits[n]; w != nil && w.takesSignal() && !w.ending {
			r.match(w)
		}
	}
}

// meet ends a wait that begins with a signal that is known. There may be others, from before it was waited for, that were not read.
func (r *Run) meet(w *wait) bool {
	if r.outside.inbox.MoreSignals {
		r.look()
		return false
	}
	return r.match(w)
}

// match ends a wait with the first signal that it takes. A signal's consumption
// and the end of the node are one record.
func (r *Run) match(w *wait) bool {
	for _, s := range r.outside.inbox.Signals {
		if !w.takes(s) || r.g.Consumed(s.ID) || !r.outside.take(s.ID) {
			continue
		}
		if s.Payload == nil {
			r.moveSignal(w, s)
			return true
		}
		r.settle(w, s)
		return true
	}
	return false
}

// settle ends a wait with a signal.
func (r *Run) settle(w *wait, s wake.Signal) {
	switch {
	case w.asks:
		r.settleDoubt(w, s)
	case w.node.Kind == KindApproval:
		r.settleApproval(w, s)
	default:
		r.endWait(w, &pb.Node{SignalId: s.ID, Output: &pb.Payload{Value: &pb.Payload_Json{Json: s.Payload}}})
	}
}

// signalRead ends a wait with a signal whose payload was read, or never can be, and goes on waiting if somebody has deleted it.
func (r *Run) signalRead(w *wait, s wake.Signal, err error) {
	switch {
	case err == nil:
		r.settle(w, s)
	case !errors.Is(err, wake.ErrGone):
		r.failWaitAs(w, &pb.Node{SignalId: s.ID}, asFailure(r.ctx, err))
	default:
		r.log.Warn("a signal is gone, waiting for another one", "node_id", w.node.ID, "error", err)
		if w.dueUs != 0 {
			w.timer = r.after(r.until(w.dueUs), w.node)
		}
		r.look()
	}
}

// endWait ends a wait well: what it ends with is kept, and then recorded.
func (r *Run) endWait(w *wait, end *pb.Node) {
	if toKeep(end.Output, r.x.InlineLimit) {
		r.moveOut(w, end, r.x.InlineLimit)
		return
	}
	r.recordEnd(w, end)
}

// recordEnd appends the record of a wait that ended well.
func (r *Run) recordEnd(w *wait, end *pb.Node) {
	end.Status = pb.NodeStatus_NODE_STATUS_SUCCEEDED
	err := r.appendWait(w, end)
	switch {
	case err == nil:
	case r.toFit(end, err) != nil: // it has very many parents
		r.moveOut(w, end, 0)
	default:
		r.failWaitAs(w, end, &Failure{Err: err, Code: "record_too_large"})
	}
}

func (r *Run) failWait(w *wait, f *Failure) { r.failWaitAs(w, &pb.Node{}, f) }

// failWaitAs ends a wait with a failure that consumes what the given end does: its signal, its child run.
func (r *Run) failWaitAs(w *wait, end *pb.Node, f *Failure) {
	r.log.Info("node failed", "node_id", w.node.ID, "kind", w.node.Kind, "error", f)
	end.Status, end.Output, end.Error = pb.NodeStatus_NODE_STATUS_FAILED, nil, f.proto(true)
	if err := r.appendWait(w, end); err != nil {
		r.refused(err)
	}
}

func (r *Run) appendWait(w *wait, end *pb.Node) error {
	w.ending = true
	r.waiting.uncount(w)
	node := r.nodeRecord(&attempt{node: w.node, finished: r.x.NowFunc()})
	if node.StartedUs = w.node.ReadyUs; w.task != nil && w.task.takenUs != 0 {
		node.StartedUs = w.task.takenUs
	}
	node.Status, node.Output, node.Error = end.Status, end.Output, end.Error
	node.SignalId, node.ChildRunId, node.Usage = end.SignalId, end.ChildRunId, end.Usage
	return r.append(&pb.Record{Body: &pb.Record_Node{Node: node}})
}

// forget drops a wait whose record committed.
func (r *Run) forget(n *graph.Node, signalID int64) {
	w := r.waiting.finish(n)
	if w == nil {
		return
	}
	if w.task != nil && w.task.id != 0 {
		r.outside.recorded = append(r.outside.recorded, w.task.id)
	}
	if signalID != 0 {
		r.outside.consumed = append(r.outside.consumed, signalID)
		if r.outside.inbox.MoreSignals {
			r.look()
		}
	}
}

// limits reads the limits a run node asks for its child.
func (in *runInput) limits() wake.Limits {
	l := wake.Limits{
		MaxTokens:      in.MaxTokens,
		MaxCostNanoUSD: nanoUSD(in.MaxCostUSD),
		MaxNodes:       in.MaxNodes,
		MaxWallMs:      in.MaxWallMs,
	}
	if in.Deadline != nil {
		l.DeadlineUs = in.Deadline.UnixMicro()
	}
	return l
}

// nanoUSD is what pgexec.nano_usd makes of it in the database.
func nanoUSD(usd float64) int64 {
	switch nano := usd * 1e9; {
	case nano <= 0:
		return 0
	case nano >= math.MaxInt64:
		return math.MaxInt64
	default:
		return max(int64(nano), 1)
	}
}
