package pgexec_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// C25: runs are claimed, parked, handed over and ended on pools that prepare nothing, as for a transaction-mode pooler.
func TestRuntime_PoolWithoutPreparedStatements_C25(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg := pgtest.DB(t).Config()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b := bundleOn(t, pool)
			kinds := spawning()
			first := b.replica(kinds)
			id := b.startNode("run", `{"kind": "root", "input": {"kind": "signal", "input": {"name": "go"}}}`)
			b.eventually(`select count(*) = 2 from pgexec.runs where status = 'parked' and (run_id = $1 or parent_run_id = $1)`, id)
			busy := b.startNode("sleep", `{"for": "500ms"}`)
			b.eventually(`select status <> 'queued' from pgexec.runs where run_id = $1`, busy)
			b.replica(kinds)
			first.drain()
			children, err := b.client.Descendants(b.ctx, []pgexec.RunID{id}, 10)
			if err != nil || len(children) != 1 {
				t.Fatalf("%d children, %v", len(children), err)
			}
			query[int64](b, `select pgexec.signal($1, 'go')`, children[0].ID)
			b.succeed(id)
			b.succeed(busy)
		})
	}
}
