package throttle

import (
	"container/heap"
	"time"
)

const (
	// idleAfter is how long a slot is kept without a node for it, at least; at most twice as long.
	idleAfter = 100 * time.Millisecond
	// tenure is how long a replica keeps slots that others starve for: short
	// enough that all have their turn, long enough that turns cost little.
	tenure = 250 * time.Millisecond
	// trust is how long after the database confirmed them slots are used for
	// further nodes. A replica is buried after a longer silence, so what wakes from a
	// freeze asks before it starts anything.
	trust = 3 * time.Second
	// buyTick is the least time between two purchases of tokens.
	buyTick = 20 * time.Millisecond
	// wakeAhead is the time for which there shall be work in the lines: more than
	// a parked run needs to come back to one, less than it stays in it.
	wakeAhead = 500 * time.Millisecond
	maxAhead  = 500
)

// ID names what a limit holds for: a kind, or one key of it.
type ID struct{ Kind, Key string }

// Ticket is a node's place in the line, and then its slot.
type Ticket struct {
	t       *Throttle
	e       *entry
	since   time.Time
	nth     uint64 // among those of the same time
	granted func()
	index   int // in entry.waiting; -1 when not in it
	slot    int32
	unused  bool // the node may start and has not
	began   time.Time
}

// entry is what this replica has of one limit, and who waits for it here.
type entry struct {
	id    ID
	limit Limit
	// cap bounds the slots that this replica has use for; 0 for no bound.
	cap int
	holding
	tokens  int
	waiting ticketHeap
	unused  int // nodes that may start and have not
	started int // since the last turn
	fleet
	noted  bool // the database knows that nodes wait here
	unsure bool // a turn failed: it may have taken slots
	// paidAt is when the rate lets the next node start; notBefore, when tokens are bought next.
	paidAt    time.Time
	notBefore time.Time
}

// fleet is what the last turn has found of all others that use the limit.
type fleet struct {
	hungry bool // others starve
	share  int  // what this replica may keep then
	excess int  // what the fleet is to give back
	queued bool // parked runs wait for the limit
}

// settle gives up the slots that must be, and starts the nodes that may.
func (e *entry) settle(now time.Time) (granted []*Ticket) {
	e.look(now)
	for i := len(e.free) - 1; i >= 0; i-- {
		if e.surplus(e.free[i], now) {
			e.giveUp(i)
			e.excess--
		}
	}
	for len(e.waiting) > 0 {
		slot, ok := e.take(now)
		if !ok {
			break
		}
		k := heap.Pop(&e.waiting).(*Ticket)
		k.slot, k.unused, k.began = slot, true, now
		e.unused++
		granted = append(granted, k)
		e.started++
	}
	e.look(now)
	return granted
}

// surplus reports that a free slot is to be given back.
func (e *entry) surplus(slot int32, now time.Time) bool {
	switch {
	case int(slot) > e.limit.MaxInFlight, e.excess > 0:
		return true
	case len(e.waiting) == 0:
		return e.hungry || len(e.slots) > e.needed()
	default:
		return e.hungry && len(e.slots) > e.share && now.Sub(e.heldSince) >= tenure
	}
}

// take takes what one node needs, if it is here.
func (e *entry) take(now time.Time) (slot int32, ok bool) {
	if e.limit.rated() && e.tokens == 0 {
		return 0, false
	}
	if e.limit.slotted() {
		if slot, ok = e.holding.take(now); !ok {
			return 0, false
		}
	}
	if e.limit.rated() {
		e.tokens--
	}
	return slot, true
}

// wants returns how many more slots the waiting nodes need.
func (e *entry) wants() int {
	if !e.limit.slotted() {
		return 0
	}
	use := len(e.waiting)
	if e.cap > 0 {
		use = min(use, e.cap-e.inUse())
	}
	return max(use-len(e.free), 0)
}

// wantsTokens returns how many tokens the next turn is to buy: for nodes that
// could start, and for as many as did since the last turn. It is negative when
// so many are to be given back: a token is used within a turn's time, or not at all.
func (e *entry) wantsTokens() int {
	switch {
	case !e.limit.rated():
		return 0
	case e.limit.slotted():
		return min(len(e.waiting), len(e.free)) - e.tokens
	default:
		return len(e.waiting) + e.started - e.tokens
	}
}

// ahead returns how many nodes there shall be in the lines: one for each free
// slot, and where nodes are short as many as slots will be free for soon.
func (e *entry) ahead() int {
	n := len(e.free)
	if e.use > 0 {
		n += min(len(e.slots)*int(wakeAhead/max(e.use, time.Millisecond)), maxAhead)
	}
	return n
}

// over reports that nothing is left to do or to know.
func (e *entry) over() bool {
	return len(e.waiting)+len(e.slots)+len(e.giving)+e.started+e.tokens+e.unused == 0 && !e.noted && !e.unsure
}

// rests reports that a turn would change nothing yet.
func (e *entry) rests(now time.Time) bool {
	return now.Before(e.notBefore) && len(e.waiting) > 0 && len(e.slots)+e.tokens+e.wants() == 0 && !e.noted && !e.unsure
}

// ticketHeap has the ticket that has waited longest first.
type ticketHeap []*Ticket

func (h ticketHeap) Len() int { return len(h) }

func (h ticketHeap) Less(i, j int) bool {
	if !h[i].since.Equal(h[j].since) {
		return h[i].since.Before(h[j].since)
	}
	return h[i].nth < h[j].nth
}

func (h ticketHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *ticketHeap) Push(x any) {
	k := x.(*Ticket)
	k.index = len(*h)
	*h = append(*h, k)
}

// Pop is for package heap.
func (h *ticketHeap) Pop() any {
	last := len(*h) - 1
	k := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	k.index = -1
	return k
}
