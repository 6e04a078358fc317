package throttle

import (
	"slices"
	"time"
)

// holding are the slots of a limit that this replica has: each is a row of its own,
// as far as it knows.
type holding struct {
	slots  map[int32]bool // true: a node uses it
	free   []int32        // those that none uses
	giving []int32        // no longer in slots, not given back yet

	heldSince time.Time     // since when there are slots
	confirmed time.Time     // when the last turn that confirmed the slots began
	window    time.Time     // when the time began for which peak counts
	peak      int           // the most slots in use since then
	keep      int           // the most in use in the time before that
	use       time.Duration // how long a node has its slot, about
}

func (h *holding) inUse() int { return len(h.slots) - len(h.free) }

// needed is the most slots that were in use lately.
func (h *holding) needed() int { return max(h.keep, h.peak) }

// look counts what is in use now.
func (h *holding) look(now time.Time) {
	if now.Sub(h.window) >= idleAfter {
		h.window, h.keep, h.peak = now, h.peak, 0
	}
	h.peak = max(h.peak, h.inUse())
}

// take gives a free slot to a node, while it is sure that the slot is still there.
func (h *holding) take(now time.Time) (slot int32, ok bool) {
	if len(h.free) == 0 || now.Sub(h.confirmed) > trust {
		return 0, false
	}
	slot = h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	h.slots[slot] = true
	return slot, true
}

// giveUp has the free slot in that place be given back.
func (h *holding) giveUp(i int) {
	slot := h.free[i]
	h.free = slices.Delete(h.free, i, i+1)
	delete(h.slots, slot)
	h.giving = append(h.giving, slot)
}

// release takes a slot back from its node, which has had it for so long; 0 if it
// never started, which says nothing of how long nodes take.
func (h *holding) release(slot int32, used time.Duration) {
	switch {
	case used == 0:
	case h.use == 0:
		h.use = used
	default:
		h.use += (used - h.use) / 4
	}
	if h.slots[slot] {
		h.slots[slot] = false
		h.free = append(h.free, slot)
	}
}

// reconcile takes the database's word for which slots are this replica's.
func (h *holding) reconcile(rows []int32, now time.Time) {
	if len(h.slots) == 0 && len(rows) > 0 {
		h.heldSince = now
	}
	for slot := range h.slots {
		if !slices.Contains(rows, slot) {
			delete(h.slots, slot)
			h.free = slices.DeleteFunc(h.free, func(s int32) bool { return s == slot })
		}
	}
	for _, slot := range rows {
		if _, known := h.slots[slot]; !known && !slices.Contains(h.giving, slot) {
			h.slots[slot] = false
			h.free = append(h.free, slot)
		}
	}
}
