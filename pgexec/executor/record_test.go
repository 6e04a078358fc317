package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// A node with so many parents that not even its failure fits into a record pauses its run: released, the run would be
// claimed again, and the node run again, for ever (C22).
func TestRun_RecordThatNeverFitsPausesIt(t *testing.T) {
	n := &graph.Node{Spec: graph.Spec{ID: "join", Kind: "join"}}
	for i := range runlog.MaxRecordBytes / 200 {
		n.Parents = append(n.Parents, &graph.Node{Spec: graph.Spec{ID: graph.NodeID(fmt.Sprintf("%0200d", i))}})
	}
	r := &Run{
		x:        &Executor{},
		g:        graph.New("root", nil),
		log:      slog.New(slog.DiscardHandler),
		contexts: newContexts(t.Context()),
	}
	r.recordPermanent(&attempt{node: n}, &Failure{Err: errors.New("no")})
	if end, ok := r.verdict(""); !ok || end != endPaused || !strings.Contains(r.stop.reason, `"join"`) {
		t.Errorf("verdict %d, %v, reason %q", end, ok, r.stop.reason)
	}
	if r.flight.records != 0 || !r.stopping() {
		t.Errorf("%d records on their way, stopping: %v", r.flight.records, r.stopping())
	}
}
