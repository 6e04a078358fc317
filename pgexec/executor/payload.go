package executor

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

const (
	// storePatience is how long an attempt tries to store what its handler returned, before it has failed: the work
	// is done, and would be done again.
	storePatience = time.Minute

	minStorePause = 100 * time.Millisecond
	maxStorePause = 5 * time.Second

	mediaTypeJSON = "application/json"
)

// inputApart stands for the input of a run that is not small: it stays in the run's row, and is read from there each time it is
// needed. It is in no record, as the inputs of runs are not.
var inputApart = &pb.Payload{Value: &pb.Payload_Blob{Blob: &pb.Blob{}}}

// read returns the JSON of an input or output, from the log, from a blob or from the run's row; nil of none.
func (r *Run) read(ctx context.Context, p *pb.Payload) ([]byte, error) {
	switch ref := p.GetBlob(); {
	case p == inputApart:
		return wake.ReadInput(ctx, r.x.Pool, r.claimed.RunID)
	case ref != nil:
		return r.x.Blobs.Get(ctx, ref)
	}
	return p.GetJson(), nil
}

// errInBlob says that a payload is not in the record: reading it takes time.
var errInBlob = errors.New("the payload is in a blob")

// readRecord is read for the owner goroutine, which waits for nothing.
func readRecord(p *pb.Payload) ([]byte, error) {
	if p.GetBlob() != nil {
		return nil, errInBlob
	}
	return p.GetJson(), nil
}

// resolveInput reads a node's input and puts ancestors' outputs in the place of its references.
func resolveInput(n *graph.Node, read func(*pb.Payload) ([]byte, error)) ([]byte, error) {
	input, err := read(n.Input)
	if err != nil || !n.InputRefs {
		return input, err
	}
	var unread error
	out, err := graph.Resolve(input, func(id graph.NodeID) ([]byte, bool) {
		a := Ancestor(n, id)
		if a == nil || a.Output == nil {
			return nil, false
		}
		output, err := read(a.Output)
		if err != nil {
			unread = err
		}
		return output, err == nil
	})
	switch {
	case unread != nil:
		return nil, unread
	case err != nil:
		return nil, &Failure{Err: err, Code: "bad_ref", Permanent: true}
	}
	return out, nil
}

// toKeep reports whether a payload must not be recorded before [Run.keep] has seen it.
func toKeep(p *pb.Payload, inline int) bool {
	return p.GetBlob() != nil || len(p.GetJson()) > inline || blob.Mentioned(p.GetJson())
}

// keep makes a payload one that may be recorded: one of more than inline bytes goes to a blob, and the run refers to
// the blobs that it names before its log does.
func (r *Run) keep(p *pb.Payload, inline int, patience time.Duration) (kept *pb.Payload, err error) {
	if !toKeep(p, inline) {
		return p, nil
	}
	err = r.insist(patience, func() (err error) {
		kept, err = r.tryKeep(r.ctx, p, inline)
		return err
	})
	return kept, err
}

// insist tries again while a store, or the database, does not answer: for as long as given, or, with 0, while the run
// is hot.
func (r *Run) insist(patience time.Duration, try func() error) error {
	started := time.Now()
	for pause := minStorePause; ; pause = min(2*pause, maxStorePause) {
		err := try()
		var fault *blob.Fault
		var bad *Failure
		switch {
		case err == nil, errors.As(err, &fault), errors.As(err, &bad), refusesData(err), errors.Is(err, wake.ErrGone), errors.Is(err, wake.ErrNoRun), r.ctx.Err() != nil:
			return err
		case patience > 0 && time.Since(started) > patience:
			return err
		}
		r.log.Warn("a blob cannot be stored or read, trying again", "error", err)
		select {
		case <-r.ctx.Done():
			return err
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

func (r *Run) tryKeep(ctx context.Context, p *pb.Payload, inline int) (*pb.Payload, error) {
	run := r.claimed.RunID
	if ref := p.GetBlob(); ref != nil { // of a child run
		return p, r.x.Blobs.Hold(ctx, run, [][]byte{ref.GetSha256()}, false)
	}
	text := p.GetJson()
	large := len(text) > inline
	if named := blob.ContentsIn(text); len(named) > 0 {
		// What is within a blob nobody looks through later.
		if err := r.x.Blobs.Hold(ctx, run, named, large); err != nil {
			return nil, err
		}
	}
	if !large {
		return p, nil
	}
	ref, err := r.x.Blobs.Put(ctx, run, mediaTypeJSON, text)
	if err != nil {
		return nil, err
	}
	return &pb.Payload{Value: &pb.Payload_Blob{Blob: ref}}, nil
}

// keepResult keeps what a handler returned, in the attempt's goroutine.
func (r *Run) keepResult(res *Result) (err error) {
	if res.Output, err = r.keep(res.Output, r.x.InlineLimit, storePatience); err != nil {
		return err
	}
	for i := range res.Spawns {
		s := &res.Spawns[i]
		if s.Input, err = r.keep(s.Input, r.x.InlineLimit, storePatience); err != nil {
			return err
		}
	}
	return nil
}

// moved is a wait's input that was read from a blob, the signal that ends it with its payload, or its end, whose output
// may be recorded now.
type moved struct {
	wait   *wait
	input  []byte
	signal *wake.Signal
	end    *pb.Node
}

// moveIn reads the input of a wait whose beginning it is.
func (r *Run) moveIn(w *wait) {
	r.move(w, func() (*moved, error) {
		m := &moved{wait: w}
		err := r.insist(0, func() (err error) {
			m.input, err = resolveInput(w.node, func(p *pb.Payload) ([]byte, error) { return r.read(r.ctx, p) })
			return err
		})
		return m, err
	})
}

// moveOut keeps the output of a wait that has ended, in a blob if it has more than inline bytes.
func (r *Run) moveOut(w *wait, end *pb.Node, inline int) {
	r.move(w, func() (_ *moved, err error) {
		end.Output, err = r.keep(end.Output, inline, 0)
		return &moved{wait: w, end: end}, err
	})
}

// moveSignal reads the payload of the signal that ends a wait.
func (r *Run) moveSignal(w *wait, s wake.Signal) {
	r.move(w, func() (*moved, error) {
		err := r.insist(0, func() (err error) {
			s.Payload, err = wake.ReadSignal(r.ctx, r.x.Pool, s.ID)
			return err
		})
		return &moved{wait: w, signal: &s}, err
	})
}

// moveOutput reads the output of a task that has ended, and keeps it.
func (r *Run) moveOutput(w *wait, taskID int64, end *pb.Node) {
	r.move(w, func() (*moved, error) {
		err := r.insist(0, func() error {
			output, err := wake.ReadTaskOutput(r.ctx, r.x.Pool, taskID)
			end.Output = &pb.Payload{Value: &pb.Payload_Json{Json: output}}
			return err
		})
		if err == nil {
			end.Output, err = r.keep(end.Output, r.x.InlineLimit, 0)
		}
		return &moved{wait: w, end: end}, err
	})
}

// move works beside the owner goroutine for a wait, which nothing else ends or begins meanwhile.
func (r *Run) move(w *wait, f func() (*moved, error)) {
	w.ending = true
	r.waiting.waits[w.node] = w
	r.flight.statements++
	go func() {
		m, err := f()
		r.mail.put(event{moved: m, err: err})
	}()
}

// movedOver goes on with a wait where it was left.
func (r *Run) movedOver(m *moved, err error) {
	switch {
	case r.stop.over() || r.ctx.Err() != nil:
	case m.signal != nil:
		m.wait.ending = false
		r.signalRead(m.wait, *m.signal, err)
	case m.end == nil && m.wait.task != nil && r.stopping():
		r.waiting.drop(m.wait)
		r.ready.enqueue(m.wait.node)
	case m.end == nil && m.wait.task != nil:
		m.wait.ending = false
		r.openTask(m.wait, m.input, err)
		r.startTasks()
	case m.end == nil:
		m.wait.ending = false
		r.openWait(m.wait, m.input, err)
	case err != nil:
		r.failWaitAs(m.wait, m.end, asFailure(r.ctx, err))
	default:
		r.recordEnd(m.wait, m.end)
	}
}

// viewOf is what psql shows of a result: a blob's reference in its place.
func viewOf(p *pb.Payload) []byte {
	ref := p.GetBlob()
	if ref == nil {
		return p.GetJson()
	}
	view, err := json.Marshal(map[string]any{"$blob": map[string]any{
		"url": ref.GetUrl(), "size": ref.GetSize(), "sha256": hex.EncodeToString(ref.GetSha256()), "media_type": ref.GetMediaType(),
	}})
	if err != nil {
		panic(err) // strings and a number
	}
	return view
}

func orNull(text json.RawMessage) json.RawMessage {
	if text == nil {
		return json.RawMessage("null")
	}
	return text
}
