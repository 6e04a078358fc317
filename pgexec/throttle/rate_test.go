package throttle

import (
	"sync"
	"testing"
	"time"
)

// Three replicas start as much as they may; in no span of time do more nodes start than the rate and the burst allow.
func TestThrottle_RateHolds(t *testing.T) {
	b := setup(t)
	const perSecond, burst = 40, 5
	b.limit(nil, perSecond, "1 s", burst)
	var mu sync.Mutex
	var starts []time.Time
	note := func() {
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, time.Now())
	}
	var crews []*crew
	for range 3 {
		crews = append(crews, b.crewOf(b.replica(), 10, kindK, note))
	}
	b.until("the rate lets 60 start", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(starts) >= 60
	})
	for _, c := range crews {
		c.end()
	}
	// A token is used when its purchase comes back: a busy machine may make that late, and only the
	// first of a span then looks too near to the last.
	const late = 500 * time.Millisecond
	for i := range starts {
		for j := i; j < len(starts); j++ {
			span := starts[j].Sub(starts[i]) + late
			if n := j - i + 1; float64(n) > burst+perSecond*span.Seconds()+1 {
				t.Fatalf("%d nodes start within %v", n, span-late)
			}
		}
	}
	if span := starts[len(starts)-1].Sub(starts[0]); span < time.Second {
		t.Errorf("%d nodes started within %v", len(starts), span)
	}
}

// By the database's clock: what was started is paid for in the rate's row, to the last token.
func TestThrottle_RateIsPaidForExactly(t *testing.T) {
	b := setup(t)
	b.limit(nil, 6, "1 hour", 4)
	began := get[time.Time](b, `select clock_timestamp()`)
	r := b.replica()
	for range 4 {
		b.mustStart(r, kindK)
	}
	granted := make(chan struct{}, 1)
	k := r.Ask(kindK, time.Now(), func() { granted <- struct{}{} })
	b.until("the line knows when the next one starts", func() bool { return k.Until() > 0 })
	ended := get[time.Time](b, `select clock_timestamp()`)
	free := get[time.Time](b, `select free_at from pgexec.kind_rates`)
	if free.Before(began.Add(40*time.Minute)) || free.After(ended.Add(40*time.Minute)) {
		t.Errorf("four starts at 10 minutes each are paid for at %v, between %v and %v", free, began.Add(40*time.Minute), ended.Add(40*time.Minute))
	}
	if next := get[time.Time](b, `select next_start from pgexec.limit_overview`); !next.Equal(free.Add(-30 * time.Minute)) {
		t.Errorf("limit_overview: next start at %v, want %v", next, free.Add(-30*time.Minute))
	}
	b.exec(`update pgexec.kind_rates set free_at = free_at - interval '10 min'`) // as if that time had passed
	select {
	case <-granted:
	case <-time.After(patience):
		t.Fatal("the next node does not start when its time has come")
	}
	k.Release()
}

func TestThrottle_SlotAndRateBothHold(t *testing.T) {
	b := setup(t)
	b.limit(2, 1000, "1 s", 1)
	var g gauge
	c := b.crewOf(b.replica(), 8, kindK, func() { g.during(time.Millisecond) })
	b.until("nodes run", func() bool { return c.runs.Load() >= 30 })
	c.end()
	if most := g.most.Load(); most > 2 {
		t.Errorf("%d in flight", most)
	}
}

// A token that was bought for a node that has left the line since goes to another one, or back.
func TestThrottle_UnusedTokensAreGivenBack(t *testing.T) {
	b := setup(t)
	b.limit(nil, 1, "1 hour", 2)
	r := b.replica()
	r.Stop()
	k := r.Ask(kindK, time.Now(), func() { t.Error("a node starts that has left the line") })
	turn := func() {
		t.Helper()
		if err := r.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e := k.e
	a := r.ask(time.Now())
	k.Release()
	// The purchase that was under way comes back.
	b.exec(`insert into pgexec.kind_rates (kind, key, free_at) values ('k', '', now() + interval '1 hour')`)
	e.tokens += int(a.tokens[0])
	turn()
	if e.tokens != 0 || !e.over() {
		t.Errorf("%d tokens are kept", e.tokens)
	}
	b.eventually(`select free_at <= now() from pgexec.kind_rates`)
	pause(t, buyTick)
	started := make(chan struct{}, 2)
	for range 2 {
		r.Ask(kindK, time.Now(), func() { started <- struct{}{} })
	}
	turn()
	if len(started) != 2 {
		t.Errorf("%d of a burst of 2 start", len(started))
	}
}
