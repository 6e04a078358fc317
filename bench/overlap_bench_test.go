package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/target"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

// BenchmarkFortyNodesOverlap is a run whose first node spawns forty nodes that wait 50 ms each: the time from
// the commit of the record that spawns them to the commit of the last of theirs. The median should be at most
// 60 ms.
func BenchmarkFortyNodesOverlap(b *testing.B) {
	const width, runs = 40, 30
	for _, flush := range flushes {
		b.Run(flush.name, func(b *testing.B) {
			for b.Loop() {
				commits := &appendTimes{}
				pool := poolLike(b, database(b, flush.settings), func(c *pgxpool.Config) { c.ConnConfig.Tracer = commits })
				serve(b, pool, fanOut(width, 50*time.Millisecond))
				client := pgexec.NewClient(pool, nil)
				defer client.Close()
				var times []time.Duration
				for range runs {
					commits.reset()
					id, err := client.Start(b.Context(), "fan", none{}, nil)
					if err == nil {
						_, err = client.Wait(b.Context(), id)
					}
					if err != nil {
						b.Fatal(err)
					}
					times = append(times, commits.span())
				}
				target.AtMost(b, "median", reportTimes(b, "makespan", times).median, 60*time.Millisecond)
			}
		})
	}
}

// fanOut is a run whose first node spawns so many nodes that only wait.
func fanOut(width int, wait time.Duration) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "fan", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		for range width {
			n.Spawn("leg", none{}, nil)
		}
		return none{}, nil
	}, nil)
	pgexec.AddKind(kinds, "leg", func(context.Context, *pgexec.Node, none) (none, error) {
		<-time.After(wait)
		return none{}, nil
	}, nil)
	return kinds
}

// appendTimes notes when the answers to appends of node records came.
type appendTimes struct {
	mu          sync.Mutex
	first, last time.Time
}

type tracedSQL struct{}

func (*appendTimes) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, tracedSQL{}, d.SQL)
}

func (a *appendTimes) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	now := time.Now()
	if s := ctx.Value(tracedSQL{}); s != sql.RunlogAppendOne && s != sql.RunlogAppendMany {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first.IsZero() {
		a.first = now
	}
	a.last = now
}

func (a *appendTimes) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first, a.last = time.Time{}, time.Time{}
}

func (a *appendTimes) span() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.Sub(a.first)
}
