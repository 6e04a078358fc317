package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// replicaRare, when set, gives a replica process the rare kind as well.
const replicaRare = "PGEXEC_REPLICA_RARE"

// randomReplicaProcess is the whole of a replica process that runs random programs.
func randomReplicaProcess() {
	runReplica(func(notes *os.File) *pgexec.Config {
		shop := workshop{dir: os.Getenv(replicaDir)}
		return shop.config(os.Getenv(replicaHost), os.Getenv(replicaRare) != "", notes, errorsOnly(os.Stderr))
	})
}

// errorsOnly logs little: in this storm most warnings are no news.
func errorsOnly(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
}

// localAppName marks the connections of replicas in this process.
const localAppName = "random programs"

// localReplica is a replica in this process.
type localReplica struct {
	host  string
	pool  *pgxpool.Pool
	notes *os.File
	stop  context.CancelFunc
	done  chan error
	// drained is done by the test, or by its end.
	drained sync.Once
}

func (c *crowd) startLocal(rare bool) *localReplica {
	c.starts++
	r := &localReplica{host: fmt.Sprintf("local-%d", c.starts), done: make(chan error, 1)}
	cfg, err := pgxpool.ParseConfig(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.MaxConns = 10
	cfg.ConnConfig.RuntimeParams["application_name"] = localAppName
	if r.pool, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		c.t.Fatal(err)
	}
	r.notes, err = os.OpenFile(filepath.Join(c.shop.dir, r.host), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	c.t.Cleanup(func() { r.drain(c.t) })
	go func() { r.done <- r.run(ctx, c.shop.config(r.host, rare, r.notes, c.log)) }()
	return r
}

// run starts the replica again when a cut of its first connections has ended it, as a platform does.
func (r *localReplica) run(ctx context.Context, cfg *pgexec.Config) error {
	const starts = 20
	var rt *pgexec.Runtime
	var err error
	for range starts {
		if rt, err = pgexec.New(r.pool, cfg); err != nil {
			return err
		}
		if err = rt.Run(ctx); err == nil {
			return nil
		}
	}
	return err
}

// drain stops the replica and waits for it.
func (r *localReplica) drain(t *testing.T) { r.drained.Do(func() { r.end(t) }) }

func (r *localReplica) end(t *testing.T) {
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("replica %s: %v", r.host, err)
		}
	case <-time.After(2 * patience):
		t.Errorf("replica %s does not stop", r.host)
		return
	}
	r.pool.Close()
	r.notes.Close()
}

// crowd is the replicas that work on random programs: some in this process,
// whose connections are cut, and some processes that are killed. The first of
// either sort has the rare kind.
type crowd struct {
	t      *testing.T
	rng    *rand.Rand
	admin  *pgxpool.Pool
	url    string
	shop   workshop
	log    *slog.Logger
	local  [3]*localReplica
	child  [2]*pgtest.Child
	starts int
	done   map[string]int // how often each thing was done
}

func newCrowd(t *testing.T, rng *rand.Rand, shop workshop) *crowd {
	c := &crowd{
		t: t, rng: rng, admin: pgtest.DB(t), url: pgtest.URL(t), shop: shop, done: make(map[string]int),
		log: errorsOnly(t.Output()),
	}
	for i := range c.local {
		c.local[i] = c.startLocal(i == 0)
	}
	for i := range c.child {
		c.startChild(i)
	}
	return c
}

func (c *crowd) startChild(i int) {
	c.starts++
	rare := ""
	if i == 0 {
		rare = "yes"
	}
	c.child[i] = pgtest.StartChild(c.t, "random replica", replicaURL+"="+c.url, replicaDir+"="+c.shop.dir,
		replicaHost+fmt.Sprintf("=child-%d", c.starts), replicaRare+"="+rare)
}

// chaos kills, cuts off and drains until ctx is done.
func (c *crowd) chaos(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10*time.Millisecond + draw(c.rng, 120*time.Millisecond)):
			c.act(ctx)
		}
	}
}

func (c *crowd) act(ctx context.Context) {
	i := c.rng.IntN(len(c.local))
	switch p := c.rng.Float64(); {
	case p < 0.45:
		c.cut(ctx, "connection cut", `select pid from pg_stat_activity
			where datname = current_database() and application_name in ($1, $1 || ': pgexec log ' || (select replica_id from pgexec.replicas order by random() limit 1)) order by random() limit 1`, localAppName)
	case p < 0.70:
		c.cut(ctx, "session killed", `select backend_pid from pgexec.replicas where host = $1`, c.local[i].host)
	case p < 0.85:
		c.done["drain"]++
		c.local[i].drain(c.t)
		c.local[i] = c.startLocal(i == 0)
	default:
		c.done["SIGKILL"]++
		i := c.rng.IntN(len(c.child))
		c.child[i].Kill()
		c.startChild(i)
	}
}

// cut ends the backend that the statement picks.
func (c *crowd) cut(ctx context.Context, what, pick string, arg string) {
	tag, err := c.admin.Exec(ctx, `with picked as materialized (`+pick+`) select pg_terminate_backend(pid) from picked p (pid)`, arg)
	if err != nil && ctx.Err() == nil {
		c.t.Errorf("%s: %v", what, err)
	}
	c.done[what] += int(tag.RowsAffected())
}

// drain ends all replicas as a deploy does.
func (c *crowd) drain() {
	for _, child := range c.child {
		signalTerm(child)
	}
	for _, r := range c.local {
		r.drain(c.t)
	}
	for _, child := range c.child {
		if code := child.Wait(patience); code != 0 {
			c.t.Errorf("replica process %d left with code %d after SIGTERM", child.PID(), code)
		}
	}
}
