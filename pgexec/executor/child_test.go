package executor

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// A run node whose child has ended is recorded once (G1): its end may be seen, by a look that something
// else caused, before the answer to the child's start comes, and that answer may be an error.
func TestChild_FailedStartAfterItsEndIsNoNewWait(t *testing.T) {
	for _, err := range []error{errors.New("connection cut"), runlog.ErrFenced, nil} {
		r := &Run{
			g:       graph.New(KindRun, &pb.Payload{}),
			log:     slog.New(slog.DiscardHandler),
			mail:    newMailbox[event](),
			waiting: newWaiting(),
		}
		w := &wait{node: r.g.Node(graph.RootID), ending: true}
		r.waiting.waits[w.node] = w
		r.childStarted(w, err)
		if len(r.waiting.timers) != 0 || r.waiting.waits[w.node] != w || r.outside.looking {
			t.Errorf("%v: %d timers, %d waits, looking: %v", err, len(r.waiting.timers), len(r.waiting.waits), r.outside.looking)
		}
	}
}
