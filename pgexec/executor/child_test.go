package executor

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// A run node whose child has ended is recorded once (G1): its end may be seen, by a look that something
// else caused, before the answer to the child's start comes, and that answer may be an error.
func TestChild_FailedStartAfterItsEndIsNoNewWait(t *testing.T) {
	for _, err := range []error{errors.New("connection cut"), runlog.ErrFenced, nil} {
		r := &Run{
			g:      graph.New(KindRun, &pb.Payload{}),
			log:    slog.New(slog.DiscardHandler),
			mail:   newMailbox[event](),
			timers: make(map[*graph.Node]*time.Timer),
			waits:  make(map[*graph.Node]*wait),
		}
		w := &wait{node: r.g.Node(graph.RootID), ending: true}
		r.waits[w.node] = w
		r.childStarted(w, err)
		if len(r.timers) != 0 || r.waits[w.node] != w || r.looking {
			t.Errorf("%v: %d timers, %d waits, looking: %v", err, len(r.timers), len(r.waits), r.looking)
		}
	}
}
