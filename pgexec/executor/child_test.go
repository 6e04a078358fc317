package executor

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// An input that no row takes fails its node for good, with its size and the limit: it would be tried again for ever (C22).
func TestCheckSize_C22(t *testing.T) {
	if err := checkSize("task", make([]byte, wake.MaxJSONBytes)); err != nil {
		t.Error(err)
	}
	var f *Failure
	if err := checkSize("task", make([]byte, wake.MaxJSONBytes+1)); !errors.As(err, &f) || !f.Permanent || !strings.Contains(f.Error(), "134217729") {
		t.Error(err)
	}
}

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

// However small the cost that a child may have, it is a limit, and however large, it is one that a run can have (G7).
func TestRunInput_CostLimitIsNeverLostInRounding_G7(t *testing.T) {
	for usd, want := range map[float64]int64{0: 0, 1e-12: 1, 0.25: 250_000_000, 1e10: math.MaxInt64, math.MaxFloat64: math.MaxInt64} {
		in := runInput{MaxCostUSD: usd}
		if got := in.limits().MaxCostNanoUSD; got != want {
			t.Errorf("%g dollars are %d billionths, want %d", usd, got, want)
		}
	}
}
