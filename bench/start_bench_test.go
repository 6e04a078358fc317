package bench

import (
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/target"
	"github.com/pgexec/runtime/pgexec"
)

// BenchmarkInsertToStart is the time from the commit of an INSERT into pgexec.runs, as psql sees it, to the call
// of the run's first handler, on an idle system of three replica processes. The median should be below 20 ms.
func BenchmarkInsertToStart(b *testing.B) {
	const runs = 100
	for _, flush := range flushes {
		b.Run(flush.name, func(b *testing.B) {
			for b.Loop() {
				f := newFleet(b, flush.settings, 3)
				f.insertStarted("quick", 10)
				var times []time.Duration
				for range runs {
					rest(100 * time.Millisecond)
					id, committed := f.insert("quick")
					e := f.wait(func(e event) bool { return e.what == started && e.run == id })
					times = append(times, e.at.Sub(committed))
				}
				target.AtMost(b, "median", reportTimes(b, "start", times).median, 20*time.Millisecond)
			}
		})
	}
}

// BenchmarkSignalToStart is the time from the commit of a signal to a parked run to the call of the handler that
// follows the wait: the run is claimed, rehydrated and goes on. The median should be below 100 ms.
func BenchmarkSignalToStart(b *testing.B) {
	const runs = 100
	for _, flush := range flushes {
		b.Run(flush.name, func(b *testing.B) {
			for b.Loop() {
				f := newFleet(b, flush.settings, 3)
				var ids []pgexec.RunID
				for range runs {
					id, _ := f.insert("wait")
					ids = append(ids, id)
				}
				f.untilParked(runs)
				var times []time.Duration
				for _, id := range ids {
					rest(50 * time.Millisecond)
					if _, err := f.pool.Exec(b.Context(), `select pgexec.signal($1, 'go')`, id); err != nil {
						b.Fatal(err)
					}
					committed := time.Now()
					e := f.wait(func(e event) bool { return e.what == started && e.run == id })
					times = append(times, e.at.Sub(committed))
				}
				target.AtMost(b, "median", reportTimes(b, "wake", times).median, 100*time.Millisecond)
			}
		})
	}
}

// untilParked waits until so many runs are parked.
func (f *fleet) untilParked(runs int) {
	f.b.Helper()
	for late := time.After(patience); ; {
		var parked int
		if err := f.pool.QueryRow(f.b.Context(), `select count(*) from pgexec.runs where status = 'parked'`).Scan(&parked); err != nil {
			f.b.Fatal(err)
		}
		if parked == runs {
			return
		}
		select {
		case <-late:
			f.b.Fatalf("%d of %d runs are parked", parked, runs)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
