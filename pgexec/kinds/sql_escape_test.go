package kinds

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Nothing a node that may not write does outlasts it, whether the server refuses it or takes it back.
func TestSQL_ReadOnlyCannotBeEscaped(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`create function sneak() returns int language sql as $$ insert into items values (2, 'two') returning id $$`)
	b.exec(`create function sneakier() returns int language plpgsql as $$
		begin
			perform set_config('transaction_read_only', 'off', true);
			insert into items values (3, 'three');
			return 3;
		end $$`)
	b.exec(`create function resetter() returns int language plpgsql set transaction_read_only = off as $$
		begin insert into items values (4, 'four'); return 4; end $$`)
	b.exec(`create procedure commits() language plpgsql as $$
		begin commit; set transaction read write; insert into items values (5, 'five'); commit; end $$`)
	b.exec(`create function prepares() returns text language plpgsql as $$
		declare known text;
		begin
			execute 'prepare left_behind as select 1';
			for known in select name from pg_prepared_statements where not from_sql loop
				execute format('deallocate %I', known);
				execute format('prepare %I as select 1', known);
			end loop;
			return known;
		end $$`)
	b.exec(`create sequence numbers`)
	refused := []string{
		`insert into items values (9, 'nine')`,
		`update items set name = 'x'`,
		`delete from items`,
		`truncate items`,
		`drop table items`,
		`create table more (id int)`,
		`create temp table more (id int)`,
		`with x as (insert into items values (9, 'nine') returning id) select * from x`,
		`explain analyze insert into items values (9, 'nine')`,
		`select * from items for update`,
		`select nextval('numbers')`,
		`select setval('numbers', 100)`,
		`select sneak()`,
		`select sneakier()`,
		`select resetter()`,
		`call commits()`,
		`do $$ begin insert into items values (9, 'nine'); end $$`,
		`do $$ begin commit; insert into items values (9, 'nine'); end $$`,
		`do $$ begin set transaction read write; insert into items values (9, 'nine'); end $$`,
		`do $$ begin begin set local transaction_read_only = off; exception when others then null; end; insert into items values (9, 'nine'); end $$`,
		`set transaction read write`,
		`set session characteristics as transaction read write`,
		`select set_config('transaction_read_only', 'off', true)`,
		`select set_config('transaction_read_only', 'off', false)`,
		`commit`,
		`;;/* /* */ */commit`,
		`rollback; begin; insert into items values (9, 'nine'); commit`,
		`select 1; insert into items values (9, 'nine')`,
		`commit; insert into items values (9, 'nine')`,
		`copy items to stdout`,
		`prepare transaction 'x'`,
	}
	for _, statement := range refused {
		if out, err := b.node(`{"sql":%s}`, statement); err == nil || !failure(t, err).Permanent {
			t.Errorf("%s: got %s, %v", statement, out, err)
		}
	}
	// What the server lets pass in a read-only transaction is taken back with it.
	for _, statement := range []string{
		`select set_config('search_path', 'nowhere', false)`,
		`select set_config('app.tenant', 'other', false)`,
		`select set_config('default_transaction_read_only', 'on', false)`,
		`select pg_advisory_lock(42)`,
		`select pg_try_advisory_lock(43)`,
		`select pg_notify('pgexec_log', 'x')`,
		`select lo_create(424242)`,
		`select prepares()`,
	} {
		_, err := b.node(`{"sql":%s}`, statement)
		if err != nil && !failure(t, err).Permanent {
			t.Errorf("%s: %v", statement, err)
		}
	}
	b.checkUntouched()
}

// checkUntouched looks at the data and, on every idle connection, at the session.
func (b *sqlBundle) checkUntouched() {
	b.t.Helper()
	const query = `select (select string_agg(id || name, ',') from public.items), current_setting('search_path'),
		coalesce(current_setting('app.tenant', true), ''), current_setting('default_transaction_read_only'),
		(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
		(select count(*) from pg_largeobject_metadata), (select last_value from public.numbers),
		current_setting('lock_timeout'), (select count(*) from pg_class where relname = 'left_behind'),
		(select count(*) from pg_listening_channels()), (select count(*) from pg_cursors where is_holdable),
		(select count(*) from pg_prepared_statements where from_sql)`
	for _, conn := range b.pool.AcquireAllIdle(b.t.Context()) {
		var items, path, tenant, readOnly string
		var locks, objects, number, tables, channels, cursors, prepared int
		var lockTimeout string
		err := conn.QueryRow(b.t.Context(), query).Scan(&items, &path, &tenant, &readOnly, &locks, &objects, &number, &lockTimeout, &tables, &channels, &cursors, &prepared)
		if err != nil {
			b.t.Error(err)
		}
		if items != "1one" || strings.Contains(path, "nowhere") || tenant != "" || readOnly != "off" || locks != 0 || objects != 0 || number != 1 {
			b.t.Errorf("items %q, search_path %q, tenant %q, default_transaction_read_only %s, %d advisory locks, %d large objects, sequence at %d",
				items, path, tenant, readOnly, locks, objects, number)
		}
		if lockTimeout != "0" || tables+channels+cursors+prepared > 0 {
			b.t.Errorf("lock_timeout %s, %d temporary tables, %d channels, %d cursors, %d prepared statements", lockTimeout, tables, channels, cursors, prepared)
		}
		conn.Release()
	}
}

func TestSQL_WriteLeavesNothingOnTheSession(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	b.exec(`create sequence numbers`)
	b.exec(`create function leaves() returns boolean language plpgsql as $$
		begin
			create temp table left_behind (id int);
			execute 'listen left_behind';
			execute 'declare left_behind cursor with hold for select 1';
			execute 'deallocate all';
			perform set_config('lock_timeout', '7s', false);
			return false;
		end $$`)
	for _, statement := range []string{
		`select set_config('app.tenant', 'other', false), pg_advisory_lock(42)`,
		`do $$ begin perform set_config('search_path', 'nowhere', false); set session characteristics as transaction read only; end $$`,
		`update public.items set name = name where pg_try_advisory_lock(43)`,
		`update public.items set name = name where set_config('app.tenant', 'other', false) is not null`,
		`with x as (select set_config('app.tenant', 'other', false) as t) select t from x`,
		`insert into public.items select 1, 'one' where set_config('search_path', 'nowhere', false) is not null on conflict do nothing`,
		`delete from public.items where public.leaves()`,
	} {
		b.must(`{"sql":%s,"write":true}`, statement)
		b.checkUntouched()
	}
}

// setupOneConn is a database with a pool of one connection.
func setupOneConn(t *testing.T) *sqlBundle {
	t.Helper()
	b := setupSQL(t)
	cfg := b.pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &sqlBundle{&sqlKind{pool: pool}, t}
}

// A block of code may deallocate what the pool has prepared, in a read-only transaction too, and no rollback brings it back.
func TestSQL_PreparedStatementsOutlastABlock(t *testing.T) {
	t.Parallel()
	b := setupOneConn(t)
	b.exec(`create procedure deallocates() language plpgsql as $$ begin deallocate all; end $$`)
	for _, block := range []string{
		`{"sql":"do $$ begin deallocate all; end $$"}`,
		`{"sql":"call deallocates()"}`,
		`{"sql":"do $$ begin deallocate all; end $$","write":true}`,
		`{"sql":"explain (analyze, costs off, timing off, summary off) update items set name = name","write":true}`,
	} {
		b.must(`{"sql":"select 1 as one"}`)
		b.must("%s", json.RawMessage(block))
		b.must(`{"sql":"select 1 as one"}`)
	}
}

// A statement that ends its transaction would have run outside of it.
func TestSQL_TransactionCannotBeEnded(t *testing.T) {
	t.Parallel()
	b := setupSQL(t)
	for _, statement := range refusedWords {
		_, err := b.node(`{"sql":%s,"write":true}`, statement)
		wantFailure(t, err, "bad_input", true, "sql: "+strings.ToUpper(statement)+" cannot run in a node")
	}
	// Unknown to the list, the end of the transaction is still seen.
	in := &sqlInput{statement: "commit", timeout: defaultSQLTimeout, maxRows: 1}
	tx, err := b.begin(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.transact(t.Context(), tx, in, testKey)
	tx.end()
	wantFailure(t, err, "bad_input", true, "the statement ended its transaction")
}

func FuzzFirstWord(f *testing.F) {
	for _, s := range []string{"select 1", "/* /* */ */ commit", "--x\n;((select", "/*", "--", "é", "a/**/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		word := firstWord(s)
		if word != strings.ToLower(word) || strings.ContainsAny(word, " \n/;(") {
			t.Fatalf("first word of %q is %q", s, word)
		}
	})
}

func FuzzParseArray(f *testing.F) {
	for _, s := range []string{`{}`, `{1,NULL}`, `{{a,"b\"c"},{d,e}}`, `[0:1]={1,2}`, `{"`, `{,}`, `{a`, `[`, `{"\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r sqlResult
		types := typeTable{1: {base: 1, elem: 25, delim: ','}}
		if err := types.appendValue(&r.rows, 1, text); err == nil && !json.Valid(r.rows.Bytes()) {
			t.Fatalf("%q becomes %q", text, r.rows.String())
		}
	})
}
