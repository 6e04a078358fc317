package executor

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// largest picks the payloads that are to go to blobs for a record to be smaller by at least excess bytes: as few as can
// be, so the largest. size is what each takes in the record, ref what a reference takes in its place. None are
// picked when not even all of them would do.
func largest(sizes []int, ref, excess int) (picked []int) {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	for n, i := range order {
		if sizes[i] <= ref {
			return nil
		}
		if excess -= sizes[i] - ref; excess <= 0 {
			return order[:n+1]
		}
	}
	return nil
}

// payloadsOf lists where a node's record has the bytes of a payload.
func payloadsOf(node *pb.Node) (places []**pb.Payload) {
	add := func(p **pb.Payload) {
		if (*p).GetJson() != nil {
			places = append(places, p)
		}
	}
	add(&node.Output)
	for _, s := range node.GetSpawned() {
		add(&s.Input)
	}
	return places
}

// toFit returns the payloads of a node's record that have to go to blobs for it to fit. err is why it was refused. None are
// returned if that is not its size, or if it never fits.
func (r *Run) toFit(node *pb.Node, err error) (places []**pb.Payload) {
	var over *runlog.TooLargeError
	if !errors.As(err, &over) {
		return nil
	}
	all := payloadsOf(node)
	sizes := make([]int, len(all))
	for i, p := range all {
		sizes[i] = proto.Size(*p)
	}
	ref := proto.Size(&pb.Payload{Value: &pb.Payload_Blob{Blob: r.x.Blobs.LongestRef(mediaTypeJSON)}})
	for _, i := range largest(sizes, ref, over.Size-over.Limit) {
		places = append(places, all[i])
	}
	return places
}

// store puts payloads into blobs, whatever their size.
func (r *Run) store(places []**pb.Payload, patience time.Duration) error {
	for _, p := range places {
		kept, err := r.keep(*p, 0, patience)
		if err != nil {
			return err
		}
		*p = kept
	}
	return nil
}

// fitAttempt has an attempt end again whose record was too large, once these payloads of the record are in blobs.
func (r *Run) fitAttempt(a *attempt, places []**pb.Payload) {
	defer func() {
		if !r.mail.put(event{attempt: a}) {
			rollback(a.tx)
		}
	}()
	err := r.store(places, storePatience)
	switch {
	case err == nil:
		return
	case r.ctx.Err() != nil:
		a.aborted = true
	default:
		a.failure = asFailure(r.ctx, err)
	}
	rollback(a.tx)
	a.tx = nil
}
