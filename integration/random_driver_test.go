package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

const (
	// minderPatience is how long a program may take before others are started in its place.
	minderPatience = 2 * time.Minute
	mostRetries    = 4
)

// driver starts programs and does to them from outside what they say, like the
// applications and the people around a fleet of replicas.
type driver struct {
	t      *testing.T
	pool   *pgxpool.Pool
	client *pgexec.Client
	shop   workshop
	rng    *rand.Rand // of the goroutine that tends

	mu    sync.Mutex
	alive map[pgexec.RunID]*minded // by root
	roots map[pgexec.RunID]pgexec.RunID
	all   []*minded
	// mostParked is the most runs that were parked at once. Of the goroutine that tends.
	mostParked int
}

// minded is a program that was started.
type minded struct {
	program *program
	root    pgexec.RunID
	ended   chan struct{}
	// Of the goroutine that minds it, until it has ended:
	cancelled map[pgexec.RunID]bool
	// Of the goroutine that tends:
	retries    int
	repairedAt time.Time
}

func newDriver(t *testing.T, pool *pgxpool.Pool, shop workshop, rng *rand.Rand) *driver {
	return &driver{
		t: t, pool: pool, client: newClient(t, pool), shop: shop, rng: rng,
		alive: make(map[pgexec.RunID]*minded), roots: make(map[pgexec.RunID]pgexec.RunID),
	}
}

// mind starts a program, acts on it, and returns when its root run has ended for good.
func (d *driver) mind(ctx context.Context, p *program) {
	ctx, cancel := context.WithTimeout(ctx, minderPatience)
	defer cancel()
	m, err := d.start(ctx, p)
	if err != nil {
		if ctx.Err() == nil {
			d.t.Errorf("start program %d: %v", p.Number, err)
		}
		return
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	answers.Go(func() {
		for d.rest(ctx, m, time.Second) {
			d.answer(ctx, m)
		}
	})
	todo := make(map[int]time.Time) // the places of actions in the program, and when each is due
	for i, a := range p.Actions {
		todo[i] = time.Now().Add(time.Duration(a.AtMs) * time.Millisecond)
	}
	for len(todo) > 0 {
		next := earliest(todo)
		if !d.rest(ctx, m, time.Until(todo[next])) {
			return
		}
		if d.act(ctx, m, p.Actions[next]) {
			delete(todo, next)
		} else {
			todo[next] = time.Now().Add(100 * time.Millisecond)
		}
	}
	d.rest(ctx, m, minderPatience)
}

// answer says again what became of nodes that may be in doubt: what was said before the attempt in doubt began was about none.
func (d *driver) answer(ctx context.Context, m *minded) {
	for _, a := range m.program.Actions {
		if a.Name != outcomeName || a.RunAgain {
			continue
		}
		err := d.client.Signal(ctx, runAt(m.root, a.Run), a.Name, a.payload(), &pgexec.SignalOpts{NodeID: pgexec.NodeID(a.Node)})
		if err != nil && !errors.Is(err, pgexec.ErrRunNotFound) && !errors.Is(err, pgexec.ErrRunEnded) && ctx.Err() == nil {
			d.t.Errorf("answer %s of run %s: %v", a.Node, m.root, err)
		}
	}
}

func earliest(todo map[int]time.Time) int {
	next := -1
	for i, at := range todo {
		if next < 0 || at.Before(todo[next]) {
			next = i
		}
	}
	return next
}

// rest waits; false means that the program has ended, or is given up.
func (d *driver) rest(ctx context.Context, m *minded, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-m.ended:
	case <-ctx.Done():
	}
	return false
}

// start inserts the run, with the signals that are sent with it, as an application does.
func (d *driver) start(ctx context.Context, p *program) (*minded, error) {
	m := &minded{program: p, ended: make(chan struct{}), cancelled: make(map[pgexec.RunID]bool)}
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `insert into pgexec.runs (kind, input, max_nodes, max_tokens, max_parallel)
			values ('step', $1, nullif($2, 0), nullif($3, 0), nullif($4, 0)) returning run_id`,
			p.Root, p.MaxNodes, p.MaxTokens, p.MaxParallel).Scan(&m.root)
		if err != nil {
			return err
		}
		for _, a := range p.Actions {
			if a.AtMs >= 0 || len(a.Run) > 0 {
				continue
			}
			err := d.client.SignalTx(ctx, tx, m.root, a.Name, a.payload(), &pgexec.SignalOpts{NodeID: pgexec.NodeID(a.Node), DedupeKey: a.dedupeKey()})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, m)
	d.alive[m.root] = m
	p.eachRun(func(path []string, _ *step) { d.roots[runAt(m.root, path)] = m.root })
	return m, nil
}

func (a action) dedupeKey() string { return fmt.Sprintf("%s %d", a.Name, a.Payload) }

// act does an action; false means that it has to be tried again, because its run is not there yet or has ended,
// perhaps to be retried.
func (d *driver) act(ctx context.Context, m *minded, a action) (done bool) {
	id := runAt(m.root, a.Run)
	var err error
	switch a.Do {
	case "signal":
		for range a.Times {
			opts := &pgexec.SignalOpts{NodeID: pgexec.NodeID(a.Node), DedupeKey: a.dedupeKey()}
			if err = d.client.Signal(ctx, id, a.Name, a.payload(), opts); err != nil {
				break
			}
		}
	case "cancel":
		var answer string
		answer, err = d.client.Cancel(ctx, id, "at random")
		if answer == "cancelling" {
			m.cancelled[id] = true
		}
	case "pause":
		_, err = d.client.Pause(ctx, id, "at random")
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, pgexec.ErrRunNotFound) || errors.Is(err, pgexec.ErrRunEnded):
		return false
	case ctx.Err() == nil:
		d.t.Errorf("%s run %s: %v", a.Do, id, err)
	}
	return true
}

// tend resumes what is paused and retries what has failed, until ctx is done.
func (d *driver) tend(ctx context.Context) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if err := errors.Join(d.resume(ctx), d.conclude(ctx)); err != nil && ctx.Err() == nil {
			d.t.Errorf("tend programs: %v", err)
			return
		}
	}
}

func ids(rows pgx.Rows, err error) ([]pgexec.RunID, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[pgexec.RunID])
}

// resume counts the parked runs and continues paused ones, or the trees they are in, with a little more to spend.
func (d *driver) resume(ctx context.Context) error {
	paused, err := ids(d.pool.Query(ctx, `select run_id from pgexec.runs where status = 'paused'`))
	if err != nil {
		return err
	}
	var parked int
	if err := d.pool.QueryRow(ctx, `select count(*) from pgexec.runs where status = 'parked'`).Scan(&parked); err != nil {
		return err
	}
	d.mostParked = max(d.mostParked, parked)
	var resumes []func() error
	for _, id := range paused {
		if d.rng.IntN(3) == 0 {
			continue
		}
		d.mu.Lock()
		root, known := d.roots[id]
		d.mu.Unlock()
		if known && d.rng.IntN(2) == 0 {
			id = root
		}
		opts := &pgexec.ResumeOpts{AddNodes: 1 + d.rng.IntN(10), AddTokens: 1 + d.rng.Int64N(100)}
		resumes = append(resumes, func() error {
			_, err := d.client.Resume(ctx, id, opts)
			return err
		})
	}
	return together(resumes)
}

// together calls all the functions, a few at a time.
func together(fs []func() error) error {
	const atOnce = 8
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(atOnce, len(fs)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(fs)); i = next.Add(1) - 1 {
				errs[i] = fs[i]()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// conclude retries programs that have failed and may go on, and ends the others.
func (d *driver) conclude(ctx context.Context) error {
	rows, err := d.pool.Query(ctx, `select run_id, status from pgexec.runs where run_id = any ($1) and status in ('succeeded', 'failed', 'cancelled')`, d.aliveRoots())
	if err != nil {
		return err
	}
	type end struct {
		ID     pgexec.RunID
		Status string
	}
	ends, err := pgx.CollectRows(rows, pgx.RowToStructByPos[end])
	if err != nil {
		return err
	}
	var retries []func() error
	d.mu.Lock()
	for _, e := range ends {
		m := d.alive[e.ID]
		if e.Status == "failed" && m.wantsRetry() {
			retries = append(retries, func() error { return d.retry(ctx, m) })
			continue
		}
		close(m.ended)
		delete(d.alive, e.ID)
	}
	d.mu.Unlock()
	return together(retries)
}

func (d *driver) aliveRoots() []pgexec.RunID {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]pgexec.RunID, 0, len(d.alive))
	for id := range d.alive {
		out = append(out, id)
	}
	return out
}

// wantsRetry: programs with faults that can be repaired are retried a few times, some others once.
func (m *minded) wantsRetry() bool {
	if m.program.repairable() {
		return m.retries < mostRetries
	}
	return m.program.Number%5 == 0 && m.retries == 0
}

// retry repairs the fault and retries the run.
func (d *driver) retry(ctx context.Context, m *minded) error {
	if m.program.repairable() && m.repairedAt.IsZero() {
		file := d.shop.repaired(m.program.Number)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
		m.repairedAt = time.Now()
	}
	m.retries++
	_, err := d.client.Retry(ctx, m.root)
	return err
}
