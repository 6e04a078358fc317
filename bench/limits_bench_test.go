package bench

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// BenchmarkFleetLimitUnbound is 64 runs of nodes that take no time on one replica: nodes a second of a kind with
// a fleet-wide limit that never holds one, against the same kind without. Both take turns on the same runs;
// x_unlimited is the median of the ratios of a turn to those before and after it.
func BenchmarkFleetLimitUnbound(b *testing.B) {
	for name, limit := range map[string]string{
		"slots": `insert into pgexec.kind_limits (kind, max_in_flight) values ('link', 1000)`,
		"rate":  `insert into pgexec.kind_limits (kind, rate, burst) values ('link', 1000000, 100000)`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				measureUnbound(b, limit)
			}
		})
	}
}

func measureUnbound(b *testing.B, limit string) {
	const turns, slice, seen = 7, 500 * time.Millisecond, 1500 * time.Millisecond
	pool := database(b, flushes[0].settings)
	kinds, executed := endless()
	insertChains(b, pool, 64)
	serve(b, pool, kinds)
	turn := func(statement string) float64 {
		if _, err := pool.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
		<-time.After(seen) // the replica has seen it
		return executedPerSecond(executed, slice)
	}
	without := []float64{turn(`delete from pgexec.kind_limits`)}
	var with, ratio []float64
	for i := range turns {
		with = append(with, turn(limit))
		without = append(without, turn(`delete from pgexec.kind_limits`))
		ratio = append(ratio, with[i]/mean(without[i:]))
	}
	slices.Sort(ratio)
	b.ReportMetric(mean(without), "unlimited/s")
	b.ReportMetric(mean(with), "limited/s")
	b.ReportMetric(ratio[turns/2], "x_unlimited")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFleetLimitBound is 1,000 waiting runs of one node of 10 ms each on three replicas, with so many slots
// in the fleet: nodes a second, what part of the slots' time that uses, and claims for each run. Each replica
// has its own pool.
func BenchmarkFleetLimitBound(b *testing.B) {
	const runs, takes = 1000, 10 * time.Millisecond
	for _, slots := range []int{1, 8} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			for b.Loop() {
				pool := database(b, flushes[0].settings)
				if _, err := pool.Exec(b.Context(), `insert into pgexec.kind_limits (kind, max_in_flight) values ('work', $1)`, slots); err != nil {
					b.Fatal(err)
				}
				if _, err := pool.Exec(b.Context(), `insert into pgexec.runs (kind) select 'work' from generate_series(1, $1)`, runs); err != nil {
					b.Fatal(err)
				}
				var executed atomic.Int64
				kinds := pgexec.NewKinds()
				pgexec.AddKind(kinds, "work", func(context.Context, *pgexec.Node, none) (none, error) {
					<-time.After(takes)
					executed.Add(1)
					return none{}, nil
				}, nil)
				for range 3 {
					serve(b, poolLike(b, pool, func(*pgxpool.Config) {}), kinds)
				}
				began := time.Now()
				for executed.Load() < runs {
					if time.Since(began) > patience {
						b.Fatalf("%d of %d nodes in %v", executed.Load(), runs, patience)
					}
					<-time.After(5 * time.Millisecond)
				}
				perSecond := runs / time.Since(began).Seconds()
				var claims float64
				if err := pool.QueryRow(b.Context(), `select avg(epoch)::float8 from pgexec.runs`).Scan(&claims); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(perSecond, "nodes/s")
				b.ReportMetric(perSecond*takes.Seconds()/float64(slots), "of_slots_time")
				b.ReportMetric(claims, "claims/run")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
