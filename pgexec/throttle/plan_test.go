package throttle

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// C25: the pool may be one for a transaction-mode pooler, without prepared statements.
func TestStatements_WithoutPreparing(t *testing.T) {
	b := setup(t)
	b.limit(2, 100, "1 s", 3)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			pools := b.pool.Config()
			pools.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), pools)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			r := b.replicaThat(map[string]Limit{"other": {MaxInFlight: 3, Per: time.Second, KeyPointer: "/a"}})
			r.Stop()
			r.cfg.Pool = pool
			b.exec(`delete from pgexec.declared_limits`)
			granted := make(chan struct{}, 1)
			k := r.Ask(kindK, time.Now(), func() { granted <- struct{}{} })
			steps := []func() error{
				func() error { return r.declare(t.Context()) },
				func() error { return r.turn(t.Context()) }, // a slot
				func() error { return r.turn(t.Context()) }, // a token for it
				func() error { <-granted; k.Release(); return r.refresh(t.Context()) },
				func() error { pause(t, idleAfter); return r.give(t.Context()) },
				func() error { pause(t, idleAfter); return r.give(t.Context()) },
			}
			for i, step := range steps {
				if err := step(); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			if n := get[int](b, `select count(*) from pgexec.kind_slots`); n != 0 {
				t.Errorf("%d slots are left", n)
			}
			if n := get[int](b, `select count(*) from pgexec.declared_limits where kind = 'other' and max_in_flight = 3`); n != 1 {
				t.Error("the limit is not declared")
			}
		})
	}
}
