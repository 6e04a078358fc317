package ownership_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// fill makes the tables as large as after a good while: finished runs and used
// wakes by far the most.
func (b *bundle) fill(s runlog.ReplicaID) {
	b.t.Helper()
	for _, statement := range []string{
		`insert into pgexec.runs (kind) select 'k' from generate_series(1, 20000)`,
		`update pgexec.runs set status = 'succeeded', finished_at = now(), wake_job = null, epoch = 1
			where run_id in (select run_id from pgexec.runs order by run_id limit 19000)`,
		`update pgexec.river_job set state = 'completed', finalized_at = now() where id in (select id from pgexec.river_job order by id limit 19000)`,
		`insert into pgexec.run_log (run_id, seq, record) select run_id, n, '\x1200' from pgexec.runs, generate_series(1, 5) n where status = 'succeeded'`,
		fmt.Sprintf(`update pgexec.runs set status = 'running', owner = %d, epoch = 1, wake_job = null
			where run_id in (select run_id from pgexec.runs where status = 'queued' order by run_id limit 200)`, s),
		`insert into pgexec.run_log (run_id, seq, record) select run_id, 1, '\x1200' from pgexec.runs where status = 'running'`,
		`update pgexec.river_job set state = 'running', attempted_by = '{pgexec-77}', attempt = 1, attempted_at = now()
			where id in (select id from pgexec.river_job where state = 'available' order by id limit 20)`,
		`analyze pgexec.runs, pgexec.run_log, pgexec.river_job, pgexec.replicas`,
	} {
		b.exec(statement)
	}
}

// No hot statement reads a table from end to end, neither with a plan for its
// parameters nor with the plan that the server keeps for all.
func TestStatements_NoSequentialScan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open()
	b.fill(s.ID())
	id := fmt.Sprint(int32(s.ID()))
	some := `select quote_literal(array_agg(run_id)) from (select run_id from pgexec.runs where status = $1 order by run_id limit 3) r`
	queued, held := value[string](b, some, "queued"), value[string](b, some, "running")
	for name, c := range map[string]struct{ statement, arguments string }{
		"claim_look": {sql.OwnershipClaimLook, queued},
		"claim": {sql.OwnershipClaim, id + "," + queued +
			`, '{1,2,3}', '{0,0,0}', '{0,0,0}', '{0,0,0}', array['\x1200', '\x1200', '\x1200']::bytea[]`},
		"release": {sql.OwnershipRelease, id + "," + held + `, '{1,1,1}', null, null, 0`},
		"owned":   {sql.OwnershipOwned, id},
		"relist":  {sql.OwnershipFinderRelist, ""},
		"bury":    {sql.OwnershipBury, id + "," + id},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				plan := b.explain(c.statement, c.arguments, mode)
				for _, table := range []string{"runs", "run_log", "river_job"} {
					if strings.Contains(plan, "Seq Scan on "+table) {
						t.Errorf("sequential scan of %s:\n%s", table, plan)
					}
				}
			})
		}
	}
}

func (b *bundle) explain(statement, arguments, mode string) string {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.ctx, b.connConfig())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if arguments != "" {
		arguments = "(" + arguments + ")"
	}
	settings := []string{"set plan_cache_mode = " + mode, "prepare s as " + statement}
	if statement == sql.OwnershipClaim || statement == sql.OwnershipClaimLook {
		settings = append([]string{strings.ReplaceAll(sql.PlanIndexOnly, "true", "false")}, settings...)
	}
	for _, setting := range settings {
		if _, err := conn.Exec(b.ctx, setting, pgx.QueryExecModeSimpleProtocol); err != nil {
			b.t.Fatal(err)
		}
	}
	rows, err := conn.Query(b.ctx, "explain execute s"+arguments, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		b.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
