package pgexec_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pgexec/runtime/pgexec"
)

// An approval: the run waits, parked and owned by nobody, until somebody answers.
// The answer is addressed to the node that asks.
func ExampleClient_Signal() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()

	type answer struct{ OK bool }
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "refund", func(_ context.Context, n *pgexec.Node, order int) (string, error) {
		ask := n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "approval", Timeout: "72h"}, &pgexec.SpawnOpts{ID: "approve"})
		n.Spawn("pay back", order, &pgexec.SpawnOpts{After: []pgexec.NodeRef{ask}})
		return "approval wanted", nil
	}, nil)
	pgexec.AddKind(kinds, "pay back", func(_ context.Context, n *pgexec.Node, order int) (string, error) {
		var a answer
		if err := n.Parents()[0].Output(&a); err != nil {
			return "", err
		}
		if !a.OK {
			return "refused", nil
		}
		return fmt.Sprintf("order %d is paid back", order), nil
	}, nil)
	defer serve(pool, kinds)()

	client := pgexec.NewClient(pool, nil)
	defer client.Close()
	id, err := client.Start(ctx, "refund", 42, nil)
	if err != nil {
		log.Fatal(err)
	}
	// It may be sent at any time, also before the run has asked.
	err = client.Signal(ctx, id, "approval", answer{OK: true}, &pgexec.SignalOpts{NodeID: "approve", DedupeKey: "click 1"})
	if err != nil {
		log.Fatal(err)
	}
	run, err := client.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(run.Result))
	// Output: "order 42 is paid back"
}

// A limit pauses a run between two nodes; with a higher one it goes on there.
func ExampleClient_Resume() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()

	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "chapter", func(_ context.Context, n *pgexec.Node, left int) (string, error) {
		n.AddUsage(pgexec.Usage{OutputTokens: 400})
		if left > 1 && !n.Budget().NearLimit { // time to wrap up
			n.Spawn("chapter", left-1, nil)
		}
		return fmt.Sprintf("%d chapters left", left-1), nil
	}, nil)
	defer serve(pool, kinds)()

	client := pgexec.NewClient(pool, nil)
	defer client.Close()
	id, err := client.Start(ctx, "chapter", 5, &pgexec.StartOpts{Limits: pgexec.Limits{MaxTokens: 1000, SoftLimit: 1}})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range client.Watch(ctx, id, 0) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Record.GetControl() != nil { // the record of the pause
			break
		}
	}
	run, err := client.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Status, run.Reason)
	if _, err := client.Resume(ctx, id, &pgexec.ResumeOpts{AddTokens: 10_000}); err != nil {
		log.Fatal(err)
	}
	if run, err = client.Wait(ctx, id); err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Status, string(run.Result))
	// Output:
	// paused limit max_tokens reached: 1200 of 1000 tokens spent
	// succeeded "0 chapters left"
}
