package runlog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// Appends find rows by key and touch only the partition they need, whatever the statistics say: a plan made when a
// table was small is kept when it has grown. Counted by the server's own statistics of what was scanned, since in the
// transaction of a handler the guard's plans are inside of a function.
func TestStatements_NoSequentialScan(t *testing.T) {
	appends := map[string]string{
		"append_one":  sql.RunlogAppendOne,
		"append_many": sql.RunlogAppendMany,
		"append_tx":   sql.RunlogAppendTx,
	}
	for name, state := range map[string]func(*bundle){
		"tiny and analyzed": func(b *bundle) {
			b.ownedRuns(3)
			b.exec(`vacuum analyze pgexec.runs`)
			b.exec(`vacuum analyze pgexec.run_log`)
		},
		"empty when analyzed": func(b *bundle) {
			b.exec(`vacuum analyze pgexec.runs`)
			b.exec(`vacuum analyze pgexec.run_log`)
			b.ownedRuns(300)
		},
		"nobody owned a run when analyzed": func(b *bundle) {
			b.exec(`insert into pgexec.runs (kind) select 'k' from generate_series(1, 2000)`)
			b.exec(`vacuum analyze pgexec.runs`)
			b.ownedRuns(300)
		},
		"never analyzed": func(b *bundle) { b.ownedRuns(300) },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			state(b)
			for name, statement := range appends {
				scans := b.scansOf(statement)
				if !slices.Equal(scans, []string{"run_log: by key, 1 partition", "runs: by key, 1 row"}) {
					t.Errorf("%s scans %q", name, scans)
				}
			}
		})
	}
}

// ownedRuns makes runs of replica 7 with a claim record each, in one go.
func (b *bundle) ownedRuns(n int) {
	b.Helper()
	b.exec(`with r as (insert into pgexec.runs (kind) select 'k' from generate_series(1, $1) returning run_id)
		insert into pgexec.run_log (run_id, seq, record) select run_id, 1, 'claim' from r`, n)
	b.exec(`update pgexec.runs set owner = 7, status = 'running', epoch = 1, wake_job = null
		where run_id in (select run_id from pgexec.run_log)`)
}

// scansOf executes an append on a connection like its own and returns what it scanned, in words.
func (b *bundle) scansOf(statement string) []string {
	b.Helper()
	// The last one: an index on owner would lead to it only after all others.
	id := value[string](b, `select run_id from pgexec.run_log order by run_id desc limit 1`)
	arguments := fmt.Sprintf(`('%s', 1, 'new', 7, 1)`, id)
	if statement == sql.RunlogAppendMany {
		arguments = fmt.Sprintf(`('{%s}', '{1}', '{7}', '{1}', '{new}', '{%s}', '{3}', '{newer}')`, id, id)
	}
	// A session of its own, whose statistics begin here.
	conn, err := pgx.ConnectConfig(b.ctx, b.pool.Config().ConnConfig)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.ctx)
	settings := sql.RunlogSetup
	if statement == sql.RunlogAppendTx {
		settings = `set plan_cache_mode = force_generic_plan`
	}
	for _, step := range []string{
		settings, `prepare s as ` + statement, `begin`, sql.RunlogBeginTx, `execute s` + arguments,
	} {
		if _, err := conn.Exec(b.ctx, step, pgx.QueryExecModeSimpleProtocol); err != nil {
			b.Fatalf("%s: %v", step, err)
		}
	}
	rows, _ := conn.Query(b.ctx, `
		select case when sum(seq_scan) > 0 then 'runs: sequentially' else format('runs: by key, %s row', sum(idx_tup_fetch)) end
		from pg_stat_xact_user_tables where schemaname = 'pgexec' and relname = 'runs'
		union all
		select case when sum(seq_scan) > 0 then 'run_log: sequentially'
			else format('run_log: by key, %s partition', count(*) filter (where idx_scan > 0)) end
		from pg_stat_xact_user_tables where schemaname = 'pgexec' and relname like 'run_log%'
		order by 1`)
	scans, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	return scans
}
