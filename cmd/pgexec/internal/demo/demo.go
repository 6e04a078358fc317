package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/schema"
)

const (
	// One replica is killed, and another one drained, when that share of all nodes is recorded.
	killAt  = 0.3
	drainAt = 0.6
	// storyLimit is far more than the story takes on a slow machine.
	storyLimit = 3 * time.Minute
	readyLimit = time.Minute
	drawEvery  = 100 * time.Millisecond
	// insertEvery is the time between two runs.
	insertEvery = 40 * time.Millisecond
)

// demo is one showing, and all that it has to take away again.
type demo struct {
	cfg     Config
	began   time.Time
	display display

	db        *database
	pool      *pgxpool.Pool
	client    *pgexec.Client
	service   *service
	processes []*process
	watchers  sync.WaitGroup
	stopWatch context.CancelFunc
	story     *story
	// asked is since when an approval has been open; zero once it was given.
	asked map[question]time.Time
}

func (d *demo) run(ctx context.Context) error {
	d.display = newDisplay(d.cfg)
	fmt.Fprintf(d.cfg.Out, "pgexec demo: agent runs that survive the death of the process that runs them\n\n")
	for _, step := range []func(context.Context) error{
		d.prepareDatabase, d.prepareService, d.defineAgents, d.startReplicas, d.insertRuns, d.play, d.report,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *demo) prepareDatabase(ctx context.Context) (err error) {
	began := time.Now()
	if d.db, err = d.findDatabase(ctx); err != nil {
		return err
	}
	if d.pool, err = pgxpool.New(context.WithoutCancel(ctx), d.db.url); err != nil {
		return err
	}
	var version string
	if err := d.pool.QueryRow(ctx, statement("server_version")).Scan(&version); err != nil {
		return fmt.Errorf("read version of server: %w", err)
	}
	version, _, _ = strings.Cut(version, " ")
	d.display.step("database", "PostgreSQL %s, %s (%.1f s)", version, d.db.where, time.Since(began).Seconds())

	began = time.Now()
	applied, err := schema.Up(ctx, d.pool)
	if err != nil {
		return err
	}
	for _, name := range []string{"replica_create", "takeovers_create"} {
		if _, err := d.pool.Exec(ctx, statement(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	d.display.step("schema", "pgexec migrate up: %d migrations (%.1f s)", len(applied), time.Since(began).Seconds())
	d.client = pgexec.NewClient(d.pool, nil)
	return nil
}

func (d *demo) prepareService(context.Context) (err error) {
	if d.service, err = startService(); err != nil {
		return err
	}
	d.display.step("service", "%s, stands in for two models and their tools", d.service.url)
	return nil
}

func (d *demo) defineAgents(ctx context.Context) error {
	for name, definition := range agents(d.service.url) {
		if _, err := d.pool.Exec(ctx, statement("agent_insert"), name, definition); err != nil {
			return fmt.Errorf("define agent %s: %w", name, err)
		}
	}
	d.display.step("agents", "writer and checker, each an INSERT INTO pgexec.agents")
	return nil
}

// startReplicas starts three and waits until all of them serve.
func (d *demo) startReplicas(ctx context.Context) error {
	d.story, d.asked = newStory(nil), make(map[question]time.Time)
	for _, name := range []string{"A", "B", "C"} {
		p, err := startReplica(d.cfg.Program, name, d.db.url, d.service.addr)
		if err != nil {
			return err
		}
		d.processes = append(d.processes, p)
		d.story.actors = append(d.story.actors, &actor{name: name, pid: p.pid()})
	}
	if err := d.untilReady(ctx); err != nil {
		return err
	}
	for _, a := range d.story.actors {
		if _, err := d.pool.Exec(ctx, statement("replica_name"), a.id, a.name, a.pid); err != nil {
			return fmt.Errorf("name replica: %w", err)
		}
	}
	d.display.step("replicas", "A, B and C: three processes of `pgexec serve`")
	return nil
}

func (d *demo) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("the replicas did not start within %s", readyLimit))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready, err := d.identify(ctx); err != nil || ready {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		for _, p := range d.processes {
			select {
			case <-p.ended:
				return p.failure()
			default:
			}
		}
	}
}

// identify learns the replicas' ids and reports whether all have one.
func (d *demo) identify(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, statement("replica_ready"))
	if err != nil {
		return false, fmt.Errorf("list replicas: %w", err)
	}
	known := 0
	var id int32
	var pid int
	_, err = pgx.ForEachRow(rows, []any{&id, &pid}, func() error {
		for _, a := range d.story.actors {
			if a.pid == pid {
				a.id = id
				known++
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("list replicas: %w", err)
	}
	return known == len(d.story.actors), nil
}

// insertRuns adds the runs one after the other, as they come in to an application,
// so that all replicas get some.
func (d *demo) insertRuns(ctx context.Context) error {
	all, err := plans()
	if err != nil {
		return err
	}
	d.story.began = time.Now()
	for _, p := range all {
		var id pgexec.RunID
		if err := d.pool.QueryRow(ctx, statement("run_insert"), p.input, p.name).Scan(&id); err != nil {
			return fmt.Errorf("insert run: %w", err)
		}
		d.story.add(id, p)
		if !sleep(ctx, insertEvery) {
			return context.Cause(ctx)
		}
	}
	d.display.step("runs", "%d, each an INSERT INTO pgexec.runs", len(all))
	fmt.Fprintln(d.cfg.Out)
	return nil
}

// news is a record that a run's watcher got.
type news struct {
	run   pgexec.RunID
	entry pgexec.Entry
	err   error
}

// watch follows all runs.
func (d *demo) watch(ctx context.Context) <-chan news {
	ctx, d.stopWatch = context.WithCancel(ctx)
	arrived := make(chan news, 64)
	for id := range d.story.byID {
		d.watchers.Go(func() {
			for entry, err := range d.client.Watch(ctx, id, 0) {
				select {
				case arrived <- news{id, entry, err}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return arrived
}

// play shows the story until all runs have ended.
func (d *demo) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storyLimit, errTooSlow)
	defer cancel()
	arrived := d.watch(ctx)
	ended := make(chan *process, len(d.processes))
	for _, p := range d.processes {
		d.watchers.Go(func() {
			select {
			case <-p.ended:
				ended <- p
			case <-ctx.Done():
			}
		})
	}
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case n := <-arrived:
			err = d.hear(n)
		case p := <-ended:
			err = d.noteEnd(p)
		case <-tick.C:
			d.display.draw(d.story)
			if err = d.act(ctx); err == nil {
				err = d.approve(ctx)
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if errors.Is(err, errTooSlow) {
			return d.unfinished(err)
		}
		if err != nil || d.story.over() {
			d.display.draw(d.story)
			return err
		}
	}
}

var errTooSlow = fmt.Errorf("the runs have not ended within %s", storyLimit)

func (d *demo) hear(n news) error {
	if n.err != nil {
		return fmt.Errorf("watch run %s: %w", n.run, n.err)
	}
	if text := d.story.apply(n.run, n.entry.Record); text != "" {
		d.display.event(d.story, text)
	}
	return nil
}

// act sends the signals when it is time for them.
func (d *demo) act(ctx context.Context) error {
	s := d.story
	switch {
	case s.with(fateKilled) == nil:
		if s.passed(killAt) {
			return d.stop(ctx, s.busiest(), syscall.SIGKILL)
		}
	case s.with(fateDraining) == nil && s.with(fateDrained) == nil:
		if s.passed(drainAt) {
			return d.stop(ctx, s.busiest(), syscall.SIGTERM)
		}
	}
	return nil
}

// stop notes the time by the database's clock and sends the signal.
func (d *demo) stop(ctx context.Context, a *actor, sig syscall.Signal) error {
	name, what, next := "SIGKILL", "kill -9", fateKilled
	if sig == syscall.SIGTERM {
		name, what, next = "SIGTERM", "SIGTERM", fateDraining
	}
	if err := d.pool.QueryRow(ctx, statement("replica_stop"), a.id, name).Scan(&a.stopped); err != nil {
		return fmt.Errorf("note signal: %w", err)
	}
	for _, p := range d.processes {
		if p.name == a.name {
			if err := p.signal(sig); err != nil {
				return err
			}
		}
	}
	a.fate, a.fateAt = next, d.story.elapsed()
	d.display.event(d.story, fmt.Sprintf("--- %s to replica %s, which has %d runs at work ---", what, a.name, d.story.owns(a)))
	return nil
}

// noteEnd hears of a replica's end, which is good news only if it was asked for.
func (d *demo) noteEnd(p *process) error {
	for _, a := range d.story.actors {
		switch {
		case a.name != p.name || a.fate == fateKilled:
		case a.fate == fateDraining && p.cmd.ProcessState.Success():
			a.fate, a.fateAt = fateDrained, d.story.elapsed()
			d.display.event(d.story, fmt.Sprintf("replica %s has drained and ended with exit code 0", a.name))
		default:
			return p.failure()
		}
	}
	return nil
}

// unfinished says which runs have not ended, and what they wait for.
func (d *demo) unfinished(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rows, err := d.pool.Query(ctx, statement("unfinished"))
	if err != nil {
		return errors.Join(cause, err)
	}
	text := cause.Error()
	var name, status, why string
	_, err = pgx.ForEachRow(rows, []any{&name, &status, &why}, func() error {
		text += fmt.Sprintf("\n  %s is %s: %s", name, status, why)
		return nil
	})
	return errors.Join(errors.New(text), err)
}
