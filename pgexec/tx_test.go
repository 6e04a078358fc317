package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
)

// G6: effects made in the transaction of a node's record are there exactly
// once, without an idempotency key, however often the owner's session is killed
// in the middle of the node.
func TestTx_EffectsExactlyOnceThroughKills(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `create table effects (run_id uuid, node_id text)`); err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int64
	effect := func(ctx context.Context, n *pgexec.Node, left int, host string) (int, error) {
		tx, err := n.Tx(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, `insert into effects values ($1, $2)`, n.RunID(), string(n.ID())); err != nil {
			return 0, err
		}
		if n := attempts.Add(1); n%7 == 0 {
			if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, host); err != nil {
				t.Error(err)
			}
			if n%2 == 0 { // this attempt is cut off for certain; the others race the loss
				<-ctx.Done()
				return 0, ctx.Err()
			}
		}
		if left > 1 {
			n.Spawn("effect", left-1, nil)
		}
		return left, nil
	}
	many := func(c *pgexec.Config) { c.PoisonAfter = 1000 }
	for _, host := range []string{"a", "b"} {
		kinds := pgexec.NewKinds()
		pgexec.AddKind(kinds, "effect", func(ctx context.Context, n *pgexec.Node, left int) (int, error) {
			return effect(ctx, n, left, host)
		}, nil)
		b.replica(kinds, named(host), many)
	}
	var ids []pgexec.RunID
	for range 8 {
		ids = append(ids, b.start("effect", 15))
	}
	for _, id := range ids {
		b.succeed(id)
		b.checkLog(id)
	}
	if n := query[int](b, `select count(*) from effects`); n != 8*15 {
		t.Errorf("%d effects, want %d", n, 8*15)
	}
	if n := query[int](b, `select count(distinct (run_id, node_id)) from effects`); n != 8*15 {
		t.Errorf("%d different effects, want %d", n, 8*15)
	}
	t.Logf("%d attempts for %d nodes", attempts.Load(), 8*15)
	if attempts.Load() == 8*15 {
		t.Error("no attempt was cut off: the test shows nothing")
	}
}

// An attempt that fails, panics, cannot be recorded or cannot commit leaves no effect.
func TestTx_FailedAttemptLeavesNoEffect(t *testing.T) {
	b := setup(t)
	_, err := b.pool.Exec(b.ctx, `create table effects (n int unique deferrable initially deferred)`)
	if err != nil {
		t.Fatal(err)
	}
	kinds := pgexec.NewKinds()
	retry := &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 2, MinBackoff: 1}}
	pgexec.AddKind(kinds, "effect", func(ctx context.Context, n *pgexec.Node, how string) (string, error) {
		tx, err := n.Tx(ctx)
		if err != nil {
			return "", err
		}
		if _, err := tx.Exec(ctx, `insert into effects values (1)`); err != nil {
			return "", err
		}
		if err := tx.Commit(ctx); err == nil || tx.Rollback(ctx) == nil {
			return "", pgexec.Permanent(errors.New("the handler could end the transaction"))
		}
		if n.Attempt() == 2 && how != "spawn" {
			return "second", nil
		}
		switch how {
		case "fail":
			return "", errors.New("no")
		case "panic":
			panic("no")
		case "duplicate":
			_, err := tx.Exec(ctx, `insert into effects values (1)`)
			return "", err
		case "spawn":
			n.Spawn("effect", nil, &pgexec.SpawnOpts{ID: "root"})
		case "large":
			for i := range 8000 {
				n.Spawn("effect", nil, &pgexec.SpawnOpts{ID: pgexec.NodeID(fmt.Sprintf("%0200d", i))})
			}
		}
		return "first", nil
	}, retry)
	b.replica(kinds)
	for how, effects := range map[string]int{"fail": 1, "panic": 1, "duplicate": 0, "spawn": 0, "large": 0, "": 1} {
		run := b.wait(b.start("effect", how))
		if n := query[int](b, `with d as (delete from effects returning n) select count(*) from d`); n != effects {
			t.Errorf("%q: %d effects, want %d (run %s: %s)", how, n, effects, run.Status, run.Error)
		}
	}
	// No transaction is left open.
	b.eventually(`select count(*) = 0 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`)
}

// G6: of a handler that ends the transaction of its record itself, by SQL or on its connection, no record says that it
// succeeded, and it is not tried again: what it committed is there once.
func TestTx_HandlerThatEndsItIsNotRecorded_G6(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `create table effects (how text)`); err != nil {
		t.Fatal(err)
	}
	kinds := pgexec.NewKinds()
	retry := &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 3, MinBackoff: 1}}
	pgexec.AddKind(kinds, "effect", func(ctx context.Context, n *pgexec.Node, how []string) (string, error) {
		tx, err := n.Tx(ctx)
		if err != nil {
			return "", err
		}
		if _, err := tx.Exec(ctx, `insert into effects values ($1)`, how[0]); err != nil {
			return "", err
		}
		for _, statement := range how[1:] {
			switch statement {
			case "on the connection":
				err = pgx.BeginFunc(ctx, tx.Conn(), func(pgx.Tx) error { return nil })
			case "error":
				err = errors.New("no")
			default:
				_, err = tx.Exec(ctx, statement)
			}
			if err != nil {
				return "", err
			}
		}
		return "", nil
	}, retry)
	b.replica(kinds)
	effects := map[string]int{"a": 1, "b": 0, "c": 1, "d": 0, "e": 0, "f": 1, "g": 1}
	for _, how := range [][]string{
		{"a", "commit"},
		{"b", "rollback"},
		{"c", "commit", "begin"},
		{"d", "rollback", "begin"},
		{"e", "rollback and chain"},
		{"f", "on the connection"},
		{"g", "commit", "error"},
	} {
		run := b.wait(b.start("effect", how))
		if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "ended the transaction of the node's record") {
			t.Errorf("%q: the run is %s: %q", how, run.Status, run.Error)
		}
		if n := query[int](b, `select count(*) from effects where how = $1`, how[0]); n != effects[how[0]] {
			t.Errorf("%q: %d effects, want %d", how, n, effects[how[0]])
		}
	}
}

// A handler may use savepoints and choose the isolation level.
func TestTx_SavepointsAndIsolation(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `create table effects (n int unique)`); err != nil {
		t.Fatal(err)
	}
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "effect", func(ctx context.Context, n *pgexec.Node, _ any) (level string, err error) {
		tx, err := n.Tx(ctx)
		if err != nil {
			return "", err
		}
		if _, err := tx.Exec(ctx, `set transaction isolation level serializable`); err != nil {
			return "", err
		}
		for range 2 {
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // the second one is a duplicate
				_, err := tx.Exec(ctx, `insert into effects values (1)`)
				return err
			})
		}
		return level, tx.QueryRow(ctx, `select current_setting('transaction_isolation')`).Scan(&level)
	}, nil)
	b.replica(kinds)
	run := b.wait(b.start("effect", nil))
	if n := query[int](b, `select count(*) from effects`); n != 1 || string(run.Result) != `"serializable"` {
		t.Errorf("%d effects, want 1; the run is %s with %s: %s", n, run.Status, run.Result, run.Error)
	}
}

// G6: transactions that see nothing of what their siblings record meanwhile commit with their nodes' records all the same. No
// handler is called twice, and the run stays where it is.
func TestTx_SnapshotsOlderThanTheirSiblingsRecords_G6(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			b := setup(t)
			if _, err := b.pool.Exec(b.ctx, `create table effects (run_id uuid, node_id text)`); err != nil {
				t.Fatal(err)
			}
			const width, runs = 4, 2
			var calls atomic.Int64
			var began, recorded sync.WaitGroup
			began.Add(width * runs)
			recorded.Add(runs)
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				for range width {
					n.Spawn("effect", nil, nil)
				}
				n.Spawn("then", nil, &pgexec.SpawnOpts{After: []pgexec.NodeRef{n.Spawn("sibling", nil, nil)}})
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "effect", func(ctx context.Context, n *pgexec.Node, _ none) (int, error) {
				calls.Add(1)
				tx, err := n.Tx(ctx)
				if err != nil {
					return 0, err
				}
				for _, statement := range []string{`set transaction isolation level ` + level, `select 1`} {
					if _, err := tx.Exec(ctx, statement); err != nil {
						return 0, err
					}
				}
				began.Done()
				recorded.Wait()
				_, err = tx.Exec(ctx, `insert into effects values ($1, $2)`, n.RunID(), string(n.ID()))
				return 0, err
			}, nil)
			pgexec.AddKind(kinds, "sibling", func(context.Context, *pgexec.Node, none) (int, error) {
				began.Wait()
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "then", func(context.Context, *pgexec.Node, none) (int, error) {
				recorded.Done()
				return 0, nil
			}, nil)
			b.replica(kinds)
			var ids []pgexec.RunID
			for range runs {
				ids = append(ids, b.start("root", nil))
			}
			for _, id := range ids {
				b.succeed(id)
				b.checkLog(id)
			}
			if n := calls.Load(); n != width*runs {
				t.Errorf("%d calls of %d nodes", n, width*runs)
			}
			if n := query[int](b, `select count(distinct (run_id, node_id)) from effects`); n != width*runs {
				t.Errorf("%d effects, want %d", n, width*runs)
			}
			if n := query[int](b, `select max(epoch) from pgexec.runs`); n != 1 {
				t.Errorf("a run was claimed %d times", n)
			}
		})
	}
}
