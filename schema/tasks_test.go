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
		`select pgexec.lock_kind('t')`, `select pgexec.tasks_in_flight('t', now())`, `select pgexec.lock_allowed_tasks('t', 1)`, `select pgexec.end_lost_tasks('{}')`, `select pgexec.lock_task(1, 'w')`, `select pgexec.task_usage('{}')`,
	} {
		if _, err := worker.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: error %v", statement, err)
		}
	}
}

// What a worker says that it has used is refused in words where it cannot be, and the task stays as it was.
func TestTasks_UsageIsRefusedInWords(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `select pgexec.declare_kind('t')`)
	exec(t, pool, `with r as (insert into pgexec.runs (kind) values ('t') returning run_id)
		insert into pgexec.tasks (run_id, node_id, kind, attempt, input, priority, at_most_once) select run_id, 'root', 't', 1, '{}', 2, false from r`)
	id := one[int64](t, pool, `select task_id from pgexec.take('t', 'w')`)
	for usage, words := range map[string]string{
		`3`:                                 `usage is 3, must be an object`,
		`{"tokens": 3}`:                     `usage.tokens is not known; the fields are cache_write_tokens, cached_tokens, cost_usd, input_tokens, model, output_tokens, provider, reasoning_tokens`,
		`{"input_tokens": -1}`:              `usage.input_tokens is -1, must be at least 0`,
		`{"input_tokens": 1.5}`:             `usage.input_tokens is 1.5, must be a whole number`,
		`{"output_tokens": "many"}`:         `usage.output_tokens is a text, must be a whole number`,
		`{"output_tokens": 10000000000000}`: `usage.output_tokens is 10000000000000, must be at most 1000000000000`,
		`{"cost_usd": -0.1}`:                `usage.cost_usd is -0.1, must be at least 0`,
		`{"cost_usd": 1e300}`:               `must be at most 1000000`,
		`{"model": ""}`:                     `usage.model is "", must be a text of 1 to 256 characters`,
		`{"input_tokens": 5, "model": "m"}`: `usage.provider and usage.model go together`,
		`{"input_tokens": 5, "cached_tokens": 3, "cache_write_tokens":3}`: `usage.input_tokens is 5, must be at least cached_tokens and cache_write_tokens together: it includes them`,
		`{"reasoning_tokens": 3}`: `usage.output_tokens is not there, must be at least reasoning_tokens: it includes them`,
	} {
		for _, call := range []string{`pgexec.complete($1, 'w', usage => $2)`, `pgexec.fail($1, 'w', 'e', usage => $2)`} {
			if got := refused(t, pool, `select `+call, id, usage); !strings.Contains(got, words) {
				t.Errorf("%s: %s; want %s", usage, got, words)
			}
		}
	}
	if got := one[string](t, pool, `select state from pgexec.tasks`); got != "taken" {
		t.Errorf("the task is %s", got)
	}
	exec(t, pool, `insert into pgexec.model_prices (provider, model, input, cached, output) values ('openai', 'm*', 2, 1, 10)`)
	for usage, want := range map[string]string{
		`null`: ``, `{}`: ``, `{"cost_usd": null}`: ``,
		`{"cost_usd": 0.25}`:                 `{"cost_nano_usd": 250000000}`,
		`{"input_tokens": 9, "cost_usd": 0}`: `{"input_tokens": 9, "cost_nano_usd": 0}`,
		`{"input_tokens": 9, "model": null}`: `{"unpriced": 1, "input_tokens": 9, "cost_nano_usd": 0}`,
		`{"input_tokens": 1000, "cached_tokens": 400, "output_tokens": 100, "reasoning_tokens": 50, "provider": "openai", "model": "m-1"}`: `{"input_tokens": 1000, "cached_tokens": 400, "cost_nano_usd": 2600000, "output_tokens": 100, "reasoning_tokens": 50}`,
		`{"output_tokens": 7, "provider": "other", "model": "n"}`:                                                                          `{"unpriced": 1, "cost_nano_usd": 0, "output_tokens": 7}`,
	} {
		if got := one[string](t, pool, `select coalesce(pgexec.task_usage($1::jsonb)::text, '')`, usage); got != want {
			t.Errorf("%s is recorded as %s, want %s", usage, got, want)
		}
	}
}
