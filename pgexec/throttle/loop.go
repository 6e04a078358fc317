package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	// waitingTick is the time between two turns while nodes wait, holdingTick while slots are held.
	waitingTick = 50 * time.Millisecond
	holdingTick = 100 * time.Millisecond
	// leastTick is the least time between two turns.
	leastTick = 5 * time.Millisecond
	// refreshEvery is the time between two looks at the limits and the parked runs.
	refreshEvery = time.Second
	// statementTimeout bounds each statement.
	statementTimeout = 10 * time.Second
	// maxErrorPause bounds the pause after turns that failed.
	maxErrorPause = 2 * time.Second
)

// loop takes turns until ctx is done: when somebody asks, and now and then while there is anything to keep.
func (t *Throttle) loop(ctx context.Context) {
	refresh := time.Now().Add(refreshEvery)
	failing := time.Duration(0)
	for {
		pause := min(t.nextTick(), time.Until(refresh))
		if failing > 0 {
			pause = failing
		}
		if !t.rest(ctx, pause, failing > 0) {
			return
		}
		err := t.give(ctx)
		if err == nil {
			err = t.turn(ctx)
		}
		if err == nil && !time.Now().Before(refresh) {
			err = t.refresh(ctx)
			refresh = time.Now().Add(refreshEvery - refreshEvery/8 + rand.N(refreshEvery/4))
		}
		switch {
		case err == nil:
			failing = 0
		case ctx.Err() == nil:
			t.cfg.Logger.Warn("keep the limits of kinds, trying again", "error", err)
			failing = min(max(2*failing, waitingTick), maxErrorPause)
		}
	}
}

// rest waits for a kick, or for d; at least leastTick. It reports false when ctx is done.
func (t *Throttle) rest(ctx context.Context, d time.Duration, deaf bool) bool {
	least := time.NewTimer(leastTick)
	defer least.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-least.C:
	}
	kick := t.kick
	if deaf {
		kick = nil
	}
	rest := time.NewTimer(d - leastTick)
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-kick:
	case <-rest.C:
	}
	return true
}

// nextTick returns the time to the next turn if nobody asks.
func (t *Throttle) nextTick() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, now := refreshEvery, time.Now()
	for _, e := range t.entries {
		switch {
		case e.rests(now):
			next = min(next, time.Until(e.notBefore))
		case len(e.waiting) > 0:
			return waitingTick*4/5 + rand.N(waitingTick*2/5)
		default:
			next = min(next, holdingTick)
		}
	}
	return next
}

// refresh reads the limits anew and wakes parked runs that may start.
func (t *Throttle) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	limits, err := t.readLimits(ctx)
	if err != nil {
		return err
	}
	t.limits.Store(&limits)
	t.mu.Lock()
	var granting []*Ticket
	now := time.Now()
	for id, e := range t.entries {
		e.limit = t.limitOf(id.Kind)
		e.notBefore = time.Time{}
		granting = append(granting, e.settle(now)...)
	}
	t.mu.Unlock()
	call(granting)
	woke, err := runlog.QueryPlanned[struct{ Woken int64 }](ctx, t.cfg.Pool, sql.WakeQuietly, sql.ThrottleSweep)
	if err != nil {
		return fmt.Errorf("wake runs that wait for limits: %w", err)
	}
	if woke[0].Woken > 0 {
		t.cfg.WokeFunc()
	}
	return nil
}
