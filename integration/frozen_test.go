package integration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// What the handler of a holder says: that it was called, and why its context ended.
const (
	holding = "holding"
	cause   = "cause: "
)

// holderProcess is a replica with the settings that it has when nothing is set, whose nodes
// wait until their context ends and then return as if nothing had been; those of "second" return at once.
func holderProcess() {
	host := os.Getenv(replicaHost)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "hold", func(ctx context.Context, _ *pgexec.Node, _ struct{}) (string, error) {
		if host == "second" {
			return host, nil
		}
		fmt.Println(holding)
		<-ctx.Done()
		fmt.Printf("%s%v\n", cause, context.Cause(ctx))
		return host, nil
	}, nil)
	runReplica(func(*os.File) *pgexec.Config {
		return &pgexec.Config{
			Kinds: kinds, Host: host,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
	})
}

// C06: the run of a replica that is frozen is claimed by another one within 15 s of its last heartbeat, by the database's
// clock, at the default settings. When it goes on, its handler learns that the run is lost, and nothing of it is recorded.
func TestReplicas_FrozenOneIsReplacedWithin15Seconds(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	client := newClient(t, pool)
	dir, url := t.TempDir(), pgtest.URL(t)
	hold := func(host string) *pgtest.Child {
		return pgtest.StartChild(t, "holder", replicaURL+"="+url, replicaDir+"="+dir, replicaHost+"="+host)
	}
	frozen := hold("first")
	id := start(ctx, t, client, "hold", struct{}{})
	frozen.Line(holding, patience)
	hold("second")
	eventually(ctx, t, pool, `select count(*) = 2 from pgexec.replicas`)
	frozen.Signal(syscall.SIGSTOP)
	last, stood := lastHeartbeat(ctx, t, pool, id)
	frozen.Signal(syscall.SIGCONT)
	if line := frozen.Line(cause, patience); !strings.Contains(line, pgexec.ErrOwnershipLost.Error()) {
		t.Errorf("the handler's context ended with %q", line)
	}
	if run := succeed(ctx, t, client, id); string(run.Result) != `"second"` || run.Epoch != 2 {
		t.Errorf("result %s after %d claims", run.Result, run.Epoch)
	}
	eventually(ctx, t, pool, `select count(*) = 2 from pgexec.replicas`) // it is back, and so past the end of its node
	const log = `select string_agg(key, ' ' order by seq) from pgexec.run_log, jsonb_object_keys(pgexec.decode(record)) key where run_id = $1`
	if got := query[string](ctx, t, pool, log, id); got != "claim claim node finished" {
		t.Errorf("the log has %s", got)
	}
	const claimedAt = `select (pgexec.decode(record) #>> '{claim,at}')::timestamptz from pgexec.run_log where run_id = $1 and seq = 2`
	took := query[time.Time](ctx, t, pool, claimedAt, id).Sub(last)
	t.Logf("claimed %v after the last heartbeat; the machine stood still for %v meanwhile", took, stood)
	if took > 15*time.Second+stood {
		t.Errorf("claimed %v after the last heartbeat, want at most 15 s", took)
	}
}

// lastHeartbeat waits until the run has a second owner and returns the last heartbeat of the first one, and for how long
// this process could do nothing meanwhile, nor could others then.
func lastHeartbeat(ctx context.Context, t *testing.T, pool *pgxpool.Pool, id pgexec.RunID) (last time.Time, stood time.Duration) {
	t.Helper()
	const look = `select r.epoch, coalesce((select heartbeat_at from pgexec.replicas where host = 'first'), to_timestamp(0)) from pgexec.runs r where run_id = $1`
	deadline := time.Now().Add(patience)
	for before := time.Now(); ; pause(ctx, t) {
		var epoch int
		var at time.Time
		if err := pool.QueryRow(ctx, look, id).Scan(&epoch, &at); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		stood += max(0, now.Sub(before)-100*time.Millisecond)
		before = now
		if epoch > 1 {
			return last, stood
		}
		if at.After(last) {
			last = at
		}
		if now.After(deadline) {
			t.Fatal("nobody takes the frozen replica's run")
		}
	}
}
