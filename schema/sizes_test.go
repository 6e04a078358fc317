package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/internal/pgtest"
)

// What reaches a run from outside and is longer than a replica could read is refused with its size and the limit; what is as
// long as it may be is taken (C22). A few bytes of jsonb may be very long text.
func TestSizes_WhatIsTooLongIsRefusedInWords_C22(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	// About n * 100 kB of text.
	const digits = `(select jsonb_agg('1e100000'::jsonb) from generate_series(1, $1::int))`
	exec(t, pool, `insert into pgexec.runs (run_id, kind) values ('00000000-0000-0000-0000-000000000001', 'x')`)
	exec(t, pool, `select pgexec.declare_kind('k')`)
	exec(t, pool, `insert into pgexec.tasks (run_id, node_id, kind, attempt, input, at_most_once, limit_key, priority, state)
		values ('00000000-0000-0000-0000-000000000001', 'n', 'k', 1, 'null', false, '', 2, 'waiting')`)
	one[int64](t, pool, `select task_id from pgexec.take('k', 'w')`)
	for what, statement := range map[string]string{
		"the input of run":        `insert into pgexec.runs (kind, input) values ('x', ` + digits + `)`,
		"the input of run 0000":   `update pgexec.runs set input = ` + digits + ` where run_id = '00000000-0000-0000-0000-000000000001'`,
		"the payload of signal":   `insert into pgexec.signals (run_id, name, payload) values ('00000000-0000-0000-0000-000000000001', 'x', ` + digits + `)`,
		"the payload of signal '": `select pgexec.signal('00000000-0000-0000-0000-000000000001', 'x', ` + digits + `)`,
		"the output of task":      `select pgexec.complete((select task_id from pgexec.tasks), 'w', ` + digits + `::text::json)`,
	} {
		_, err := pool.Exec(t.Context(), statement, 1400)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "54000" || !strings.HasPrefix(pg.Message, what) ||
			!strings.Contains(pg.Message, "has 1400") || !strings.Contains(pg.Message, "the limit is 134217728") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := pool.Exec(t.Context(), statement, 1000); err != nil {
			t.Errorf("%s: what is allowed: %v", what, err)
		}
	}
	// Of what has no text at all the size is not known, but that it is too large.
	_, err := pool.Exec(t.Context(), `insert into pgexec.runs (kind, input) values ('x', `+digits+`)`, 11000)
	if err == nil || !strings.Contains(err.Error(), "the input of run") {
		t.Errorf("more than 1 GiB: %v", err)
	}
}
