package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgtest"
)

// frozenFor is how long a replica that others shall find frozen stays so.
const frozenFor = 16 * time.Second

// fleet is a number of seats with a replica process in each, most of the time.
type fleet struct {
	t    *testing.T
	rng  *rand.Rand
	url  string
	dir  string
	seat []*seat
	// leaving are processes that got SIGTERM and whose seat is another's.
	leaving []*pgtest.Child
	todo    []task
	done    map[string]int // how often each thing was done
	starts  int
}

type seat struct {
	child *pgtest.Child // nil while the seat is empty
	// frozen: stopped, to go on later. long: long enough for the others to end its session.
	frozen, long bool
}

// task is something that is to be done later.
type task struct {
	at time.Time
	do func()
}

func newFleet(t *testing.T, rng *rand.Rand, url string) *fleet {
	f := &fleet{t: t, rng: rng, url: url, dir: t.TempDir(), done: make(map[string]int)}
	for range 3 {
		s := &seat{}
		f.seat = append(f.seat, s)
		f.start(s)
	}
	return f
}

func (f *fleet) start(s *seat) {
	f.starts++
	*s = seat{child: startReplica(f.t, f.url, f.dir, fmt.Sprintf("replica-%d", f.starts))}
}

// later does something within the given time.
func (f *fleet) later(within time.Duration, do func()) {
	f.after(draw(f.rng, within), do)
}

func (f *fleet) after(d time.Duration, do func()) {
	f.todo = append(f.todo, task{at: time.Now().Add(d), do: do})
}

// doDue does what is due; all of it when the time is zero.
func (f *fleet) doDue(now time.Time) {
	isDue := func(t task) bool { return now.IsZero() || !now.Before(t.at) }
	for {
		i := slices.IndexFunc(f.todo, isDue)
		if i < 0 {
			return
		}
		due := f.todo[i]
		f.todo = slices.Delete(f.todo, i, i+1)
		due.do()
	}
}

// chaos kills, drains, freezes and restarts replicas at random for a while, and
// leaves all seats taken and awake.
func (f *fleet) chaos(d time.Duration) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end, next := time.Now().Add(d), time.Now()
	for now := range tick.C {
		if now.After(end) {
			break
		}
		f.doDue(now)
		if now.After(next) {
			f.act(f.seat[f.rng.IntN(len(f.seat))])
			next = now.Add(100*time.Millisecond + draw(f.rng, 900*time.Millisecond))
		}
	}
	f.doDue(time.Time{})
}

func (f *fleet) act(s *seat) {
	if s.child == nil || s.frozen {
		return
	}
	switch p := f.rng.Float64(); {
	case p < 0.4:
		f.kill(s)
	case p < 0.65:
		f.terminate(s)
	case p < 0.85:
		f.freeze(s, draw(f.rng, 3*time.Second))
	case !slices.ContainsFunc(f.seat, func(s *seat) bool { return s.long }):
		f.freeze(s, frozenFor)
	}
}

func (f *fleet) kill(s *seat) {
	f.done["SIGKILL"]++
	s.child.Kill()
	s.child = nil
	f.later(time.Second, func() { f.start(s) })
}

// terminate drains a replica. Its seat is taken by another soon, as in a rolling
// deploy; some are killed before they are through.
func (f *fleet) terminate(s *seat) {
	f.done["SIGTERM"]++
	old := s.child
	signalTerm(old)
	s.child = nil
	f.later(500*time.Millisecond, func() { f.start(s) })
	if f.rng.Float64() < 0.3 {
		f.done["SIGKILL while draining"]++
		f.later(500*time.Millisecond, old.Kill)
		return
	}
	f.leaving = append(f.leaving, old)
}

// signalTerm has a replica process drain, which it can from its first line of code on.
func signalTerm(child *pgtest.Child) {
	child.Line(handlesSignals, patience)
	child.Signal(syscall.SIGTERM)
}

// freeze stops a replica for a while. Some never go on.
func (f *fleet) freeze(s *seat, d time.Duration) {
	s.frozen, s.long = true, d == frozenFor
	if s.long {
		f.done["long SIGSTOP"]++
	} else {
		f.done["short SIGSTOP"]++
	}
	s.child.Signal(syscall.SIGSTOP)
	f.after(d, func() {
		s.frozen, s.long = false, false
		if f.rng.Float64() < 0.2 {
			f.done["SIGKILL while frozen"]++
			s.child.Kill()
			f.start(s)
			return
		}
		s.child.Signal(syscall.SIGCONT)
	})
}

// drain ends all processes as a deploy does; each has to leave in order.
func (f *fleet) drain() {
	for _, s := range f.seat {
		signalTerm(s.child)
		f.leaving = append(f.leaving, s.child)
	}
	for _, child := range f.leaving {
		if code := child.Wait(patience); code != 0 {
			f.t.Errorf("replica process %d left with code %d after SIGTERM", child.PID(), code)
		}
	}
}

// draw returns a random duration below d.
func draw(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}
