package pgexec_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sort"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// serve starts a replica in this process and returns what stops it. A real
// program calls Run in main, with a context that SIGTERM ends.
func serve(pool *pgxpool.Pool, kinds *pgexec.Kinds) (stop func()) {
	rt, err := pgexec.New(pool, &pgexec.Config{Kinds: kinds, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rt.Run(ctx); err != nil {
			log.Fatal(err)
		}
	}()
	return func() { cancel(); <-done }
}

// connect opens the database that $DATABASE_URL names and brings its schema up to date.
func connect(ctx context.Context) *pgxpool.Pool {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := pgexec.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	return pool
}

// A fan-out and join: one node spawns three that run at once, and one that
// runs when all three have succeeded.
func Example_fanOutAndJoin() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()

	type city struct{ Name string }
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "survey", func(_ context.Context, n *pgexec.Node, cities []string) (int, error) {
		var counts []pgexec.NodeRef
		for _, name := range cities {
			counts = append(counts, n.Spawn("count", city{Name: name}, nil))
		}
		n.Spawn("sum", nil, &pgexec.SpawnOpts{After: counts})
		return len(cities), nil
	}, nil)
	pgexec.AddKind(kinds, "count", func(_ context.Context, _ *pgexec.Node, c city) (int, error) {
		return len(c.Name), nil
	}, nil)
	pgexec.AddKind(kinds, "sum", func(_ context.Context, n *pgexec.Node, _ any) (int, error) {
		total := 0
		for _, parent := range n.Parents() {
			var count int
			if err := parent.Output(&count); err != nil {
				return 0, err
			}
			total += count
		}
		return total, nil
	}, nil)
	defer serve(pool, kinds)()

	client := pgexec.NewClient(pool, nil)
	defer client.Close()
	id, err := client.Start(ctx, "survey", []string{"Oslo", "Lima", "Kathmandu"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	run, err := client.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Status, string(run.Result))
	// Output: succeeded 17
}

// An agent loop: a turn asks for tools, the tools run at once, and the next
// turn sees what they returned, errors included, until a turn asks for nothing.
func Example_agentLoop() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()

	type turn struct {
		Say  string
		Done bool
	}
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "turn", func(_ context.Context, n *pgexec.Node, _ any) (turn, error) {
		// A real turn calls a model with the conversation, which it rebuilds from
		// its ancestors; the record keeps this turn's message only.
		var seen []string
		for _, tool := range n.Parents() {
			if tool.Kind() != "tool" {
				continue
			}
			if err := tool.Err(); err != nil {
				seen = append(seen, "error: "+err.Error())
				continue
			}
			var answer string
			if err := tool.Output(&answer); err != nil {
				return turn{}, err
			}
			seen = append(seen, answer)
		}
		if len(seen) > 0 {
			sort.Strings(seen)
			return turn{Say: fmt.Sprint(seen), Done: true}, nil
		}
		calls := []pgexec.NodeRef{
			n.Spawn("tool", "weather", nil),
			n.Spawn("tool", "stock market", nil),
		}
		n.Spawn("turn", nil, &pgexec.SpawnOpts{After: calls, Join: pgexec.AllDone})
		return turn{Say: "let me look"}, nil
	}, nil)
	pgexec.AddKind(kinds, "tool", func(_ context.Context, _ *pgexec.Node, name string) (string, error) {
		if name == "weather" {
			return "sunny", nil
		}
		return "", pgexec.Permanent(fmt.Errorf("no tool %q", name))
	}, nil)
	defer serve(pool, kinds)()

	client := pgexec.NewClient(pool, nil)
	defer client.Close()
	id, err := client.Start(ctx, "turn", nil, &pgexec.StartOpts{IdempotencyKey: "example agent loop"})
	if err != nil {
		log.Fatal(err)
	}
	run, err := client.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	var last turn
	if err := run.Output(&last); err != nil {
		log.Fatal(err)
	}
	fmt.Println(last.Say)
	// Output: [error: no tool "stock market" sunny]
}

// A run that is part of an application's own transaction: both or neither.
func ExampleClient_StartTx() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()
	client := pgexec.NewClient(pool, nil)
	defer client.Close()

	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	id, err := client.StartTx(ctx, tx, "invoice", map[string]any{"order": 7}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = client.Get(ctx, id)
	fmt.Println(err != nil)
	// Output: true
}
