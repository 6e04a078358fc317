package tool_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"
)

// setupSQL has a table that the role of tools may use, and one that it may not.
func setupSQL(t *testing.T) *bundle {
	b := setup(t, http.NotFound)
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	b.env.SQLRole = "pgexec_test_" + hex.EncodeToString(random)
	b.exec(`create role ` + b.env.SQLRole)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, statement := range []string{"drop owned by " + b.env.SQLRole + " cascade", "drop role " + b.env.SQLRole} {
			if _, err := b.pool.Exec(ctx, statement); err != nil {
				t.Error(err)
			}
		}
	})
	b.exec(`create table public.orders (id int primary key, item text, made_by text default current_user)`)
	b.exec(`create table public.salaries (amount int)`)
	b.exec(`insert into public.orders (id, item) values (1, 'tea'), (2, null)`)
	b.exec(`grant select, insert, update on public.orders to ` + b.env.SQLRole)
	return b
}

func TestSQL_HasTheRightsOfItsRoleAlone(t *testing.T) {
	b := setupSQL(t)
	got := b.run(`"tools": [
		{"type": "sql", "name": "find", "statement": "select id, item from public.orders where item is not distinct from $1", "args": ["item"], "parameters": {"properties": {"item": {}}}},
		{"type": "sql", "name": "order", "statement": "insert into public.orders values ($1, $2)", "args": ["id", "item"], "write": true, "parameters": {"properties": {"id": {}, "item": {}}}},
		{"type": "sql", "name": "sly", "statement": "insert into public.orders values (99, 'x')"},
		{"type": "sql", "name": "pay", "statement": "select * from public.salaries"},
		{"type": "sql", "name": "runs", "statement": "select * from pgexec.runs"},
		{"type": "sql", "name": "escape", "statement": "select set_config('role', 'none', true)", "write": true}
	]`,
		call("find", `{"item": "tea"}`), call("find", `{"item": "x' or true --"}`), call("find", `{}`),
		call("order", `{"id": 3, "item": "milk"}`),
		call("sly", `{}`), call("pay", `{}`), call("runs", `{}`), call("escape", `{}`))
	want(t, got[0], `[{"id":1,"item":"tea"}]`, false)
	want(t, got[1], `[]`, false)
	want(t, got[2], `[{"id":2,"item":null}]`, false)
	want(t, got[3], `INSERT: 1 rows`, false)
	for i, words := range map[int]string{
		4: "read-only transaction", 5: "permission denied for table salaries", 6: "permission denied for schema pgexec", 7: "changed its role",
	} {
		if !got[i].IsError || !strings.Contains(got[i].Text, words) {
			t.Errorf("the model sees %+v, want an error with %q", got[i], words)
		}
	}
	if by := query[string](b, `select made_by from public.orders where id = 3`); by != b.env.SQLRole {
		t.Errorf("the order was made by %s", by)
	}
}

// What is put off to the commit runs with the rights of the role too, and the node's record is written in the same transaction.
func TestSQL_DeferredTriggersHaveTheRightsOfTheRole(t *testing.T) {
	b := setupSQL(t)
	b.exec(`create table public.seen (by text)`)
	b.exec(`grant insert on public.seen to ` + b.env.SQLRole)
	b.exec(`create function public.note() returns trigger language plpgsql as $$ begin insert into public.seen values (current_user); return null; end $$`)
	b.exec(`create constraint trigger note after insert on public.orders deferrable initially deferred for each row execute function public.note()`)
	got := b.run(`"tools": [{"type": "sql", "name": "order", "statement": "insert into public.orders (id) values (5)", "write": true}]`, call("order", `{}`))
	want(t, got[0], `INSERT: 1 rows`, false)
	if by := query[string](b, `select by from public.seen`); by != b.env.SQLRole {
		t.Errorf("the trigger ran as %s", by)
	}
}

func TestSQL_WithoutARoleIsRefused(t *testing.T) {
	b := setup(t, http.NotFound)
	run := b.wait(b.start(`"tools": [{"type": "sql", "name": "find", "statement": "select 1"}]`))
	if !strings.Contains(run.Error, "tool find: this replica runs no statements of agents: it has no role for them (pgexec serve --agent-sql-role)") {
		t.Errorf("the run is %s: %s", run.Status, run.Error)
	}
}
