package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/throttle"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// place is a node's place in the line of a fleet-wide limit, and then what the
// limit gave it. Until it starts the node has no goroutine and is not in flight.
type place struct {
	node   *graph.Node
	id     throttle.ID
	ticket *throttle.Ticket // nil until the key is known
}

// heldBy says for people what a node in line waits for.
func (r *Run) heldBy(p *place) string {
	what, until := "a slot", p.ticket.Until()
	if limit, _ := r.x.Throttle.Limit(p.id.Kind); until > 0 || limit.MaxInFlight == throttle.NoBound {
		what = "the rate"
	}
	what += " of kind " + p.id.Kind
	if p.id.Key != "" {
		what += fmt.Sprintf(", key %q", p.id.Key)
	}
	if until > 0 {
		what += ": nothing starts until " + utc(r.x.NowFunc().Add(until).UnixMicro())
	}
	return what
}

// since is when the node became ready to start, by the log: the same wherever it stands in line.
func (p *place) since() time.Time {
	return time.UnixMicro(max(p.node.ReadyUs, p.node.NotBefore))
}

// use is called when the node starts.
func (p *place) use() {
	if p != nil {
		p.ticket.Use()
	}
}

// release gives the place back.
func (p *place) release() {
	if p != nil && p.ticket != nil {
		p.ticket.Release()
	}
}

// limited reports that nodes of that kind have a fleet-wide limit.
func (r *Run) limited(n *graph.Node) bool {
	_, ok := r.x.Throttle.Limit(n.Kind)
	return ok
}

// hold has a node wait for its fleet-wide limit. Its key may have to be read from a blob.
func (r *Run) hold(n *graph.Node) {
	p := &place{node: n, id: throttle.ID{Kind: n.Kind}}
	r.waiting.held[n] = p
	limit, _ := r.x.Throttle.Limit(n.Kind)
	if limit.KeyPointer == "" {
		r.standInLine(p)
		return
	}
	err := p.readKey(limit.KeyPointer, readRecord)
	if !errors.Is(err, errInBlob) {
		r.keyRead(p, err)
		return
	}
	r.inBackground(func(ctx context.Context) event {
		err := p.readKey(limit.KeyPointer, func(in *pb.Payload) ([]byte, error) { return r.read(ctx, in) })
		return event{keyed: p, err: err}
	})
}

func (p *place) readKey(pointer string, read func(*pb.Payload) ([]byte, error)) error {
	input, err := resolveInput(p.node, read)
	if err == nil {
		p.id.Key = throttle.Key(input, pointer)
	}
	return err
}

// keyRead has a node stand in line when its key is known. Of an input that can
// never be read its attempt will tell; any other is read again in a moment.
func (r *Run) keyRead(p *place, err error) {
	if err != nil && !asFailure(r.ctx, err).Permanent {
		r.log.Warn("read the key of a node's limit, trying again", "node_id", p.node.ID, "error", err)
		delete(r.waiting.held, p.node)
		r.waiting.timers[p.node] = r.after(time.Second, p.node)
		return
	}
	r.standInLine(p)
}

func (r *Run) standInLine(p *place) {
	p.ticket = r.x.Throttle.Ask(p.id, p.since(), func() { r.mail.put(event{placed: p}) })
}

// placed starts a node that its limit lets start, unless the run has come to a
// stop of its own meanwhile: then the node is queued, and asks again.
func (r *Run) placed(p *place) {
	if r.waiting.held[p.node] != p {
		return // it has left the line
	}
	delete(r.waiting.held, p.node)
	kind := r.x.kind(p.node.Kind)
	if kind == nil || kind.external || r.stopping() || r.flight.attempts >= r.maxParallel() || !p.node.OwnLimits && r.limitReached() != "" {
		p.release()
		r.ready.enqueue(p.node)
		return
	}
	r.start(&attempt{node: p.node, kind: kind, place: p})
}
