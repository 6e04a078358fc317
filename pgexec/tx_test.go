package pgexec_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

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
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "effect", func(ctx context.Context, n *pgexec.Node, left int) (int, error) {
		tx, err := n.Tx(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, `insert into effects values ($1, $2)`, n.RunID(), string(n.ID())); err != nil {
			return 0, err
		}
		if attempts.Add(1)%7 == 0 {
			victim := "a"
			if attempts.Load()%2 == 0 {
				victim = "b"
			}
			if _, err := b.pool.Exec(context.WithoutCancel(ctx), killSessions, victim); err != nil {
				t.Error(err)
			}
		}
		if left > 1 {
			n.Spawn("effect", left-1, nil)
		}
		return left, nil
	}, nil)
	many := func(c *pgexec.Config) { c.PoisonAfter = 1000 }
	b.replica(kinds, named("a"), many)
	b.replica(kinds, named("b"), many)
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
