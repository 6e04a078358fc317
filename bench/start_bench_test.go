package bench

import (
	"testing"
	"time"
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
				reportTimes(b, "start", times)
			}
		})
	}
}
