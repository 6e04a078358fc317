package runlog_test

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// outcomeRow is what the finish statement answers.
type outcomeRow struct {
	RunID   runlog.RunID
	Outcome string
	Queue   *string
}

// G4: what reaches the run, or its parent, between the statement's snapshot and its row locks. The statement sees the
// newest versions, ends the run and tells the parent; it does not fail on rows that have changed under it.
func TestFinish_RowsChangeUnderTheStatement_G4(t *testing.T) {
	const began = "select * from unnest("
	gated := strings.Replace(sql.RunlogFinish, began, "select e.* from pg_advisory_xact_lock(7), unnest(", 1)
	if gated == sql.RunlogFinish {
		t.Fatalf("the statement does not have %q any more: where is it to be held up?", began)
	}
	for name, change := range map[string]string{
		"of the run":    `insert into pgexec.signals (run_id, name) values ($1, 'hello')`,
		"of its parent": `insert into pgexec.signals (run_id, name) select parent_run_id, 'hello' from pgexec.runs where run_id = $1`,
		"of both":       `insert into pgexec.signals (run_id, name) select unnest(array[run_id, parent_run_id]), 'hello' from pgexec.runs where run_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			parent := b.newRun()
			b.claim(b.pool, parent, 2)
			id := value[runlog.RunID](b, `insert into pgexec.runs (kind, parent_run_id, parent_node_id) values ('k', $1, 'child') returning run_id`, parent)
			epoch, head := b.claim(b.pool, id, 1)
			gate := b.begin()
			if _, err := gate.Exec(b.ctx, `select pg_advisory_xact_lock(7)`); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				rows []outcomeRow
				err  error
			}
			done := make(chan answer, 1)
			go func() {
				rows, err := runlog.QueryPlanned[outcomeRow](b.ctx, b.pool, sql.PlanByKey, gated, []runlog.RunID{id}, []int64{int64(head)},
					[]int32{1}, []int64{int64(epoch)}, [][]byte{finishedRecord(t, 0)}, []string{"succeeded"}, [][]byte{nil}, []int64{0}, [][]byte{nil}, [][]byte{nil},
					[]*int64{nil}, []int64{0}, []int64{0}, []int64{0}, []int64{0}, []int64{0}, []bool{false})
				done <- answer{rows, err}
			}()
			b.blockedOn(gate, 1)
			b.exec(change, id)
			inbox := value[int64](b, `select inbox from pgexec.runs where run_id = $1`, parent)
			b.commit(gate)
			got := await(b, done, "finish")
			if got.err != nil || len(got.rows) == 0 || got.rows[0].Outcome != "ended" {
				t.Fatalf("got %+v, error %v", got.rows, got.err)
			}
			b.wantLog(id, claimRecord(t, 1, 1), finishedRecord(t, 0))
			if r := b.row(id); r.Status != "succeeded" || r.Owner != nil {
				t.Errorf("the run is %+v", r)
			}
			if told := value[int64](b, `select inbox from pgexec.runs where run_id = $1`, parent); told != inbox+1 {
				t.Errorf("the parent's inbox is at %d, want %d", told, inbox+1)
			}
		})
	}
}
