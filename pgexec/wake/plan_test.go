package wake

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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
		{"waiting", sql.WakeWaiting, []any{[]string{"k"}, dueBatch}},
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
