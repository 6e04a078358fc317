package schema_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/sql"
)

// What people ask of runs is found by index, however many have ended or wait: nothing of it reads all runs.
func TestViews_DoNotReadAllRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `insert into pgexec.runs (kind, run_at) select 'k', 'infinity' from generate_series(1, 40000)`)
	exec(t, pool, `update pgexec.runs set epoch = 1, status = case when n <= 20000 then 'succeeded' else 'parked' end,
			finished_at = case when n <= 20000 then now() end, may_ask = n between 30000 and 30020, input = '{"agent": "a"}'
		from (select run_id as id, row_number() over (order by run_id) as n from pgexec.runs) _ where run_id = id`)
	exec(t, pool, `update pgexec.runs set status = 'running', owner = 7 where run_id in (select run_id from pgexec.runs where status = 'parked' order by random() limit 100)`)
	exec(t, pool, `update pgexec.runs set status = 'failed', finished_at = now() where run_id in (select run_id from pgexec.runs where status = 'succeeded' order by random() limit 100)`)
	exec(t, pool, `insert into pgexec.run_log select run_id, n, '\x0a00' from pgexec.runs, generate_series(1, 2) n`)
	exec(t, pool, `vacuum analyze pgexec.runs, pgexec.run_log`)
	id := one[string](t, pool, `select run_id::text from pgexec.runs limit 1`)
	log := one[string](t, pool, `select relname::text from pg_class where oid = (select tableoid from pgexec.run_log limit 1)`)
	for name, c := range map[string]struct {
		statement string
		args      []any
	}{
		"approvals":        {statement: `select * from pgexec.approvals`},
		"running":          {statement: `select * from pgexec.run_overview where status = 'running'`},
		"paused":           {statement: `select * from pgexec.run_overview where status = 'paused'`},
		"failed":           {statement: `select * from pgexec.run_overview where status = 'failed'`},
		"newest parked":    {statement: `select * from pgexec.run_overview where status = 'parked' order by run_id desc limit 20`},
		"newest":           {statement: `select * from pgexec.run_overview order by run_id desc limit 20`},
		"one":              {statement: `select * from pgexec.run_overview where run_id = $1`, args: []any{id}},
		"nodes of one":     {statement: `select * from pgexec.nodes where run_id = $1`, args: []any{id}},
		"get":              {statement: sql.ClientGet, args: []any{id}},
		"list":             {statement: sql.ClientList, args: []any{nil, nil, nil, 100, false}},
		"list of failed":   {statement: sql.ClientList, args: []any{nil, []string{"failed", "cancelled"}, nil, 100, false}},
		"list of parked":   {statement: sql.ClientList, args: []any{nil, []string{"parked"}, nil, 100, true}},
		"descendants":      {statement: sql.ClientDescendants, args: []any{[]string{id}, 100}},
		"usage that rests": {statement: sql.WakeUsage},
	} {
		rows, err := pool.Query(t.Context(), "explain (costs off) "+c.statement, c.args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan := strings.Join(lines, "\n")
		if strings.Contains(plan, "Seq Scan on runs") || strings.Contains(plan, "Seq Scan on "+log) {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
