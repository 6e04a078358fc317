package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/ownership"
	"github.com/pgexec/runtime/pgexec/wake"
)

// fetched is what a fetcher says when it has fetched the wake job that follows.
const fetched = "fetched "

// fetcherProcess is a replica that never claims what it was woken for.
func fetcherProcess() {
	if err := fetch(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fetcher:", err)
		os.Exit(1)
	}
}

func fetch(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv(replicaURL))
	if err != nil {
		return err
	}
	session, err := ownership.Open(ctx, ownership.SessionConfig{
		ConnConfig: pool.Config().ConnConfig,
		Info:       ownership.ReplicaInfo{Host: "fetcher", PID: os.Getpid(), Kinds: []string{"link"}, Queues: []string{"default"}},
	})
	if err != nil {
		return err
	}
	waker, err := wake.New(wake.Config{
		Pool: pool, ReplicaID: session.ID(), Kinds: []string{"link"},
		WakeFunc: func(ctx context.Context, w wake.Wake) wake.Outcome {
			fmt.Printf("%s%d\n", fetched, w.JobID)
			<-ctx.Done()
			return wake.Again
		},
	})
	if err != nil {
		return err
	}
	if err := waker.Start(ctx); err != nil {
		return err
	}
	<-session.Lost()
	return session.Err()
}

// C14: a replica process is killed between the fetch of a wake job and the claim. Whoever finds it dead makes
// the job available again, as if it had not been fetched, and the next replica runs the run.
func TestFinder_PutsBackTheJobOfAProcessKilledBetweenFetchAndClaim(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	client := newClient(t, pool)
	id := start(ctx, t, client, "link", 1)
	job := query[int64](ctx, t, pool, `select wake_job from pgexec.runs where run_id = $1`, id)
	child := pgtest.StartChild(t, "fetcher", replicaURL+"="+pgtest.URL(t))
	if line, want := child.Line(fetched, patience), fmt.Sprint(fetched, job); line != want {
		t.Fatalf("the child says %q, want %q", line, want)
	}
	const jobNow = `select state::text || ' ' || attempt from pgexec.river_job where id = $1`
	if got := query[string](ctx, t, pool, jobNow, job); got != "running 1" {
		t.Fatalf("the job that was fetched is %s", got)
	}
	child.Kill()

	finder := ownership.NewFinder(ownership.FinderConfig{Pool: pool, Logger: testLogger(t)})
	var buried []ownership.Buried
	for ; len(buried) == 0; pause(ctx, t) {
		var err error
		if buried, err = finder.Pass(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if b := buried[0]; len(buried) != 1 || b.Jobs != 1 || !b.Gone || len(b.Runs) != 0 {
		t.Errorf("buried %+v, want one replica with one job and no run", buried)
	}
	if got := query[string](ctx, t, pool, jobNow, job); got != "available 0" {
		t.Errorf("the job is %s, want it as it was before", got)
	}
	serve(t, pool, pgexec.Config{Kinds: links()})
	if run := succeed(ctx, t, client, id); run.Epoch != 1 {
		t.Errorf("the run was claimed %d times", run.Epoch)
	}
}
