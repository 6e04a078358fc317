package throttle

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

var kindK = ID{Kind: "k"}

// Replicas come, work to the full, and go; never is more in flight than the limit has.
func TestThrottle_NeverMoreThanTheLimit(t *testing.T) {
	b := setup(t)
	for range 3 {
		b.limit(4, nil, "1 s", 1)
		var g gauge
		var crews []*crew
		var replicas []*Throttle
		for range 3 {
			r := b.replica()
			replicas = append(replicas, r)
			crews = append(crews, b.crewOf(r, 6, kindK, func() { g.during(rand.N(4 * time.Millisecond)) }))
		}
		pause(t, 300*time.Millisecond)
		// One goes: its nodes have ended when it is off the list.
		crews[0].end()
		replicas[0].Stop()
		b.bury(replicas[0])
		crews = append(crews, b.crewOf(b.replica(), 6, kindK, func() { g.during(rand.N(4 * time.Millisecond)) }))
		for _, c := range crews[1:] {
			before := c.runs.Load()
			b.until("every crew works", func() bool { return c.runs.Load() >= before+20 })
		}
		for _, c := range crews {
			c.end()
		}
		if most := g.most.Load(); most > 4 {
			t.Fatalf("%d nodes in flight at once, want at most 4", most)
		} else if most < 4 {
			t.Errorf("never more than %d nodes in flight, of 4", most)
		}
		b.eventually(`select count(*) = 0 from pgexec.kind_slots`)
	}
}

// A replica that waits gets slots though others use all of them all the time, also when
// there are fewer slots than replicas.
func TestThrottle_NobodyStarves(t *testing.T) {
	for name, slots := range map[string]int{"one slot": 1, "eight slots": 8} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.limit(slots, nil, "1 s", 1)
			var g gauge
			do := func() { g.during(rand.N(2 * time.Millisecond)) }
			first := b.crewOf(b.replica(), 20, kindK, do)
			b.until("the first works", func() bool { return first.runs.Load() > 20 })
			second := b.crewOf(b.replica(), 20, kindK, do)
			third := b.crewOf(b.replica(), 20, kindK, do)
			for range 3 {
				for _, c := range []*crew{third, second, first} {
					before := c.runs.Load()
					b.until("each has its turn again and again", func() bool { return c.runs.Load() > before+10 })
				}
			}
			for _, c := range []*crew{first, second, third} {
				c.end()
			}
			if most := g.most.Load(); int(most) > slots {
				t.Errorf("%d in flight at once, want at most %d", most, slots)
			}
			t.Logf("nodes run: %d, %d, %d", first.runs.Load(), second.runs.Load(), third.runs.Load())
		})
	}
}

// What a replica has is free when it is taken off the list, and not a moment before.
func TestThrottle_BurialFreesSlots(t *testing.T) {
	b := setup(t)
	b.limit(2, nil, "1 s", 1)
	dead := b.replica()
	b.mustStart(dead, kindK)
	b.mustStart(dead, kindK)
	dead.Stop() // as if it were frozen, or gone
	other := b.replica()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := node(ctx, other, kindK); err == nil {
		t.Fatal("a third node starts while two are in flight on a replica that is listed")
	}
	b.bury(dead)
	b.mustStart(other, kindK)
	b.mustStart(other, kindK)
}

// Slots that the database has not confirmed for long are not used: a replica
// that was frozen, and buried meanwhile, starts nothing when it wakes.
func TestThrottle_NoSlotIsUsedUnconfirmed(t *testing.T) {
	now := time.Now()
	e := &entry{limit: Limit{MaxInFlight: 2}, holding: holding{slots: map[int32]bool{1: false}, free: []int32{1}, window: now, keep: 1}}
	e.confirmed = now.Add(-2 * trust)
	if _, ok := e.take(now); ok {
		t.Error("a slot is used that was confirmed long ago")
	}
	e.answered(now, 0, turnRow{Slots: []int32{1}})
	if _, ok := e.take(now); !ok {
		t.Error("a confirmed slot is not used")
	}
	e.answered(now, 0, turnRow{})
	if len(e.slots)+len(e.free) != 0 {
		t.Errorf("slots that are gone are kept: %v, %v", e.slots, e.free)
	}
}

// A slot that comes back unused says nothing of how long nodes take: it would have parked runs woken for slots that stay in use.
func TestThrottle_UnusedSlotsAreNoMeasure(t *testing.T) {
	now := time.Now()
	th := &Throttle{}
	e := &entry{limit: Limit{MaxInFlight: 1}, holding: holding{slots: map[int32]bool{1: false}, free: []int32{1}, window: now, keep: 1, confirmed: now}}
	start := func() *Ticket {
		k := &Ticket{t: th, e: e, since: now}
		heap.Push(&e.waiting, k)
		e.settle(now)
		return k
	}
	start().Release()
	if e.use != 0 || e.ahead() != 1 {
		t.Errorf("after a slot that nobody used, nodes take %v, and %d are wanted in line", e.use, e.ahead())
	}
	k := start()
	k.Use()
	k.Release()
	if e.use == 0 {
		t.Error("after a node, it is not known how long nodes take")
	}
}

// An answer that is lost has taken slots that nobody knows of: the next turn finds them.
func TestThrottle_LostAnswer(t *testing.T) {
	b := setup(t)
	b.limit(3, nil, "1 s", 1)
	r := b.replica()
	r.Stop()
	asked := r.Ask(kindK, time.Now(), func() {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.turn(ctx); err == nil {
		t.Fatal("a turn without time succeeds")
	}
	b.exec(`insert into pgexec.kind_slots (kind, key, slot, replica_id) values ('k', '', 2, $1)`, int32(r.cfg.ReplicaID))
	asked.Release()
	if err := r.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // found; and, as nobody wants them, given back
		pause(t, idleAfter)
		if err := r.give(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := get[int](b, `select count(*) from pgexec.kind_slots`); n != 0 {
		t.Errorf("%d slots are left that nobody uses", n)
	}
}

func TestThrottle_LimitsChange(t *testing.T) {
	b := setup(t)
	b.limit(0, nil, "1 s", 1)
	r := b.replica()
	started := make(chan *Ticket, 100)
	for range 30 {
		var k *Ticket
		ready := make(chan struct{})
		k = r.Ask(kindK, time.Now(), func() { go func() { <-ready; started <- k }() })
		close(ready)
	}
	next := func() *Ticket {
		t.Helper()
		select {
		case k := <-started:
			return k
		case <-time.After(patience):
			t.Fatal("nothing starts")
			panic("unreachable")
		}
	}
	none := func() {
		t.Helper()
		select {
		case <-started:
			t.Fatal("a node starts beyond the limit")
		case <-time.After(2 * refreshEvery):
		}
	}
	none()
	b.limit(3, nil, "1 s", 1)
	first := []*Ticket{next(), next(), next()}
	none()
	b.limit(1, nil, "1 s", 1)
	b.until("the lower limit is known", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.entries[kindK].excess == 2
	})
	first[0].Release()
	first[1].Release()
	none()
	first[2].Release()
	last := next()
	none()
	b.exec(`delete from pgexec.kind_limits`)
	for range 26 {
		next()
	}
	last.Release()
	b.eventually(`select count(*) = 0 from pgexec.kind_slots`)
}

// A declaration holds for all replicas; a row of the table wins; the declaration of the replica that started last wins over older ones.
func TestThrottle_TableWinsOverDeclarations(t *testing.T) {
	b := setup(t)
	in := func(r *Throttle, want int) {
		t.Helper()
		b.until("the limit is seen", func() bool {
			l, ok := r.Limit("k")
			return ok && l.MaxInFlight == want || !ok && want == NoBound
		})
	}
	old := b.replicaThat(map[string]Limit{"k": {MaxInFlight: 5, Per: time.Second, Burst: 1, KeyPointer: "/a"}})
	in(old, 5)
	newer := b.replicaThat(map[string]Limit{"k": {MaxInFlight: 2, Per: time.Second, Burst: 1}})
	in(newer, 2)
	in(old, 2)
	in(b.replica(), 2)
	b.limit(7, nil, "1 s", 1)
	in(old, 7)
	b.exec(`delete from pgexec.kind_limits`)
	in(old, 2)
	b.bury(newer)
	in(old, 5)
	if l, _ := old.Limit("k"); l.KeyPointer != "/a" || l.Per != time.Second {
		t.Errorf("limit in force: %+v", l)
	}
	b.bury(old)
	in(old, NoBound)
}

func TestThrottle_KeysHaveTheirOwnLimits(t *testing.T) {
	b := setup(t)
	b.limit(1, nil, "1 s", 1)
	r := b.replica()
	a := b.mustStart(r, ID{"k", "a"})
	b.mustStart(r, ID{"k", "b"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := node(ctx, r, ID{"k", "a"}); err == nil {
		t.Fatal("two nodes of one key in flight")
	}
	if got := get[string](b, `select string_agg(concat_ws(' ', key, max_in_flight, in_flight), ', ' order by key) from pgexec.limit_overview`); got != "a 1 1, b 1 1" {
		t.Errorf("limit_overview: %s", got)
	}
	a.Release()
	b.mustStart(r, ID{"k", "a"})
}

// The oldest node is served first, wherever it stood in line.
func TestThrottle_OldestFirst(t *testing.T) {
	b := setup(t)
	b.limit(1, nil, "1 s", 1)
	r := b.replica()
	holder := b.mustStart(r, kindK)
	order := make(chan int, 3)
	now := time.Now()
	var tickets [3]*Ticket
	for i, age := range []time.Duration{time.Second, time.Hour, time.Minute} {
		tickets[i] = r.Ask(kindK, now.Add(-age), func() { order <- i })
	}
	holder.Release()
	for _, want := range []int{1, 2, 0} {
		if got := <-order; got != want {
			t.Fatalf("node %d starts, want %d", got, want)
		}
		tickets[want].Release()
	}
}
