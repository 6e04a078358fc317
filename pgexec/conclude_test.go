package pgexec_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// C27: what the database refuses for good, the end of a run or a record of it, is tried again after longer and longer
// times, visibly, and not as fast as it can be. When it is taken, the run goes on by itself.
func TestRun_WhatTheDatabaseRefusesIsTriedMoreAndMoreSeldom_C27(t *testing.T) {
	for name, tc := range map[string]struct{ refuse, accept string }{
		"end": {
			`alter table pgexec.runs add constraint no_end check (status <> 'succeeded')`,
			`alter table pgexec.runs drop constraint no_end`,
		},
		"pause": {
			`alter table pgexec.runs add constraint no_end check (status <> 'paused')`,
			`alter table pgexec.runs drop constraint no_end`,
		},
		"record": {
			`create function no_leg() returns trigger language plpgsql as $$begin
				if position('leg'::bytea in new.record) > 0 then raise exception 'no leg here'; end if;
				return new;
			end$$;
			create trigger no_leg before insert on pgexec.run_log for each row execute function no_leg()`,
			`drop trigger no_leg on pgexec.run_log`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			if _, err := b.pool.Exec(b.ctx, tc.refuse); err != nil {
				t.Fatal(err)
			}
			var calls atomic.Int64
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "k", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				calls.Add(1)
				if name != "end" {
					n.Spawn("leg", nil, nil)
				}
				if name == "pause" {
					n.Pause("enough")
				}
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "leg", func(context.Context, *pgexec.Node, none) (int, error) { return 0, nil }, nil)
			b.replica(kinds)
			id := b.start("k", nil)
			b.eventually(`select status = 'queued' and epoch > 0 and run_at > now() and reason like 'tried again: %' from pgexec.runs where run_id = $1`, id)
			b.eventually(`select epoch >= 4 from pgexec.runs where run_id = $1`, id)
			var claims []time.Time
			rows, err := b.pool.Query(b.ctx, `select (pgexec.decode(record)->'claim'->>'at')::timestamptz from pgexec.run_log
				where run_id = $1 and pgexec.decode(record) ? 'claim' order by seq`, id)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var at time.Time
				if err := rows.Scan(&at); err != nil {
					t.Fatal(err)
				}
				claims = append(claims, at)
			}
			if len(claims) < 4 {
				t.Fatalf("%d claims", len(claims))
			}
			for i, least := range []time.Duration{450 * time.Millisecond, 450 * time.Millisecond, 950 * time.Millisecond} {
				if waited := claims[i+1].Sub(claims[i]); waited < least {
					t.Errorf("claim %d follows after %v, want at least %v", i+2, waited, least)
				}
			}
			if n := calls.Load(); name == "record" && n > int64(len(claims))+1 || name != "record" && n != 1 {
				t.Errorf("the handler was called %d times for %d claims", n, len(claims))
			}
			if _, err := b.pool.Exec(b.ctx, tc.accept); err != nil {
				t.Fatal(err)
			}
			if name == "pause" {
				b.eventually(`select status = 'paused' from pgexec.runs where run_id = $1`, id)
				return
			}
			b.succeed(id)
			b.checkLog(id)
		})
	}
}
