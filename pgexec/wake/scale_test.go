package wake

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// touched executes a statement some times in one session and returns how many
// rows of pgexec.runs it read each time, and how long it took at least.
func (b *bundle) touched(statement string, args ...any) (rows int64, least time.Duration) {
	b.t.Helper()
	conn, err := b.pool.Acquire(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Release()
	const times = 9 // after five, the server may keep one plan for all
	const read = `select (select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where schemaname = 'pgexec' and relname = 'runs')`
	var before, after int64
	var took []time.Duration
	err = pgx.BeginFunc(b.t.Context(), conn, func(tx pgx.Tx) error {
		if err := tx.QueryRow(b.t.Context(), read).Scan(&before); err != nil {
			return err
		}
		for range times {
			start := time.Now()
			if _, err := tx.Exec(b.t.Context(), statement, args...); err != nil {
				return err
			}
			took = append(took, time.Since(start))
		}
		return tx.QueryRow(b.t.Context(), read).Scan(&after)
	})
	if err != nil {
		b.t.Fatalf("%.60s: %v", statement, err)
	}
	return (after - before) / times, slices.Min(took)
}

// 100,000 parked runs, half of them with a time, cost nothing: what every replica asks all the time
// reads what is due or its own, and nothing else.
func TestParked_HundredThousandAreNoLoad(t *testing.T) {
	b := setup(t)
	const parked, owned, due = 100_000, 1000, 20
	b.exec(`insert into pgexec.runs (kind, run_at) select 'k', now() + interval '1 day' from generate_series(1, $1)`, parked)
	b.exec(`update pgexec.runs set status = 'parked', reason = 'waits', inbox = 1,
		run_at = case when random() < 0.5 then 'infinity' else now() + random() * interval '30 days' + interval '1 hour' end`)
	mine := b.ownMany(owned)
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1 where run_id = any ($1)`, mine)
	b.exec(`vacuum analyze pgexec.runs`)
	look := []any{mine[0], []int64{}, []string{"n"}, MaxSignals, maxLookBytes, int64(1), int32(1), int64(1)}
	park := []any{mine[0], int32(1), int64(1), int64(-1), nil, []byte("waits"), []string{}, []string{}, []time.Time{}, int64(0), int64(0), int64(0), int64(0), int64(0), false}
	for _, tc := range []struct {
		name, statement string
		args            []any
		most            int64
	}{
		{"timers", sql.WakeDue, []any{dueBatch, int64(500_000)}, 1},
		{"sweep", sql.WakeSweep, []any{int64(0), sweepPage, "pgexec-1", int64(10_000_000), []int64{}}, 1},
		{"sweep of waiting kinds", sql.WakeWaiting, []any{[]string{"k"}, dueBatch, []string{"default"}}, 1},
		{"poll", sql.OwnershipOwned, []any{int32(1)}, owned},
		{"poll of a replica that owns nothing", sql.OwnershipOwned, []any{int32(2)}, 0},
		{"search for owners that are not listed", sql.OwnershipFinderRelist, nil, 4},
		{"look", sql.LifeInbox, look, 1},
		{"park", sql.LifePark, park, 3},
	} {
		rows, took := b.touched(tc.statement, tc.args...)
		t.Logf("%s: %d rows, %v", tc.name, rows, took)
		if rows > tc.most {
			t.Errorf("%s reads %d rows, want at most %d", tc.name, rows, tc.most)
		}
		if limit := 50 * time.Millisecond; took > limit {
			t.Errorf("%s takes %v", tc.name, took)
		}
	}
	b.exec(`update pgexec.runs set run_at = now() where run_id in (select run_id from pgexec.runs where status = 'parked' limit $1)`, due)
	rows, took := b.touched(sql.WakeDue, dueBatch, int64(500_000))
	t.Logf("%d that are due: %d rows, %v", due, rows, took)
	if woken := get[int](b, `select count(*) from pgexec.runs where status = 'parked' and wake_job is not null`); woken != due {
		t.Errorf("%d runs were woken, want %d", woken, due)
	}
	if rows > 10*due {
		t.Errorf("waking %d runs reads %d rows", due, rows)
	}
	if plan := b.plan(sql.WakeDue, dueBatch, int64(500_000)); strings.Contains(plan, "Seq Scan on runs") {
		t.Errorf("sequential scan:\n%s", plan)
	}
}

// plan explains a statement as the server would run it.
func (b *bundle) plan(statement string, args ...any) string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `explain (costs off) `+statement, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
