package runtime

import (
	"sync"

	"github.com/pgexec/runtime/pgexec/executor"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// hotRun is a run in memory with the epoch it was claimed at.
type hotRun struct {
	epoch runlog.Epoch
	run   *executor.Run
	// missed is the number of polls in a row that did not find it among those that the replica owns.
	missed int
}

// hotSet holds the runs in memory.
type hotSet struct {
	mu   sync.Mutex
	runs map[runlog.RunID]hotRun
}

func newHotSet() *hotSet { return &hotSet{runs: make(map[runlog.RunID]hotRun)} }

func (h *hotSet) add(id runlog.RunID, run hotRun) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[id] = run
}

// remove forgets a run, unless it has been claimed again meanwhile.
func (h *hotSet) remove(id runlog.RunID, epoch runlog.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[id].epoch == epoch {
		delete(h.runs, id)
	}
}

// poke tells runs that something may have come in for them.
func (h *hotSet) poke(ids []runlog.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if hot, ok := h.runs[id]; ok {
			hot.run.Poke(0)
		}
	}
}

// tell gives hot runs what the database says of them: the version of their inbox, or, the second time in a row, that they are
// not held. It returns what of held is not in memory.
func (h *hotSet) tell(held []ownership.Held) (stray []ownership.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	epochs := make(map[runlog.RunID]runlog.Epoch, len(held))
	for _, row := range held {
		epochs[row.RunID] = row.Epoch
		hot, ok := h.runs[row.RunID]
		switch {
		case !ok || hot.epoch != row.Epoch:
			stray = append(stray, row)
		case row.Inbox > 0:
			hot.run.Poke(row.Inbox)
		}
	}
	for id, hot := range h.runs {
		if hot.missed++; epochs[id] == hot.epoch {
			hot.missed = 0
		}
		if hot.missed == 2 {
			hot.run.Gone()
		}
		h.runs[id] = hot
	}
	return stray
}
