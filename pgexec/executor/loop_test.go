package executor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/throttle"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// G6: an attempt that was cut off by the loss of the session, of which the owner has not heard yet, is not followed by
// another one here: whoever claims the run next makes that.
func TestLoop_WhatTheLossCutOffDoesNotStartAgain_G6(t *testing.T) {
	for _, cause := range []error{ErrOwnershipLost, ErrDraining} {
		workCtx, end := context.WithCancelCause(t.Context())
		end(cause)
		var calls atomic.Int32
		kind := &Kind{HandlerFunc: func(ctx context.Context, _ *Call) (*Result, error) {
			calls.Add(1)
			return nil, ctx.Err()
		}}
		for range 100 { // which of two things that are there the loop sees first is a matter of chance
			r := &Run{
				x: New(Config{
					Kinds: map[string]*Kind{"k": kind}, MaxParallel: 10, MaxParallelPerRun: 10, NowFunc: time.Now,
					Tasks: &wake.Tasks{}, Throttle: throttle.New(throttle.Config{}),
				}),
				g:        graph.New("k", &pb.Payload{}),
				log:      slog.New(slog.DiscardHandler),
				mail:     newMailbox[event](),
				waiting:  newWaiting(),
				flight:   newFlight(),
				contexts: newContexts(workCtx),
			}
			r.flight.attempts = 1
			r.mail.put(event{attempt: &attempt{node: r.g.Node(graph.RootID), kind: kind, aborted: true}})
			r.loop(t.Context(), workCtx)
			r.contexts.end()
		}
		if n := calls.Load(); n > 0 {
			t.Errorf("%v: the handler was called %d times", cause, n)
		}
	}
}
