package integration

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// workshop is where random programs run: a directory that all replicas share.
// A replica notes in a file named after its host what it executes.
type workshop struct{ dir string }

// repaired is the file whose existence says that a program's faults are repaired.
func (w workshop) repaired(program int) string {
	return filepath.Join(w.dir, "repaired", strconv.Itoa(program))
}

// config is that of a replica of random programs. It parks runs at once.
func (w workshop) config(host string, rare bool, notes *os.File, log *slog.Logger) *pgexec.Config {
	return &pgexec.Config{
		Kinds:  w.kinds(rare, notes),
		Host:   host,
		Grace:  drainGrace,
		Linger: time.Millisecond,
		// Replicas die faster here than runs make progress; C18 has a test of its own.
		PoisonAfter: 1000,
		Logger:      log,
	}
}

// kinds interprets programs. Every execution is noted before anything else happens:
// one write of one line, which is there also when the process is killed next.
func (w workshop) kinds(rare bool, notes *os.File) *pgexec.Kinds {
	handler := func(ctx context.Context, n *pgexec.Node, in step) (uint32, error) {
		if _, err := fmt.Fprintf(notes, "%s %s %d\n", n.RunID(), n.ID(), time.Now().UnixMicro()); err != nil {
			return 0, err
		}
		return w.execute(ctx, n, in)
	}
	kinds := pgexec.NewKinds()
	opts := &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: kindAttempts, MinBackoff: time.Millisecond, MaxBackoff: 40 * time.Millisecond}}
	pgexec.AddKind(kinds, "step", handler, opts)
	if rare {
		pgexec.AddKind(kinds, "rare", handler, opts)
	}
	return kinds
}

func (w workshop) execute(ctx context.Context, n *pgexec.Node, in step) (uint32, error) {
	if in.TakesMs > 0 {
		select {
		case <-time.After(time.Duration(in.TakesMs) * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if err := w.fail(n, in); err != nil {
		return 0, err
	}
	n.AddUsage(pgexec.Usage{InputTokens: int64(in.Tokens), OutputTokens: 1, CostNanoUSD: int64(in.Tokens) * 1000})
	if in.Final {
		n.Final()
	}
	for i := range in.Spawns {
		sp := &in.Spawns[i]
		opts := &pgexec.SpawnOpts{
			ID: pgexec.NodeID(sp.ID), Retry: pgexec.RetryPolicy{MaxAttempts: sp.Attempts}, AtMostOnce: sp.Once,
		}
		for _, parent := range sp.After {
			opts.After = append(opts.After, pgexec.Ref(pgexec.NodeID(parent)))
		}
		if sp.AllDone {
			opts.Join = pgexec.AllDone
		}
		n.Spawn(sp.Kind, sp.input(), opts)
	}
	var parents []ending
	for _, p := range n.Parents() {
		raw, err := p.RawOutput()
		if err != nil {
			return 0, err
		}
		parents = append(parents, ending{status: string(p.Status()), output: string(raw)})
	}
	out := in.output(parents)
	if in.Writes {
		return out, write(ctx, n, out)
	}
	return out, nil
}

// effects is where nodes write; nothing in it keeps a node from writing twice.
const effects = `create table public.effects (run_id uuid not null, node_id text not null, output bigint not null)`

func write(ctx context.Context, n *pgexec.Node, out uint32) error {
	tx, err := n.Tx(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into public.effects (run_id, node_id, output) values ($1, $2, $3)`, n.RunID(), n.ID(), int64(out))
	return err
}

// fail returns the error of an attempt that is to fail, or panics.
func (w workshop) fail(n *pgexec.Node, in step) error {
	switch in.Do {
	case flaky:
		if n.Attempt() > in.Fails {
			return nil
		}
		switch err := fmt.Errorf("attempt %d fails", n.Attempt()); in.Salt % 4 {
		case 0:
			panic(err)
		case 1:
			return pgexec.RetryAfter(err, time.Duration(in.Salt%300)*time.Millisecond)
		default:
			return err
		}
	case broken:
		if _, err := os.Stat(w.repaired(in.Program)); err != nil {
			return pgexec.Permanent(errors.New(broken))
		}
	case hopeless:
		return pgexec.Permanent(errors.New(hopeless))
	}
	return nil
}

// ending is how a node ended: its status in words, and its output.
type ending struct{ status, output string }

// output is what a step returns, given how its parents ended.
func (s *step) output(parents []ending) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, s.Salt, parents)
	return h.Sum32()
}
