package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// asked are the arguments of a turn's statement, one place an entry.
type asked struct {
	entries                            []*entry
	kinds, keys                        []string
	most, want, waiting, ahead, tokens []int32
	tokenUs, burst                     []float64
}

// turnRow is a turn's answer about one entry.
type turnRow struct {
	Slots  []int32
	Hungry bool
	// Share is how many slots are this replica's fair part.
	Share int32
	// Excess is how many slots the fleet has beyond its limit, which was lowered.
	Excess int32
	// Queued says that parked runs wait.
	Queued bool
	// Tokens are those bought, or, when negative, those taken back.
	Tokens    int32
	NextUs    int64
	Woken     *int64
	Unflushed string
}

// turn asks for what waiting nodes need and has confirmed what the replica has.
func (t *Throttle) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	began := time.Now()
	a := t.ask(began)
	if len(a.entries) == 0 {
		return nil
	}
	rows, err := runlog.QueryPlanned[turnRow](ctx, t.cfg.Pool, sql.PlanIndexOnly, sql.ThrottleTurn,
		int32(t.cfg.ReplicaID), a.kinds, a.keys, a.most, a.want, a.waiting, a.ahead, a.tokens, a.tokenUs, a.burst)
	t.mu.Lock()
	var granting []*Ticket
	for i, e := range a.entries {
		if err != nil {
			e.unsure = true
			continue
		}
		e.tokens += int(rows[i].Tokens - min(a.tokens[i], 0))
		granting = append(granting, e.answered(began, int(a.want[i]), rows[i])...)
	}
	t.mu.Unlock()
	call(granting)
	if err != nil {
		return fmt.Errorf("take slots: %w", err)
	}
	if woken := rows[0].Woken; woken != nil && *woken > 0 {
		t.cfg.WokeFunc()
	}
	return nil
}

// ask gathers what the entries want; those of which nothing is left are dropped.
func (t *Throttle) ask(now time.Time) *asked {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &asked{}
	for id, e := range t.entries {
		if e.over() {
			delete(t.entries, id)
			continue
		}
		if e.rests(now) {
			continue
		}
		a.add(e)
	}
	return a
}

func (a *asked) add(e *entry) {
	a.entries = append(a.entries, e)
	a.kinds, a.keys = append(a.kinds, e.id.Kind), append(a.keys, e.id.Key)
	a.most, a.want = append(a.most, int32(max(e.limit.MaxInFlight, 0))), append(a.want, int32(e.wants()))
	a.waiting = append(a.waiting, int32(len(e.waiting)))
	a.ahead = append(a.ahead, int32(e.ahead()))
	tokens := e.wantsTokens()
	if tokens < 0 {
		e.tokens += tokens // nobody uses meanwhile what is being given back
	}
	a.tokens = append(a.tokens, int32(tokens))
	a.tokenUs = append(a.tokenUs, float64(e.limit.token())/float64(time.Microsecond))
	a.burst = append(a.burst, float64(e.limit.burst()))
	e.started = 0
}

// answered takes in what a turn that began then has found for an entry that wanted so many slots.
func (e *entry) answered(began time.Time, wanted int, row turnRow) []*Ticket {
	had := len(e.slots)
	e.reconcile(row.Slots, began)
	e.confirmed, e.unsure = began, false
	e.fleet = fleet{hungry: row.Hungry, share: int(row.Share), excess: int(row.Excess), queued: row.Queued}
	e.noted = wanted > max(len(e.slots)-had, 0)
	e.paidAt, e.notBefore = time.Time{}, time.Time{}
	if e.limit.rated() {
		e.paidAt = began.Add(time.Duration(row.NextUs) * time.Microsecond)
		e.notBefore = began.Add(max(time.Duration(row.NextUs)*time.Microsecond, buyTick))
	}
	return e.settle(time.Now())
}

// give gives back the slots of which nothing more is wanted here.
func (t *Throttle) give(ctx context.Context) error {
	var kinds, keys []string
	var slots []int32
	given := make(map[*entry]int)
	t.mu.Lock()
	now := time.Now()
	var granting []*Ticket
	for _, e := range t.entries {
		granting = append(granting, e.settle(now)...)
		for _, slot := range e.giving {
			kinds, keys, slots = append(kinds, e.id.Kind), append(keys, e.id.Key), append(slots, slot)
			given[e]++
		}
	}
	t.mu.Unlock()
	call(granting)
	if len(slots) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := runlog.QueryPlanned[struct {
		Woken     int64
		Unflushed string
	}](ctx, t.cfg.Pool, sql.PlanIndexOnly, sql.ThrottleGive, int32(t.cfg.ReplicaID), kinds, keys, slots)
	if err != nil {
		return fmt.Errorf("give back slots: %w", err)
	}
	if rows[0].Woken > 0 {
		t.cfg.WokeFunc()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for e, n := range given {
		e.giving = e.giving[n:]
	}
	return nil
}
