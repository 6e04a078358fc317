package kinds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
)

// sqlBundle is a database with a table of one row and the kind on it.
type sqlBundle struct {
	*sqlKind
	t *testing.T
}

func setupSQL(t *testing.T) *sqlBundle {
	t.Helper()
	b := &sqlBundle{&sqlKind{pool: pgtest.DB(t)}, t}
	b.exec(`create table items (id int primary key, name text not null)`)
	b.exec(`insert into items values (1, 'one')`)
	return b
}

func (b *sqlBundle) exec(statement string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), statement); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
}

// node runs a node with that input; args fill its verbs as JSON.
func (b *sqlBundle) node(input string, args ...any) (json.RawMessage, error) {
	for i, a := range args {
		raw, err := json.Marshal(a)
		if err != nil {
			b.t.Fatal(err)
		}
		args[i] = string(raw)
	}
	return b.run(b.t.Context(), json.RawMessage(fmt.Sprintf(input, args...)), testKey, b.begin)
}

func (b *sqlBundle) must(input string, args ...any) json.RawMessage {
	b.t.Helper()
	out, err := b.node(input, args...)
	if err != nil {
		b.t.Fatalf("%s: %v", input, err)
	}
	return out
}

func (b *sqlBundle) count() int {
	b.t.Helper()
	var n int
	if err := b.pool.QueryRow(b.t.Context(), `select count(*) from items`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestSQL_OutputOfStatements(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	for _, tc := range []struct{ input, want string }{
		{`{"sql":"select id, name from items"}`, `{"command":"SELECT","row_count":1,"columns":["id","name"],"rows":[{"id":1,"name":"one"}]}`},
		{`{"sql":"select id from items where false"}`, `{"command":"SELECT","row_count":0,"columns":["id"],"rows":[]}`},
		{`{"sql":"select"}`, `{"command":"SELECT","row_count":1,"columns":[],"rows":[{}]}`},
		{`{"sql":"values (1,'a'),(2,null)"}`, `{"command":"SELECT","row_count":2,"columns":["column1","column2"],"rows":[{"column1":1,"column2":"a"},{"column1":2,"column2":null}]}`},
		{`{"sql":" -- why\n/* a /* b */ c */ (table items);"}`, `{"command":"SELECT","row_count":1,"columns":["id","name"],"rows":[{"id":1,"name":"one"}]}`},
		{`{"sql":"with x as (select 7 as n) select n as \"a\"\"b\" from x"}`, `{"command":"SELECT","row_count":1,"columns":["a\"b"],"rows":[{"a\"b":7}]}`},
		{`{"sql":"show server_encoding"}`, `{"command":"SHOW","row_count":1,"columns":["server_encoding"],"rows":[{"server_encoding":"UTF8"}]}`},
		{`{"sql":"explain (costs off) select 1"}`, `{"command":"EXPLAIN","row_count":1,"columns":["QUERY PLAN"],"rows":[{"QUERY PLAN":"Result"}]}`},
		{`{"sql":"insert into items values ($1,$2),($3,$4)","params":[2,"two",3,"three"],"write":true}`, `{"command":"INSERT","row_count":2,"columns":[],"rows":[]}`},
		{`{"sql":"update items set name = upper(name) where id > $1 returning id, name","params":[2],"write":true}`, `{"command":"UPDATE","row_count":1,"columns":["id","name"],"rows":[{"id":3,"name":"THREE"}]}`},
		{`{"sql":"with gone as (delete from items where id > 1 returning id) select count(*) from gone","write":true}`, `{"command":"SELECT","row_count":1,"columns":["count"],"rows":[{"count":2}]}`},
		{`{"sql":"create table made (id int)","write":true}`, `{"command":"CREATE TABLE","row_count":0,"columns":[],"rows":[]}`},
		{`{"sql":"do $$ begin perform 1; end $$","write":true}`, `{"command":"DO","row_count":0,"columns":[],"rows":[]}`},
		{`{"sql":"select current_setting('pgexec.idempotency_key') as key"}`, `{"command":"SELECT","row_count":1,"columns":["key"],"rows":[{"key":"` + testKey + `"}]}`},
	} {
		if out := b.must("%s", json.RawMessage(tc.input)); string(out) != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", tc.input, out, tc.want)
		}
	}
	if n := b.count(); n != 1 {
		t.Errorf("%d items are left, want 1", n)
	}
}

// Every value is what to_jsonb makes of it, but that json keeps its bytes. C32:
// the session's zone is not UTC.
func TestSQL_ValuesAreWhatToJSONBMakesOfThem(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`create type mood as enum ('sad', 'so "so", ok')`)
	b.exec(`create domain cents as numeric check (value >= 0)`)
	b.exec(`create domain ids as int[]`)
	b.exec(`create domain more_ids as ids`)
	for _, expr := range []string{
		`true`, `false`, `null::int`, `1::int2`, `(-2147483648)::int4`, `9223372036854775807`, `1.50`, `-0.000000000000000000001`,
		`123456789012345678901234567890.123456789`, `1e300::numeric`, `'NaN'::numeric`, `'Infinity'::numeric`, `0.1::float8`, `1e20::float8`, `1e-7::float4`, `'-0'::float8`,
		`'NaN'::float8`, `'-Infinity'::float4`, `'a"b\c' || chr(10) || '<ü>' || chr(8232)`, `'x'::char(5)`, `'n'::name`, `'c'::"char"`,
		`'{"a": [1, null]}'::jsonb`, `'"x"'::jsonb`, `'\xdeadBEEF'::bytea`, `'00000000-0000-0000-0000-000000000001'::uuid`, `12345::oid`,
		`date '2026-02-03'`, `'infinity'::date`, `date '0044-03-15 BC'`, `time '04:05:06.789'`, `timetz '04:05:06+05:45'`, `interval '1 day 2 hours'`,
		`timestamp '2026-02-03 04:05:06'`, `timestamp '2026-02-03 04:05:06.123456'`, `'infinity'::timestamp`, `timestamp '0044-03-15 01:02:03 BC'`,
		`timestamptz '2026-02-03 04:05:06.7+00'`, `'-infinity'::timestamptz`, `timestamptz '1800-01-01 00:00:00+00'`, `timestamptz '0044-03-15 01:02:03+00 BC'`,
		`'so "so", ok'::mood`, `12.50::cents`, `inet '10.0.0.1/8'`, `point '(1,2)'`, `b'101'`, `1.5::money`, `int4range(1,5)`, `xml '<a/>'`, `'1 2 3'::int2vector::text`,
		`array[1,2,null]`, `'{}'::int[]`, `array[[1,2],[3,4]]`, `'[0:1]={5,6}'::int[]`, `array['a,b','c"d\e','null',null,'','{}']`, `array[true,false]`,
		`array[1.10,'NaN']::numeric[]`, `array[0.5]::float8[]`, `array['{"a":1}','[1]','"x"']::jsonb[]`, `array['sad','so "so", ok']::mood[]`,
		`array[1.5]::cents[]`, `array[timestamptz '2026-02-03 04:05:06+00']`, `array[date '2026-01-01']`, `array['\x00ff'::bytea]`, `array[array[array['x']]]`,
		`'{1,2}'::ids`, `'{1,2}'::more_ids`, `array[point '(1,2)']`, `array[box '((1,2),(3,4))', box '((1,2),(3,4))']`, `array['a b'::name]`,
	} {
		for _, zone := range []string{"", "UTC", "America/St_Johns", "Asia/Tokyo"} {
			if zone != "" && !strings.Contains(expr, "timestamptz") {
				continue
			}
			b.checkLikeToJSONB(expr, zone)
		}
	}
}

func (b *sqlBundle) checkLikeToJSONB(expr, zone string) {
	b.t.Helper()
	statement := "select " + expr + " as got, to_jsonb(" + expr + ") as want"
	if zone != "" {
		// A setting made in the same statement comes too early for constants and in time for the output.
		statement += fmt.Sprintf(" from set_config('timezone', '%s', true)", zone)
	}
	var out struct {
		Rows []struct{ Got, Want json.RawMessage }
	}
	if err := json.Unmarshal(b.must(`{"sql":%s}`, statement), &out); err != nil {
		b.t.Fatal(err)
	}
	if !sameJSON(out.Rows[0].Got, out.Rows[0].Want) {
		b.t.Errorf("%s (%s): got %s, to_jsonb makes %s", expr, zone, out.Rows[0].Got, out.Rows[0].Want)
	}
}

// sameJSON compares numbers by value: to_jsonb writes 1e20 in full.
func sameJSON(a, b json.RawMessage) bool {
	number := regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?`)
	exact := func(raw json.RawMessage) any {
		var v any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return err
		}
		text, _ := json.Marshal(v)
		if _, isText := v.(string); isText {
			return string(text)
		}
		return number.ReplaceAllStringFunc(string(text), func(n string) string {
			r, _ := new(big.Rat).SetString(n)
			return r.RatString()
		})
	}
	return exact(a) == exact(b)
}

// C29: what json holds passes through unharmed.
func TestSQL_JSONKeepsItsBytes(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	out := b.must(`{"sql":"select '{\"b\": 1e400, \"b\":\"\\u0000\\ud800\"}'::json as j"}`)
	if want := `"rows":[{"j":{"b": 1e400, "b":"\u0000\ud800"}}]`; !strings.Contains(string(out), want) {
		t.Errorf("got %s", out)
	}
}

func TestSQL_ParamsBecomeTheTypesOfTheStatement(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`create domain ids as int[]`)
	b.exec(`create type mood as enum ('sad', 'ok')`)
	for _, tc := range []struct{ expr, param, want string }{
		{`$1::int`, `42`, `42`},
		{`$1::int`, `"42"`, `42`},
		{`$1::int`, `null`, `null`},
		{`$1::bigint`, `9007199254740993`, `9007199254740993`},
		{`$1::numeric`, `1.10000000000000000000000000001`, `1.10000000000000000000000000001`},
		{`$1::float8`, `1e-7`, `1e-07`},
		{`$1::bool`, `true`, `true`},
		{`$1::bool`, `"off"`, `false`},
		{`$1::text`, `"a\"b'; drop table items; --"`, `"a\"b'; drop table items; --"`},
		{`$1::text`, `7`, `"7"`},
		{`$1::text`, `true`, `"true"`},
		{`$1::text`, `{"a": 1}`, `"{\"a\": 1}"`},
		{`$1::text`, `[1]`, `"[1]"`},
		{`$1::json`, `{"b": 1e400, "a":[]}`, `{"b": 1e400, "a":[]}`},
		{`$1::jsonb`, `"x"`, `"x"`},
		{`$1::jsonb`, `[1,"a"]`, `[1, "a"]`},
		{`$1::jsonb`, `null`, `null`},
		{`$1::int[]`, `[1,null,3]`, `[1,null,3]`},
		{`$1::int[]`, `[]`, `[]`},
		{`$1::int[]`, `[[1,2],[3,4]]`, `[[1,2],[3,4]]`},
		{`$1::int[]`, `"{5,6}"`, `[5,6]`},
		{`$1::text[]`, `["a,b","c\"d\\e","null",null,"","{}"]`, `["a,b","c\"d\\e","null",null,"","{}"]`},
		{`$1::jsonb[]`, `[{"a":1},[1,2],"x",null]`, `[{"a": 1},[1, 2],"x",null]`},
		{`$1::mood[]`, `["sad","ok"]`, `["sad","ok"]`},
		{`$1::ids`, `[1,2]`, `[1,2]`},
		{`$1::mood`, `"ok"`, `"ok"`},
		{`$1::bytea`, `"\\xdead"`, `"\\xdead"`},
		{`$1::uuid`, `"00000000-0000-0000-0000-000000000001"`, `"00000000-0000-0000-0000-000000000001"`},
		{`$1::timestamptz at time zone 'UTC'`, `"2026-02-03T04:05:06Z"`, `"2026-02-03T04:05:06"`},
		{`$1::interval`, `"90 minutes"`, `"01:30:00"`},
		{`$1::box[]`, `["(3,4),(1,2)","(3,4),(1,2)"]`, `["(3,4),(1,2)","(3,4),(1,2)"]`},
		{`1 = any ($1::int[])`, `[1,2]`, `true`},
	} {
		out := b.must(`{"sql":%s,"params":[%s]}`, "select "+tc.expr+" as v", json.RawMessage(tc.param))
		// Through json.Marshal the raw parameter is compact; only spaces differ.
		if want := `"rows":[{"v":` + tc.want + `}]}`; !strings.HasSuffix(strings.ReplaceAll(string(out), " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%s with %s: got %s, want %s", tc.expr, tc.param, out, want)
		}
	}
}

func TestSQL_BadInputFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	for _, tc := range []struct{ input, words string }{
		{`"select 1"`, "input: want an object, got a string"},
		{`{}`, "sql is missing"},
		{`{"sql":"select 1","write":"yes"}`, "write: want true or false, got a string"},
		{`{"sql":"select 1","params":{"a":1}}`, "params: want a list, got an object"},
		{`{"sql":"select 1","max_rows":0}`, "max_rows: 0 is not between 1 and 100000"},
		{`{"sql":"select 1","max_rows":1.5}`, "max_rows: want a whole number, got the number 1.5"},
		{`{"sql":"select 1","timeout":"1h"}`, "timeout: 1h0m0s is over the limit of 10m0s"},
		{`{"sql":"select 1","query":"x"}`, `unknown field "query"; the fields are sql, params, write, timeout, max_rows`},
		{`{"sql":" -- nothing\n ;"}`, "there is no statement in it"},
		{`{"sql":"/* open"}`, "there is no statement in it"},
		{`{"sql":"select '\u0000'"}`, "U+0000"},
		{`{"sql":"select $1::int"}`, "params: the statement takes 1, the input has 0"},
		{`{"sql":"select 1","params":[1]}`, "params: the statement takes 0, the input has 1"},
		{`{"sql":"select 1 as a, 2 as a"}`, `two columns of the result are named "a"; give each a name of its own with AS`},
		{`{"sql":"select $1::text","params":["a\u0000b"]}`, "params: $1: PostgreSQL knows no character U+0000"},
		{`{"sql":"select $1::text[]","params":[["a\u0000b"]]}`, "params: $1: PostgreSQL knows no character U+0000"},
		{`{"sql":"commit"}`, "sql: COMMIT cannot run in a node"},
		{`{"sql":"/* x */ ; set search_path = x"}`, "sql: SET cannot run in a node"},
		{`{"sql":"copy items from stdin"}`, "sql: COPY cannot run in a node"},
		{`{"sql":"listen x"}`, "sql: LISTEN cannot run in a node"},
	} {
		_, err := b.node("%s", json.RawMessage(tc.input))
		wantFailure(t, err, "bad_input", true, tc.words)
	}
}

func TestSQL_ErrorsOfTheServerDecideAboutRetry(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`create function raise(code text) returns int language plpgsql as $$ begin raise exception 'so it is' using errcode = code, detail = 'the detail', hint = 'the hint'; end $$`)
	for _, tc := range []struct {
		input, code string
		permanent   bool
		words       []string
	}{
		{`{"sql":"selec 1"}`, "42601", true, []string{`syntax error at or near "selec"`, "(SQLSTATE 42601)"}},
		{`{"sql":"select 1; select 2"}`, "42601", true, []string{"cannot insert multiple commands"}},
		{`{"sql":"select * from nowhere"}`, "42P01", true, []string{`relation "nowhere" does not exist`}},
		{`{"sql":"insert into items values (1, 'again')","write":true}`, "23505", true, []string{"duplicate key", "detail: Key (id)=(1) already exists."}},
		{`{"sql":"select $1::int","params":["x"]}`, "22P02", true, []string{"invalid input syntax", "parameter $1"}},
		{`{"sql":"insert into items values (2, 'two')"}`, "25006", true, []string{"read-only transaction", `needs "write": true`}},
		{`{"sql":"select raise('P0001')"}`, "P0001", true, []string{"so it is; detail: the detail; hint: the hint; context: "}},
		{`{"sql":"select raise('40001')"}`, "40001", false, nil},
		{`{"sql":"select raise('40P01')"}`, "40P01", false, nil},
		{`{"sql":"select raise('55P03')"}`, "55P03", false, nil},
		{`{"sql":"select raise('53200')"}`, "53200", false, nil},
		{`{"sql":"select raise('08006')"}`, "08006", false, nil},
		{`{"sql":"select raise('57P01')"}`, "57P01", false, nil},
		{`{"sql":"select raise('26000')"}`, "26000", false, nil},
		{`{"sql":"select raise('25006')","write":true}`, "25006", false, nil},
		{`{"sql":"select pg_sleep(60)","timeout":0.05}`, "57014", false, []string{"statement timeout"}},
		{`{"sql":"select pg_terminate_backend(pg_backend_pid())"}`, "57P01", false, nil},
	} {
		_, err := b.node("%s", json.RawMessage(tc.input))
		wantFailure(t, err, tc.code, tc.permanent, tc.words...)
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %v", err)
		}
	}
	if out := b.must(`{"sql":"select 1 as one"}`); !strings.Contains(string(out), `{"one":1}`) {
		t.Errorf("after all this: %s", out)
	}
}

// C25: also with the settings that a pooler in transaction mode needs.
func TestSQL_WorksInEveryModeOfAPool(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg := b.pool.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		other := &sqlBundle{&sqlKind{pool: pool}, t}
		for range 2 {
			out := other.must(`{"sql":"select id, array[name] as names from items where id = any ($1)","params":[[1,2]]}`)
			if want := `"rows":[{"id":1,"names":["one"]}]}`; !strings.HasSuffix(string(out), want) {
				t.Errorf("%v: got %s", mode, out)
			}
		}
		pool.Close()
	}
}

func TestSQL_FailureAtCommitIsTheNodes(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`create table parts (item int references items deferrable initially deferred)`)
	_, err := b.node(`{"sql":"insert into parts values (77)","write":true}`)
	wantFailure(t, err, "23503", true, "violates foreign key constraint")
}

// What the pool's connections are set to is not what a node's text is in.
func TestSQL_TextIsUTF8(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	cfg := b.pool.Config()
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	other := &sqlBundle{&sqlKind{pool: pool}, t}
	other.must(`{"sql":"insert into items values (2, $1), (3, 'Füße')","params":["Grüße, 你好"],"write":true}`)
	const query = `{"sql":"select name from items where id > 1 order by id"}`
	if here, there := other.must(query), b.must(query); !strings.Contains(string(there), `"rows":[{"name":"Grüße, 你好"},{"name":"Füße"}]`) || string(here) != string(there) {
		t.Errorf("there is %s, it reads %s", there, here)
	}
}

// The bounds of a statement are not those of its node's record, which is written in the same transaction, perhaps after
// a blob store has taken the output.
func TestSQL_BoundsAreTheStatements(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`do $$ begin execute format('alter database %I set statement_timeout = %L', current_database(), '77s'); end $$`)
	b.pool.Reset()
	var statement, idle string
	begin := func(ctx context.Context, in *sqlInput) (*sqlTx, error) {
		tx, err := b.begin(ctx, in)
		if err != nil {
			return nil, err
		}
		commit := tx.commit
		tx.commit = func(ctx context.Context) error {
			if err := tx.QueryRow(ctx, `select current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')`).Scan(&statement, &idle); err != nil {
				return err
			}
			return commit(ctx)
		}
		return tx, nil
	}
	out, err := b.run(t.Context(), json.RawMessage(`{"sql":"with x as (select current_setting('statement_timeout') as t) select t from x","write":true,"timeout":9}`), testKey, begin)
	if err != nil || !strings.Contains(string(out), `"9s"`) {
		t.Fatalf("the statement's own bound: %s, %v", out, err)
	}
	if statement != "77s" || idle != "2min" {
		t.Errorf("the record has %s a statement and %s between them, want 77s and 2min", statement, idle)
	}
}

func TestSQL_FullPoolIsNamed(t *testing.T) {
	t.Parallel()
	b := setupOneConn(t)
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	_, err = b.node(`{"sql":"select 1","timeout":0.01}`)
	wantFailure(t, err, "timeout", false, "no connection of the pool was free within 5.01s")
}

func TestSQL_ResultsAreBounded(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.must(`{"sql":"select * from generate_series(1,1000) n"}`)
	for _, tc := range []struct{ input, code, words string }{
		{`{"sql":"select * from generate_series(1,1001) n"}`, "too_many_rows", "more than 1000 rows; narrow the statement, end it with LIMIT, or raise max_rows (up to 100000)"},
		{`{"sql":"select * from generate_series(1,1000000) n","max_rows":10}`, "too_many_rows", "more than 10 rows"},
		{`{"sql":"insert into items select n, 'x' from generate_series(2,20) n returning id","max_rows":10,"write":true}`, "too_many_rows", "more than 10 rows"},
		{`{"sql":"select repeat('x', 1000000) as x"}`, "too_large", "the first 1 rows take"},
		{`{"sql":"select repeat('x', 100000) as x from generate_series(1,1000)"}`, "too_large", "the first 10 rows take"},
		{`{"sql":"select repeat('x', 50000000) as x"}`, "too_large", "a row of 50"},
		{`{"sql":"select repeat(chr(1), 500000) as x"}`, "too_large", "over the limit of 983040"},
	} {
		_, err := b.node("%s", json.RawMessage(tc.input))
		wantFailure(t, err, tc.code, true, tc.words)
	}
	if n := b.count(); n != 1 {
		t.Errorf("%d items; a write whose result is refused must leave nothing", n)
	}
	out := b.must(`{"sql":"select repeat('x', 982000) as x"}`)
	if len(out) > maxOutput {
		t.Errorf("output of %d bytes", len(out))
	}
}

// C26, G8: a node that was cut off leaves no connection, transaction or query behind.
func TestSQL_CutOffNodeLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	drain := errors.New("draining")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitForQuery(t, b.pool, "pg_sleep(61)", true)
		cancel(drain)
	}()
	_, err := b.run(ctx, json.RawMessage(`{"sql":"select pg_sleep(61)","timeout":120}`), testKey, b.begin)
	if !errors.Is(err, drain) || isFault(err) {
		t.Fatalf("got %v, want the cause", err)
	}
	waitForQuery(t, b.pool, "pg_sleep(61)", false)
	for deadline := time.Now().Add(time.Minute); b.pool.Stat().AcquiredConns() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the node's connection is still taken")
		}
		b.count() // the pool closes what was cut off in the background
	}
}

// waitForQuery returns when a query of that text runs, or no longer does.
func waitForQuery(t *testing.T, pool *pgxpool.Pool, text string, running bool) {
	const query = `select exists (select from pg_stat_activity where pid <> pg_backend_pid() and state = 'active' and query like '%' || $1 || '%')`
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		var found bool
		if err := pool.QueryRow(t.Context(), query, text).Scan(&found); err != nil {
			t.Error(err)
			return
		}
		if found == running {
			return
		}
	}
	t.Errorf("query %q: running is not %t after a minute", text, running)
}
