package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// askKind is a kind of run that asks for one signal after the other and checks that they come in order. It says
// when it is about to ask.
const askKind = "ask"

type question struct {
	Number, Of int
}

// asks tells, by run, which question its node is about to ask.
type asks struct {
	mu    sync.Mutex
	byRun map[pgexec.RunID]chan int
}

func (a *asks) of(id pgexec.RunID) chan int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byRun[id] == nil {
		a.byRun[id] = make(chan int, 10)
	}
	return a.byRun[id]
}

func (a *asks) kinds() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, askKind, func(ctx context.Context, n *pgexec.Node, q question) (int, error) {
		for _, p := range n.Parents() {
			var got int
			if err := p.Output(&got); err != nil || got != q.Number-1 {
				return 0, pgexec.Permanent(fmt.Errorf("answer %d (%w) to question %d", got, err, q.Number-1))
			}
		}
		if q.Number < q.Of {
			answer := n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: sharedName}, nil)
			n.Spawn(askKind, question{q.Number + 1, q.Of}, &pgexec.SpawnOpts{After: []pgexec.NodeRef{answer}})
		}
		select {
		case a.of(n.RunID()) <- q.Number:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		return q.Number, nil
	}, nil)
	return kinds
}

// C11, C13: runs wait for a signal, linger for a millisecond and park, on two replicas. Each is signalled at a random
// moment from before the wait's record to after the park: thousands of rounds, none lost, each signal consumed once and in order.
func TestSignals_NoneIsLostAgainstParking_C11(t *testing.T) {
	t.Parallel()
	const runs = 50
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a := &asks{byRun: make(map[pgexec.RunID]chan int)}
	for i := range 2 {
		serve(t, pool, pgexec.Config{Kinds: a.kinds(), Host: fmt.Sprintf("replica-%d", i), Linger: time.Millisecond})
	}
	client := newClient(t, pool)
	var lanes sync.WaitGroup
	var mu sync.Mutex
	var waits []time.Duration
	for range runs {
		lanes.Go(func() {
			took, err := a.answer(ctx, client, rounds)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, took...)
		})
	}
	lanes.Wait()
	if t.Failed() {
		t.FailNow()
	}
	eventually(ctx, t, pool, `select bool_and(status = 'succeeded') from pgexec.runs`)
	checkConsumption(ctx, t, pool, runs*rounds)
	parks := query[int](ctx, t, pool, `select sum(epoch)::integer from pgexec.runs`) - runs
	slices.Sort(waits)
	t.Logf("%d signals, %d of them to parked runs; from signal to successor: median %v, p99 %v, longest %v",
		len(waits), parks, waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
	if parks == 0 || parks == len(waits) {
		t.Error("signals and parks did not meet: the test shows nothing")
	}
}

// answer starts a run and answers its questions. It returns how long each answer took to get through.
func (a *asks) answer(ctx context.Context, client *pgexec.Client, rounds int) (took []time.Duration, err error) {
	id, err := client.Start(ctx, askKind, question{Of: rounds}, nil)
	if err != nil {
		return nil, err
	}
	for n := 0; n <= rounds; n++ {
		sent := time.Now()
		select {
		case <-a.of(id):
		case <-time.After(patience):
			return took, fmt.Errorf("run %s has not asked question %d within %v of the answer before", id, n, patience)
		case <-ctx.Done():
			return took, context.Cause(ctx)
		}
		if n > 0 {
			took = append(took, time.Since(sent))
		}
		if n == rounds {
			break
		}
		select {
		case <-time.After(rand.N(time.Millisecond << rand.N(8))): // about a quarter of them long after the park
		case <-ctx.Done():
			return took, context.Cause(ctx)
		}
		if err := client.Signal(ctx, id, sharedName, n, nil); err != nil {
			return took, err
		}
	}
	return took, nil
}

// checkConsumption: each signal has ended one wait, and each wait took one signal.
func checkConsumption(ctx context.Context, t *testing.T, pool *pgxpool.Pool, signals int) {
	t.Helper()
	const consumed = `
		select concat_ws(' ', count(*), count(distinct d.rec #>> '{node,signal_id}'), count(distinct l.run_id || (d.rec #>> '{node,id}')),
			(select count(*) from pgexec.signals))
		from pgexec.run_log l
		cross join lateral (select pgexec.decode(l.record) as rec offset 0) d
		where d.rec #>> '{node,signal_id}' is not null`
	if got, want := query[string](ctx, t, pool, consumed), fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", signals); got != want {
		t.Errorf("waits that ended by a signal, signals they took, their ids, signals sent: %s, want %s", got, want)
	}
}
