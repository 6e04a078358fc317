package bench

import (
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/target"
	"github.com/pgexec/runtime/pgexec"
)

// BenchmarkTakeoverAfterKill is the time from SIGKILL of a replica process to the start, on another, of each
// node that it had in flight: 40 kills, twelve runs on three replicas. The median should be below 250 ms,
// the 99th percentile below 1 s (C14).
func BenchmarkTakeoverAfterKill(b *testing.B) {
	const kills, runs = 40, 12
	for b.Loop() {
		f := newFleet(b, slowFlush, 3)
		owners := f.insertStarted("hold", runs)
		var times []time.Duration
		for range kills {
			hosts := slices.Collect(maps.Values(owners))
			victim := hosts[rand.IntN(len(hosts))]
			at := time.Now()
			f.replicas[victim].Kill()
			times = append(times, f.taken(owners, map[string]time.Time{victim: at})...)
			f.start()
			rest(200 * time.Millisecond)
		}
		all := reportTimes(b, "takeover", times)
		target.AtMost(b, "median", all.median, 250*time.Millisecond)
		target.AtMost(b, "99th percentile", all.p99, time.Second)
	}
}

// BenchmarkTakeoverFromFrozen is the time from SIGSTOP of a replica process to the start of its nodes on
// another: three replicas of four are stopped. The longest should be below 15 s (C06).
func BenchmarkTakeoverFromFrozen(b *testing.B) {
	for b.Loop() {
		f := newFleet(b, slowFlush, 4)
		owners := f.insertStarted("hold", 16)
		frozen := make(map[string]time.Time)
		for _, victim := range slices.Compact(slices.Sorted(maps.Values(owners))) {
			if len(frozen) == 3 {
				break
			}
			frozen[victim] = time.Now()
			f.replicas[victim].Signal(syscall.SIGSTOP)
			rest(time.Second)
		}
		target.AtMost(b, "longest", reportTimes(b, "takeover", f.taken(owners, frozen)).longest, 15*time.Second)
	}
}

// taken waits until all runs of lost replicas have started elsewhere, notes where in owners, and returns how
// long each took since its replica was lost.
func (f *fleet) taken(owners map[pgexec.RunID]string, lost map[string]time.Time) []time.Duration {
	f.b.Helper()
	missing := 0
	for _, host := range owners {
		if _, ok := lost[host]; ok {
			missing++
		}
	}
	var times []time.Duration
	for ; missing > 0; missing-- {
		e := f.wait(func(e event) bool {
			_, gone := lost[owners[e.run]]
			return e.what == started && gone && e.host != owners[e.run]
		})
		times = append(times, e.at.Sub(lost[owners[e.run]]))
		owners[e.run] = e.host
	}
	return times
}

// BenchmarkHandOverByDrain is the time from the end of a run's node in flight on a replica that got SIGTERM to
// the start of the run's next node on another replica, the record's commit included. Ten other runs, whose
// nodes take seconds, keep the drain going for long after. The median should be below 100 ms.
func BenchmarkHandOverByDrain(b *testing.B) {
	const drains = 5
	for b.Loop() {
		f := newFleet(b, slowFlush, 1)
		f.insertStarted("slow", 10)
		turns := f.insertStarted("turn", 20)
		var times []time.Duration
		for old := "r1"; f.starts <= drains; {
			next := f.start()
			rest(300 * time.Millisecond)
			f.replicas[old].Signal(syscall.SIGTERM)
			times = append(times, f.handedOver(old, turns)...)
			if code := f.replicas[old].Wait(patience); code != 0 {
				b.Fatalf("a drained replica left with code %d", code)
			}
			old = next
		}
		target.AtMost(b, "median", reportTimes(b, "handover", times).median, 100*time.Millisecond)
	}
}

// handedOver waits until each of the runs has started on another replica than old, and returns how long it
// stood still after its last node on old.
func (f *fleet) handedOver(old string, runs map[pgexec.RunID]string) []time.Duration {
	f.b.Helper()
	moved := make(map[pgexec.RunID]bool)
	var times []time.Duration
	for len(moved) < len(runs) {
		e := f.wait(func(e event) bool {
			_, wanted := runs[e.run]
			return wanted && e.what == started && e.host != old
		})
		if !moved[e.run] {
			moved[e.run] = true
			times = append(times, e.at.Sub(f.ends[e.run][old]))
		}
	}
	return times
}
