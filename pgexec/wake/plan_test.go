package wake

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// wholeTables are those that grow with the number of runs.
var wholeTables = regexp.MustCompile(`Seq Scan on (runs|river_job|run_log)`)

// What replicas ask all the time is answered by indexes, also when there is a backlog.
func TestPlans_NoSequentialScan(t *testing.T) {
	b := setup(t)
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, 5000)`)
	b.exec(`insert into pgexec.runs (kind, run_at) select 'k', now() + interval '1 day' from generate_series(1, 5000)`)
	b.exec(`analyze pgexec.runs`)
	b.exec(`analyze pgexec.river_job`)
	for _, tc := range []struct {
		name, statement string
		args            []any
	}{
		{"due", sql.WakeDue, []any{dueBatch, int64(500_000)}},
		{"waiting", sql.WakeWaiting, []any{[]string{"k"}, dueBatch, []string{"default"}}},
		{"sweep", sql.WakeSweep, []any{int64(0), sweepPage, "pgexec-1", int64(10_000_000), []int64{1, 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
				// A page of the backlog may be a good part of a small table.
				if _, err := tx.Exec(t.Context(), `set local enable_seqscan = off`); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), `explain (costs off) `+tc.statement, tc.args...)
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if plan := strings.Join(lines, "\n"); wholeTables.MatchString(plan) {
					t.Errorf("sequential scan:\n%s", plan)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// C25: the pool may be one for a transaction-mode pooler, without prepared statements.
func TestStatements_WithoutPreparing(t *testing.T) {
	b := setup(t)
	for id, mode := range map[runlog.ReplicaID]pgx.QueryExecMode{
		1: pgx.QueryExecModeExec, 2: pgx.QueryExecModeCacheDescribe, 3: pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			pools := b.pool.Config()
			pools.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), pools)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			cfg := b.config(id)
			cfg.Pool, cfg.Kinds = pool, []string{"k"}
			w, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w.current.add(1)
			if _, err := w.wakeDue(t.Context()); err != nil {
				t.Error(err)
			}
			if err := w.wakeWaiting(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := w.sweep(t.Context(), 0); err != nil {
				t.Error(err)
			}
			if err := w.ensurePartitions(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := pool.Exec(t.Context(), sql.WakeNudge, w.cfg.Queues); err != nil {
				t.Error(err)
			}
		})
	}
}

// G4: while the tables grow, the server knows nothing of their size yet, and a sweep takes no time in the square of it.
func TestPlans_SweepOfTablesThatGrow(t *testing.T) {
	b := setup(t)
	b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, 5000)`)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), sql.PlanByKey); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), `explain (analyze, costs off, timing off) `+sql.WakeSweep, int64(0), sweepPage, "pgexec-1", int64(0), []int64{})
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan := strings.Join(lines, "\n")
		for _, removed := range regexp.MustCompile(`Rows Removed by \w* ?Filter: (\d+)`).FindAllStringSubmatch(plan, -1) {
			if n, err := strconv.Atoi(removed[1]); err != nil || n > sweepPage {
				t.Errorf("%s rows were looked at in vain:\n%s", removed[1], plan)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
