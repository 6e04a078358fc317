package ownership_test

import (
	"fmt"
	"testing"

	"github.com/pgexec/runtime/pgexec/ownership"
)

// BenchmarkClaim reports the time of one claim call and of one run in it.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("runs=%d", n), func(b *testing.B) {
			x := setup(b)
			s := x.open()
			c := x.claimer(s)
			for b.Loop() {
				b.StopTimer()
				wants := x.startMany(n)
				b.StartTimer()
				res, err := c.Claim(x.ctx, wants)
				if err != nil || len(res.Claimed) != n {
					b.Fatalf("claimed %d of %d, error %v", len(res.Claimed), n, err)
				}
				b.StopTimer()
				if _, err := ownership.Release(x.ctx, x.pool, s.ID(), heldOf(res.Claimed...), nil); err != nil {
					b.Fatal(err)
				}
				x.exec(`update pgexec.runs set status = 'succeeded', wake_job = null where status = 'queued'`)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/run")
		})
	}
}
