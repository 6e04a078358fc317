package runtime

import (
	"sync"

	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// hotSet holds the runs in memory with the epoch they were claimed at.
type hotSet struct {
	mu   sync.Mutex
	runs map[runlog.RunID]runlog.Epoch
}

func newHotSet() *hotSet { return &hotSet{runs: make(map[runlog.RunID]runlog.Epoch)} }

func (h *hotSet) add(id runlog.RunID, epoch runlog.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[id] = epoch
}

// remove forgets a run, unless it has been claimed again meanwhile.
func (h *hotSet) remove(id runlog.RunID, epoch runlog.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[id] == epoch {
		delete(h.runs, id)
	}
}

// missing returns those of held that are not in memory.
func (h *hotSet) missing(held []ownership.Held) []ownership.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []ownership.Held
	for _, run := range held {
		if h.runs[run.RunID] != run.Epoch {
			out = append(out, run)
		}
	}
	return out
}
