package schema_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/schema"
)

// steps is the number of migrations from an empty database.
func steps() int { return schema.Version() + schema.RiverVersion() }

func TestUp_ManyAtOnceApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	var (
		mu  sync.Mutex
		all []schema.Applied
		wg  sync.WaitGroup
	)
	for range 8 {
		p := open(t, pool, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
		wg.Go(func() {
			applied, err := schema.Up(t.Context(), p)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, applied...)
		})
	}
	wg.Wait()
	if len(all) != steps() {
		t.Errorf("%d migrations applied, there are %d: %v", len(all), steps(), all)
	}
	if err := schema.Check(t.Context(), pool); err != nil {
		t.Error(err)
	}
	if again, err := schema.Up(t.Context(), pool); err != nil || len(again) != 0 {
		t.Errorf("a further Up: %v, %v", again, err)
	}
}

func TestUp_TwoProcessesAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	var children []*pgtest.Child
	for range 2 {
		children = append(children, pgtest.StartChild(t, "migrate", "DATABASE="+pool.Config().ConnString()))
	}
	total := 0
	for _, c := range children {
		n, err := strconv.Atoi(strings.TrimPrefix(c.Line("applied ", time.Minute), "applied "))
		if err != nil {
			t.Fatal(err)
		}
		total += n
		if got := c.Line("error ", time.Minute); got != "error <nil>" {
			t.Error(got)
		}
	}
	if total != steps() {
		t.Errorf("%d migrations applied, there are %d", total, steps())
	}
	if err := schema.Check(t.Context(), pool); err != nil {
		t.Error(err)
	}
}

// lockMigrations holds the migration lock of the database until release is called.
func lockMigrations(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	if !one[bool](t, tx, "select pg_try_advisory_xact_lock(1885824376, -1)", pgx.QueryExecModeSimpleProtocol) {
		t.Fatal("the migration lock is taken")
	}
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// C34: an index can be built concurrently while a migrator waits for another one.
func TestUp_WaitsForAnotherMigratorWithoutASnapshot(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	exec(t, pool, "create table t (x integer)")
	release := lockMigrations(t, pool)
	waiter := open(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["application_name"] = "waiter" })
	done := make(chan error, 1)
	go func() {
		_, err := schema.Up(t.Context(), waiter)
		done <- err
	}()
	within(t, time.Minute, "Up has tried the lock", func() bool {
		return one[bool](t, pool, "select exists (select from pg_stat_activity where application_name = 'waiter' and datname = current_database() and query ilike '%rollback%')")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := pool.Exec(ctx, "create index concurrently i on t (x)"); err != nil {
		t.Errorf("create index while a migrator waits: %v", err)
	}
	select {
	case err := <-done:
		t.Fatalf("Up did not wait: %v", err)
	default:
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// C34: a migration never waits for something that waits for the migrator's own snapshot.
func TestUp_HoldsItsLockWithoutASnapshot(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	probe := schema.NewMigration(schema.Version()+1, "probe", `
		create table pgexec.holder as
		select a.backend_xmin from pg_locks l join pg_stat_activity a using (pid)
		where l.locktype = 'advisory' and l.classid = 1885824376 and l.objid::bigint = 4294967295 and l.granted
			and a.datname = current_database()`, "drop table pgexec.holder")
	if _, err := schema.UpWith(t.Context(), pool, append(schema.Migrations(), probe)); err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, pool, "select string_agg(coalesce(backend_xmin::text, 'none'), ' ') from pgexec.holder"); got != "none" {
		t.Errorf("snapshots of the lock's holders: %s", got)
	}
}

func TestUp_WaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	lockMigrations(t, pool)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := schema.Up(ctx, pool)
	if err == nil || !strings.Contains(err.Error(), "migration lock") {
		t.Errorf("Up ends with %v", err)
	}
}

func TestUp_AFailedMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	next := schema.Version() + 1
	broken := schema.NewMigration(next, "broken", "create table pgexec.left_over (x integer); select 1 / 0", "select 1")
	applied, err := schema.UpWith(t.Context(), pool, append(schema.Migrations(), broken))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%03d_broken", next)) {
		t.Errorf("error %v does not name the migration", err)
	}
	if len(applied) != steps() {
		t.Errorf("%d migrations before the broken one, want %d", len(applied), steps())
	}
	if one[bool](t, pool, "select to_regclass('pgexec.left_over') is not null") {
		t.Error("half of the migration is there")
	}
	if err := schema.Check(t.Context(), pool); err != nil {
		t.Error(err)
	}
	mended := schema.NewMigration(next, "broken", "create table pgexec.left_over (x integer)", "drop table pgexec.left_over")
	if applied, err = schema.UpWith(t.Context(), pool, append(schema.Migrations(), mended)); err != nil || len(applied) != 1 {
		t.Errorf("the next Up: %v, %v", applied, err)
	}
}

// Neither the name of the database nor what its sessions are set to matters.
func TestUp_DatabaseOfAnyName(t *testing.T) {
	t.Parallel()
	admin := pgtest.EmptyDB(t)
	name := `It's "odd"; DROP — ` + t.Name()
	quoted := pgx.Identifier{name}.Sanitize()
	exec(t, admin, "create database "+quoted+" template template0")
	t.Cleanup(func() {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), "drop database "+quoted+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	cfg, err := pgxpool.ParseConfig(databaseURL(t, admin, name))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = "nowhere"
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	err = schema.Check(t.Context(), pool)
	if got, want := errorText(err), fmt.Sprintf("database %q has no pgexec schema", name); !strings.Contains(got, want) {
		t.Errorf("Check says %q, want %q", got, want)
	}
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(t.Context(), pool); err != nil {
		t.Error(err)
	}
	one[string](t, pool, "insert into pgexec.runs (kind) values ('x') returning run_id::text")
	if _, err := schema.Down(t.Context(), pool, 0); err != nil {
		t.Error(err)
	}
}

// A database that cannot hold all text is refused in words, before anything is in it.
func TestUp_DatabaseOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ encoding, client, refused string }{
		{"LATIN1", "UTF8", "has the encoding LATIN1, and must have UTF8"},
		{"LATIN1", "LATIN1", "client_encoding is LATIN1, and must be UTF8"},
		{"SQL_ASCII", "UTF8", ""},
	} {
		t.Run(c.encoding+" "+c.client, func(t *testing.T) {
			t.Parallel()
			admin := pgtest.EmptyDB(t)
			name := one[string](t, admin, "select 'pgexec_test_encoding_' || right(current_database(), 12)")
			exec(t, admin, "create database "+name+" template template0 encoding "+c.encoding+" lc_collate 'C' lc_ctype 'C'")
			t.Cleanup(func() {
				if _, err := admin.Exec(context.WithoutCancel(t.Context()), "drop database "+name+" with (force)"); err != nil {
					t.Error(err)
				}
			})
			cfg, err := pgxpool.ParseConfig(databaseURL(t, admin, name))
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.RuntimeParams["client_encoding"] = c.client
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			_, err = schema.Up(t.Context(), pool)
			if (err == nil) != (c.refused == "") || !strings.Contains(errorText(err), c.refused) {
				t.Errorf("Up says %q, want %q", errorText(err), c.refused)
			}
			if one[bool](t, pool, "select to_regnamespace('pgexec') is not null") != (c.refused == "") {
				t.Error("there is a schema if it was refused, or none if not")
			}
		})
	}
}

// upDownUp migrates as a role that is no superuser, uses the schema and removes it.
func upDownUp(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range 2 {
		if _, err := schema.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if err := schema.Check(t.Context(), pool); err != nil {
			t.Error(err)
		}
		if job := one[int64](t, pool, "insert into pgexec.runs (kind) values ('x') returning wake_job"); job == 0 {
			t.Error("the run has no wake")
		}
		if _, err := schema.Down(t.Context(), pool, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUp_RoleWithCreateOnDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	role, as := newRole(t, pool)
	exec(t, pool, "grant create on database "+pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()+" to "+role)
	upDownUp(t, as)
	if one[bool](t, pool, "select to_regnamespace('pgexec') is not null") {
		t.Error("the schema is still there")
	}
}

func TestUp_RoleThatOwnsTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	role, as := newRole(t, pool)
	if _, err := schema.Up(t.Context(), as); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Up without any right: %v", err)
	}
	exec(t, pool, "create schema pgexec authorization "+role)
	upDownUp(t, as)
	if !one[bool](t, pool, "select to_regnamespace('pgexec') is not null") {
		t.Error("the schema, which the role could not make again, is gone")
	}
	if left := one[int](t, pool, "select count(*) from pg_depend where refobjid = to_regnamespace('pgexec')"); left != 0 {
		t.Errorf("%d objects are left in the schema", left)
	}
}

func TestDown_UpDownUpGivesTheSameSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	first := column[string](t, pool, dumpSQL)
	if len(first) < 200 {
		t.Fatalf("the dump has only %d lines", len(first))
	}
	undone, err := schema.Down(t.Context(), pool, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(undone) != steps() {
		t.Errorf("%d migrations undone, want %d", len(undone), steps())
	}
	if left := column[string](t, pool, dumpSQL); len(left) != 0 {
		t.Errorf("left after Down: %q", left)
	}
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	second := column[string](t, pool, dumpSQL)
	for _, line := range first {
		if !slices.Contains(second, line) {
			t.Errorf("missing after down and up: %s", line)
		}
	}
	if len(first) != len(second) {
		t.Errorf("%d objects, %d after down and up", len(first), len(second))
	}
}

func TestDown_ToAVersionKeepsTheRest(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	whole := column[string](t, pool, dumpSQL)
	exec(t, pool, "insert into pgexec.runs (kind) values ('x')")
	for to := schema.Version() - 1; to > 0; to-- {
		undone, err := schema.Down(t.Context(), pool, to)
		if err != nil || len(undone) != 1 || undone[0].Version != to+1 {
			t.Fatalf("down to %d: %v, %v", to, undone, err)
		}
	}
	if one[int](t, pool, "select count(*) from pgexec.runs") != 1 {
		t.Error("the run is gone")
	}
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if again := column[string](t, pool, dumpSQL); !slices.Equal(whole, again) {
		t.Error("down and up again gives another schema")
	}
	if _, err := schema.Down(t.Context(), pool, schema.Version()+1); err == nil {
		t.Error("down to a version that is not known passes")
	}
}

func TestDown_KeepsObjectsThatAreNotOurs(t *testing.T) {
	t.Parallel()
	pool := pgtest.EmptyDB(t)
	if _, err := schema.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "create table pgexec.mine (x integer)")
	if _, err := schema.Down(t.Context(), pool, 0); err == nil || !strings.Contains(err.Error(), "drop schema pgexec") {
		t.Errorf("error %v", err)
	}
	exec(t, pool, "drop table pgexec.mine")
	if _, err := schema.Down(t.Context(), pool, 0); err != nil {
		t.Errorf("down again: %v", err)
	}
	if undone, err := schema.Down(t.Context(), pool, 0); err != nil || len(undone) != 0 {
		t.Errorf("down of nothing: %v, %v", undone, err)
	}
}

// dumpSQL lists everything in schema pgexec with its definition, from the catalog.
const dumpSQL = `
with ours as (select oid as ns from pg_namespace where nspname = 'pgexec')
select 'relation ' || relname || ' ' || relkind::text || ' ' || relpersistence::text || ' ' || coalesce(relacl::text, '') || ' '
    || coalesce(reloptions::text, '') || ' ' || coalesce(pg_get_expr(relpartbound, oid), '') || ' ' || coalesce(pg_get_partkeydef(oid), '')
  from pg_class, ours where relnamespace = ns
union all
select 'column ' || c.relname || ' ' || row_number() over (partition by c.oid order by a.attnum) || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
    || ' ' || a.attstorage::text || ' ' || a.attidentity::text || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  from ours, pg_class c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where c.relnamespace = ns and a.attnum > 0 and not a.attisdropped
union all
select 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || convalidated || ' ' || pg_get_constraintdef(oid) from pg_constraint, ours where connamespace = ns
union all
select 'index ' || pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indrelid, ours where c.relnamespace = ns
union all
select 'trigger ' || pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid, ours where c.relnamespace = ns and not t.tgisinternal
union all
select 'function ' || pg_get_functiondef(oid) || ' ' || coalesce(proacl::text, '') from pg_proc, ours where pronamespace = ns
union all
select 'view ' || relname || ' ' || pg_get_viewdef(oid) from pg_class, ours where relnamespace = ns and relkind = 'v'
union all
select 'type ' || typname || ' ' || typtype::text || ' ' || coalesce((select string_agg(enumlabel, ',' order by enumsortorder) from pg_enum where enumtypid = t.oid), '')
  from pg_type t, ours where typnamespace = ns
union all
select 'schema ' || coalesce(nspacl::text, '') from pg_namespace where nspname = 'pgexec'
order by 1`
