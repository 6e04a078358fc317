package integration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// poisonProcess is a replica with the settings that it has when nothing is set.
func poisonProcess() {
	runReplica(func(executions *os.File) *pgexec.Config {
		return &pgexec.Config{
			Kinds:  poisonKinds(executions),
			Host:   os.Getenv(replicaHost),
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
	})
}

// poisonKinds: "doomed" spawns a node that kills its process; other runs have "link".
func poisonKinds(executions *os.File) *pgexec.Kinds {
	kinds := links()
	pgexec.AddKind(kinds, "doomed", func(_ context.Context, n *pgexec.Node, _ struct{}) (int, error) {
		n.Spawn("killer", nil, &pgexec.SpawnOpts{ID: "culprit"})
		return 1, nil
	}, nil)
	pgexec.AddKind(kinds, "killer", func(_ context.Context, n *pgexec.Node, _ any) (int, error) {
		if _, err := fmt.Fprintf(executions, "%s %s\n", n.RunID(), n.ID()); err != nil {
			return 0, err
		}
		// The other runs of this replica get on meanwhile: they are not to be taken for the cause.
		time.Sleep(time.Second)
		return 0, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}, nil)
	return kinds
}

// C18: a run that kills its process is paused when three have died of it, and says which node it
// was; each process is started again at once, and all other runs end meanwhile.
func TestReplicas_RunThatKillsThemIsPaused(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	client := newClient(t, pool)
	dir, url := t.TempDir(), pgtest.URL(t)
	seats, starts := make(map[string]*pgtest.Child), 0
	seat := func() {
		starts++
		host := fmt.Sprintf("replica-%d", starts)
		seats[host] = pgtest.StartChild(t, "poison replica", replicaURL+"="+url, replicaDir+"="+dir, replicaHost+"="+host)
	}
	for range 4 {
		seat()
	}
	eventually(ctx, t, pool, `select count(*) = 4 from pgexec.replicas`)
	doomed := start(ctx, t, client, "doomed", struct{}{})
	others := []pgexec.RunID{start(ctx, t, client, "link", 2000)}
	const paused = `select status = 'paused' from pgexec.runs where run_id = $1`
	for deadline := time.Now().Add(patience); !query[bool](ctx, t, pool, paused, doomed); pause(ctx, t) {
		if time.Now().After(deadline) {
			t.Fatalf("the run is not paused after %d processes", starts)
		}
		for host := range readExecutions(t, dir)[doomed]["culprit"] {
			if child := seats[host]; child != nil {
				child.Wait(patience)
				delete(seats, host)
				seat()
				others = append(others, start(ctx, t, client, "link", 20))
			}
		}
	}
	if n := starts - 4; n != 3 {
		t.Errorf("%d processes died, want 3", n)
	}
	if hosts := readExecutions(t, dir)[doomed]["culprit"]; len(hosts) != 3 {
		t.Errorf("the node was executed by %v, want once by each of 3", hosts)
	}
	const want = "3 replicas died in a row while running this, suspected: culprit"
	if reason := query[string](ctx, t, pool, `select reason from pgexec.runs where run_id = $1`, doomed); reason != want {
		t.Errorf("paused because %q, want %q", reason, want)
	}
	for _, id := range others {
		succeed(ctx, t, client, id)
	}
}
