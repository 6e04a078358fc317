package bench

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/target"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// BenchmarkAppendLatency is one run that appends one record after another, against a bare prepared INSERT into
// a table like the log. Both take turns. x_bare should be at most 1.25.
func BenchmarkAppendLatency(b *testing.B) {
	for _, flush := range flushes {
		b.Run(flush.name, func(b *testing.B) {
			pool := database(b, flush.settings)
			w := runlog.NewWriter(runlog.WriterConfig{Pool: pool})
			defer w.Close()
			id := ownedRuns(b, pool, 1)[0]
			tail := w.Open(id, owner, 1, 1)
			record := recordOf(b, 600, &pb.Node{Id: "node", Parents: []string{"root"}})
			var bare, fenced []time.Duration
			seq := int64(0)
			turn := func() {
				seq++
				start := time.Now()
				if _, err := pool.Exec(b.Context(), bareInsert, id, seq, record); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if err := appendAndWait(b.Context(), tail, record); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, middle.Sub(start))
				fenced = append(fenced, time.Since(middle))
			}
			for range 500 {
				turn() // statements are prepared, plans are made
			}
			bare, fenced = nil, nil
			for b.Loop() {
				turn()
			}
			bareMedian, fencedMedian := median(bare), median(fenced)
			b.ReportMetric(float64(bareMedian.Nanoseconds())/1e3, "bare_µs")
			b.ReportMetric(float64(fencedMedian.Nanoseconds())/1e3, "append_µs")
			ratio := float64(fencedMedian) / float64(bareMedian)
			b.ReportMetric(ratio, "x_bare")
			if flush.keeps {
				target.AtMost(b, "x_bare", ratio, 1.25)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkAppendInLongLog is a run with 10,000 records that appends, against one with 10. Both take turns. x_short
// should be within 0.8 and 1.2 (C31).
func BenchmarkAppendInLongLog(b *testing.B) {
	pool := database(b, flushes[0].settings)
	w := runlog.NewWriter(runlog.WriterConfig{Pool: pool})
	defer w.Close()
	record := recordOf(b, 600, &pb.Node{Id: "node", Parents: []string{"root"}})
	ids := ownedRuns(b, pool, 101)
	long := w.Open(ids[0], owner, 1, 1)
	for range 10_000 - 1 {
		if err := appendAndWait(b.Context(), long, record); err != nil {
			b.Fatal(err)
		}
	}
	var short []*runlog.Tail
	for _, id := range ids[1:] {
		short = append(short, w.Open(id, owner, 1, 1))
	}
	var shortTimes, longTimes []time.Duration
	timed := func(times *[]time.Duration, t *runlog.Tail) {
		start := time.Now()
		if err := appendAndWait(b.Context(), t, record); err != nil {
			b.Fatal(err)
		}
		*times = append(*times, time.Since(start))
	}
	for i := 0; b.Loop(); i++ {
		timed(&shortTimes, short[i%len(short)])
		timed(&longTimes, long)
	}
	ratio := float64(median(longTimes)) / float64(median(shortTimes))
	b.ReportMetric(ratio, "x_short")
	target.AtLeast(b, "x_short", ratio, 0.8)
	target.AtMost(b, "x_short", ratio, 1.2)
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAppendThroughput is 256 runs that append as fast as they can, against bare prepared INSERTs from as
// many clients as the pool has connections. Both take turns. x_bare should be at least 2.
func BenchmarkAppendThroughput(b *testing.B) {
	const runs, slice = 256, 500 * time.Millisecond
	for _, flush := range flushes {
		b.Run(flush.name, func(b *testing.B) {
			pool := database(b, flush.settings)
			w := runlog.NewWriter(runlog.WriterConfig{Pool: pool})
			defer w.Close()
			var tails []*runlog.Tail
			for _, id := range ownedRuns(b, pool, runs) {
				tails = append(tails, w.Open(id, owner, 1, 1))
			}
			record := recordOf(b, 600, &pb.Node{Id: "node", Parents: []string{"root"}})
			var bare, fenced []float64
			for range 2 {
				bareRate(b, pool, record, slice/2)
				appendRate(b, tails, record, slice/2)
			}
			for b.Loop() {
				for range 3 {
					bare = append(bare, bareRate(b, pool, record, slice))
					fenced = append(fenced, appendRate(b, tails, record, slice))
				}
			}
			b.ReportMetric(mean(bare), "bare/s")
			b.ReportMetric(mean(fenced), "appends/s")
			b.ReportMetric(mean(fenced)/mean(bare), "x_bare")
			if flush.keeps {
				target.AtLeast(b, "x_bare", mean(fenced)/mean(bare), 2)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// bareRate is the INSERTs a second of one client for each connection.
func bareRate(b *testing.B, pool *pgxpool.Pool, record []byte, during time.Duration) float64 {
	return rate(b, conns, during, func(ctx context.Context, _ int) func() error {
		var id runlog.RunID
		_, _ = rand.Read(id[:])
		seq := int64(0)
		return func() error {
			seq++
			_, err := pool.Exec(ctx, bareInsert, id, seq, record)
			return err
		}
	})
}

func appendRate(b *testing.B, tails []*runlog.Tail, record []byte, during time.Duration) float64 {
	return rate(b, len(tails), during, func(ctx context.Context, i int) func() error {
		return func() error { return appendAndWait(ctx, tails[i], record) }
	})
}

// rate is how often a second a number of clients together get through what they do.
func rate(b *testing.B, clients int, during time.Duration, client func(context.Context, int) func() error) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i := range clients {
		wg.Go(func() {
			step := client(b.Context(), i)
			for time.Since(start) < during {
				if err := step(); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return float64(done.Load()) / time.Since(start).Seconds()
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
