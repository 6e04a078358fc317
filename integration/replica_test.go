package integration

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// What a replica process is told in its environment.
const (
	replicaURL  = "PGEXEC_REPLICA_URL"
	replicaHost = "PGEXEC_REPLICA_HOST"
	// replicaDir is where a replica notes what it executes, in a file named after its host.
	replicaDir = "PGEXEC_REPLICA_DIR"
)

// handlesSignals is what a replica process says first: SIGTERM drains it from then on.
const handlesSignals = "handles signals"

const (
	// longestStep bounds how long a node takes.
	longestStep = 300 * time.Millisecond
	// drainGrace is shorter than a chain of nodes and longer than any one of them.
	drainGrace = 5 * time.Second
)

// startReplica starts one more replica process, under a name that no other has.
func startReplica(t *testing.T, url, dir, host string) *pgtest.Child {
	t.Helper()
	return pgtest.StartChild(t, "replica", replicaURL+"="+url, replicaDir+"="+dir, replicaHost+"="+host)
}

// replicaProcess is the whole of a replica process: SIGTERM drains it.
func replicaProcess() {
	runReplica(func(executions *os.File) *pgexec.Config {
		return &pgexec.Config{
			Kinds: stepKinds(executions),
			Host:  os.Getenv(replicaHost),
			Grace: drainGrace,
			// Replicas die faster here than runs make progress; C18 has a test of its own.
			PoisonAfter: 1000,
			Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
	})
}

// runReplica runs a replica until SIGTERM, and ends the process if it cannot.
func runReplica(configFunc func(executions *os.File) *pgexec.Config) {
	if err := serveReplica(configFunc); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

func serveReplica(configFunc func(executions *os.File) *pgexec.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println(handlesSignals)
	executions, err := os.OpenFile(filepath.Join(os.Getenv(replicaDir), os.Getenv(replicaHost)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer executions.Close()
	cfg, err := pgxpool.ParseConfig(os.Getenv(replicaURL))
	if err != nil {
		return err
	}
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	rt, err := pgexec.New(pool, configFunc(executions))
	if err != nil {
		return err
	}
	return rt.Run(ctx)
}

// stepInput is the input of a node: its place in the plan of its run.
type stepInput struct {
	Shape string `json:"shape"`
	Seed  int64  `json:"seed"`
	Index int    `json:"index"`
}

// stepKinds runs plans. Every execution is noted before anything else happens:
// one write of one line, which is there also when the process is killed next.
func stepKinds(executions *os.File) *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "step", func(ctx context.Context, n *pgexec.Node, in stepInput) (uint32, error) {
		if _, err := fmt.Fprintf(executions, "%s %s\n", n.RunID(), n.ID()); err != nil {
			return 0, err
		}
		return runStep(ctx, n, in)
	}, nil)
	addMarked(kinds)
	return kinds
}

func runStep(ctx context.Context, n *pgexec.Node, in stepInput) (uint32, error) {
	var parents []uint32
	for _, parent := range n.Parents() {
		var v uint32
		if err := parent.Output(&v); err != nil {
			return 0, err
		}
		parents = append(parents, v)
	}
	select {
	case <-time.After(rand.N(longestStep)):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	p := shapes[in.Shape]
	for _, i := range p.spawnedBy(in.Index) {
		opts := &pgexec.SpawnOpts{ID: nodeID(i)}
		for _, parent := range p[i].parents {
			opts.After = append(opts.After, pgexec.Ref(nodeID(parent)))
		}
		if p[i].allDone {
			opts.Join = pgexec.AllDone
		}
		n.Spawn("step", stepInput{Shape: in.Shape, Seed: in.Seed, Index: i}, opts)
	}
	return output(in.Seed, in.Index, parents), nil
}
