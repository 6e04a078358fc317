package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/target"
	"github.com/pgexec/runtime/pgexec"
)

// concurrentRuns is the number of runs that are hot at once in the benchmarks of throughput.
const concurrentRuns = 256

// BenchmarkThroughputWatched is 256 runs of nodes that take no time, executed by one replica from end to end:
// records committed a second while clients watch 100 of the runs, against while nobody watches. Both take turns
// on the same runs; x_unwatched is the median of the ratios of a turn to those before and after it, and
// should be at least 0.9 (C23). delivered/s is what the watchers get; it fails if that is less than 0.9 of what their runs commit.
func BenchmarkThroughputWatched(b *testing.B) {
	const watchers, turns, slice = 100, 15, 500 * time.Millisecond
	for _, flush := range flushes {
		b.Run(flush.name, func(b *testing.B) {
			for b.Loop() {
				pool := database(b, flush.settings)
				kinds, executed := endless()
				ids := insertChains(b, pool, concurrentRuns)
				serve(b, pool, kinds)
				executedPerSecond(executed, slice)
				without := []float64{executedPerSecond(executed, slice)}
				var with, ratio []float64
				var delivered, committed int64
				var took time.Duration
				for i := range turns {
					received, stop := watch(b, pool, ids[:watchers])
					executedPerSecond(executed, slice/4) // watchers begin at the end of the log as they find it
					began, before, head := time.Now(), received.Load(), heads(b, pool, ids[:watchers])
					with = append(with, executedPerSecond(executed, slice))
					took += time.Since(began)
					delivered += received.Load() - before
					committed += heads(b, pool, ids[:watchers]) - head
					stop()
					without = append(without, executedPerSecond(executed, slice))
					ratio = append(ratio, with[i]/mean(without[i:]))
				}
				if float64(delivered) < 0.9*float64(committed) {
					b.Errorf("watchers got %d of the %d records that their runs committed", delivered, committed)
				}
				slices.Sort(ratio)
				b.ReportMetric(float64(delivered)/took.Seconds(), "delivered/s")
				b.ReportMetric(mean(without), "unwatched/s")
				b.ReportMetric(mean(with), "watched/s")
				b.ReportMetric(ratio[turns/2], "x_unwatched")
				target.AtLeast(b, "x_unwatched", ratio[turns/2], 0.9)
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// endless are runs whose every node spawns the next; executed counts the nodes.
func endless() (kinds *pgexec.Kinds, executed *atomic.Int64) {
	kinds, executed = pgexec.NewKinds(), new(atomic.Int64)
	pgexec.AddKind(kinds, "link", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		executed.Add(1)
		n.Spawn("link", none{}, nil)
		return none{}, nil
	}, nil)
	return kinds, executed
}

// executedPerSecond is the number of nodes executed a second. Each node but a run's first was started by a commit.
func executedPerSecond(executed *atomic.Int64, slice time.Duration) float64 {
	before, began := executed.Load(), time.Now()
	<-time.After(slice)
	return float64(executed.Load()-before) / time.Since(began).Seconds()
}

func insertChains(b *testing.B, pool *pgxpool.Pool, runs int) []pgexec.RunID {
	b.Helper()
	rows, err := pool.Query(b.Context(), `insert into pgexec.runs (kind) select 'link' from generate_series(1, $1) returning run_id`, runs)
	if err != nil {
		b.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[pgexec.RunID])
	if err != nil {
		b.Fatal(err)
	}
	return ids
}

// heads is the number of records that the runs have.
func heads(b *testing.B, pool *pgxpool.Pool, ids []pgexec.RunID) (sum int64) {
	b.Helper()
	err := pool.QueryRow(b.Context(), `
		select sum((select seq from pgexec.run_log l where l.run_id = w.run_id order by seq desc limit 1))::bigint
		from unnest($1::uuid[]) w (run_id)`, ids).Scan(&sum)
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// watch has a client with a pool of its own watch each of the runs from now on; received counts the records.
func watch(b *testing.B, pool *pgxpool.Pool, ids []pgexec.RunID) (received *atomic.Int64, stop func()) {
	b.Helper()
	received = new(atomic.Int64)
	own := poolLike(b, pool, func(c *pgxpool.Config) { c.MaxConns = 4 })
	client := pgexec.NewClient(own, nil)
	ctx, cancel := context.WithCancel(b.Context())
	rows, err := own.Query(ctx, `
		select run_id, (select seq from pgexec.run_log l where l.run_id = w.run_id order by seq desc limit 1)
		from unnest($1::uuid[]) w (run_id)`, ids)
	if err != nil {
		b.Fatal(err)
	}
	var watching sync.WaitGroup
	var id pgexec.RunID
	var head pgexec.Seq
	if _, err = pgx.ForEachRow(rows, []any{&id, &head}, func() error {
		records := client.Watch(ctx, id, head)
		watching.Go(func() {
			for _, err := range records {
				switch {
				case err == nil:
					received.Add(1)
				case ctx.Err() == nil:
					b.Errorf("watch: %v", err)
				}
			}
		})
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return received, func() {
		cancel()
		watching.Wait()
		client.Close()
	}
}

// BenchmarkThroughputWithLongReader is 256 short runs at a time, each replaced when it ends, while somebody holds
// a REPEATABLE READ snapshot for 10 s, against the time before and after it. x_without should be at least 0.8 (C35).
func BenchmarkThroughputWithLongReader(b *testing.B) {
	const reader = 10 * time.Second
	for b.Loop() {
		pool := database(b, slowFlush)
		kinds, executed, finished := short(20)
		serve(b, pool, kinds)
		stop := replaceFinished(b, pool, finished)
		executedPerSecond(executed, 3*time.Second)
		without := []float64{executedPerSecond(executed, reader/2)}
		release := holdSnapshot(b, pool)
		with := executedPerSecond(executed, reader)
		release()
		without = append(without, executedPerSecond(executed, reader/2))
		stop()
		b.ReportMetric(mean(without), "without/s")
		b.ReportMetric(with, "with/s")
		b.ReportMetric(with/mean(without), "x_without")
		target.AtLeast(b, "x_without", with/mean(without), 0.8)
		b.ReportMetric(0, "ns/op")
	}
}

// short are runs of so many nodes; executed counts nodes, finished the runs whose last node was executed.
func short(nodes int) (kinds *pgexec.Kinds, executed, finished *atomic.Int64) {
	kinds, executed, finished = pgexec.NewKinds(), new(atomic.Int64), new(atomic.Int64)
	pgexec.AddKind(kinds, "link", func(_ context.Context, n *pgexec.Node, done int) (int, error) {
		executed.Add(1)
		if done+1 < nodes {
			n.Spawn("link", done+1, nil)
		} else {
			finished.Add(1)
		}
		return done, nil
	}, nil)
	return kinds, executed, finished
}

// replaceFinished keeps the number of runs that are not finished at concurrentRuns.
func replaceFinished(b *testing.B, pool *pgxpool.Pool, finished *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var inserting sync.WaitGroup
	inserting.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for inserted := int64(0); ; {
			if n := finished.Load() + concurrentRuns - inserted; n > 0 {
				_, err := pool.Exec(ctx, `insert into pgexec.runs (kind, input) select 'link', '0' from generate_series(1, $1)`, n)
				if err != nil {
					if ctx.Err() == nil {
						b.Errorf("insert runs: %v", err)
					}
					return
				}
				inserted += n
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		inserting.Wait()
	}
}

// holdSnapshot opens a transaction that keeps its snapshot until it is released.
func holdSnapshot(b *testing.B, pool *pgxpool.Pool) (release func()) {
	b.Helper()
	conn, err := pgx.ConnectConfig(b.Context(), pool.Config().ConnConfig)
	if err != nil {
		b.Fatal(err)
	}
	for _, statement := range []string{`begin isolation level repeatable read`, `select count(*) from pgexec.runs`} {
		if _, err := conn.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	return func() {
		if err := conn.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}
}
