package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// What a replica process is told in its environment.
const (
	replicaURL  = "PGEXEC_BENCH_URL"
	replicaHost = "PGEXEC_BENCH_HOST"
	// replicaReports is the unix socket that gets a datagram for each event.
	replicaReports = "PGEXEC_BENCH_REPORTS"
)

// What a replica process reports.
const (
	ready   = "ready"   // the replica claims from now on
	started = "started" // a handler was called
	ended   = "ended"   // a handler returns
)

// none is an input that says nothing.
type none struct{}

// replicaProcess is the whole of a replica process. SIGTERM drains it.
func replicaProcess() {
	if err := serveReplica(); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

func serveReplica() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reports, err := net.Dial("unixgram", os.Getenv(replicaReports))
	if err != nil {
		return err
	}
	defer reports.Close()
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
	r := &reporter{host: os.Getenv(replicaHost), conn: reports}
	rt, err := pgexec.New(pool, &pgexec.Config{
		Kinds:       r.kinds(),
		Host:        r.host,
		PoisonAfter: 1000, // the same runs lose their owner again and again
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	go r.reportReady(ctx, rt)
	return rt.Run(ctx)
}

// reporter tells the benchmark what happens in a replica process, and when.
type reporter struct {
	host string
	conn net.Conn
}

func (r *reporter) report(what string, run pgexec.RunID, node pgexec.NodeID) {
	if _, err := fmt.Fprintf(r.conn, "%s %s %s %s %d", r.host, what, run, node, time.Now().UnixNano()); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
}

func (r *reporter) reportReady(ctx context.Context, rt *pgexec.Runtime) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for rt.State() != pgexec.StateReady {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	r.report(ready, pgexec.RunID{}, pgexec.RootID)
}

// kinds are nodes that only take time: "hold" never ends, "quick" takes none,
// "wait" parks until it is signalled, "turn" and "slow" are endless chains of nodes.
func (r *reporter) kinds() *pgexec.Kinds {
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "hold", func(ctx context.Context, n *pgexec.Node, _ none) (none, error) {
		r.report(started, n.RunID(), n.ID())
		<-ctx.Done()
		return none{}, context.Cause(ctx)
	}, nil)
	pgexec.AddKind(kinds, "quick", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		r.report(started, n.RunID(), n.ID())
		return none{}, nil
	}, nil)
	pgexec.AddKind(kinds, "wait", func(_ context.Context, n *pgexec.Node, _ none) (none, error) {
		signal := n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, nil)
		n.Spawn("quick", none{}, &pgexec.SpawnOpts{After: []pgexec.NodeRef{signal}})
		return none{}, nil
	}, nil)
	for kind, least := range map[string]time.Duration{"turn": 100 * time.Millisecond, "slow": 2 * time.Second} {
		pgexec.AddKind(kinds, kind, func(ctx context.Context, n *pgexec.Node, _ none) (none, error) {
			r.report(started, n.RunID(), n.ID())
			select {
			case <-time.After(least + rand.N(2*least)):
			case <-ctx.Done():
				return none{}, context.Cause(ctx)
			}
			n.Spawn(kind, none{}, nil)
			r.report(ended, n.RunID(), n.ID())
			return none{}, nil
		}, nil)
	}
	return kinds
}
