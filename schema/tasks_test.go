package schema_test

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

// A role that may use the schema, and nothing else, is a worker; to declare a kind takes more.
func TestTasks_WorkersNeedNoOtherRight(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	role, worker := newRole(t, pool)
	exec(t, pool, "grant usage on schema pgexec to "+role)
	exec(t, pool, `select pgexec.declare_kind('t')`)
	exec(t, pool, `with r as (insert into pgexec.runs (kind) values ('t') returning run_id)
		insert into pgexec.tasks (run_id, node_id, kind, attempt, input, priority, at_most_once)
		select run_id, n, 't', 1, '{}', 2, false from r, unnest(array['a', 'b', 'c']) n`)
	exec(t, worker, `select pgexec.complete(task_id, 'w', '1') from pgexec.take('t', 'w')`)
	exec(t, worker, `select pgexec.fail(task_id, 'w', 'e') from pgexec.take('t', 'w')`)
	exec(t, worker, `select pgexec.extend(task_id, 'w') from pgexec.take('t', 'w')`)
	if got := one[string](t, pool, `select string_agg(state, ' ' order by task_id) from pgexec.tasks`); got != "succeeded failed taken" {
		t.Errorf("tasks are %s", got)
	}
	for _, statement := range []string{
		`select pgexec.declare_kind('t')`, `table pgexec.tasks`, `select pgexec.tell_of_tasks('{}')`,
		`select pgexec.lock_due_tasks('t', 1)`, `select pgexec.lock_due_tasks_but('t', 1, '{}', '{}')`, `select pgexec.may_renew_lapsed(1)`,
		`select pgexec.lock_kind('t')`, `select pgexec.tasks_in_flight('t', now())`, `select pgexec.lock_allowed_tasks('t', 1)`, `select pgexec.end_lost_tasks('{}')`, `select pgexec.lock_task(1, 'w')`,
	} {
		if _, err := worker.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: error %v", statement, err)
		}
	}
}
