package integration

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// C27: the database refuses every connection for 8 s while a replica has 50 runs in flight. All that wants it
// waits ever longer, so that it is tried a few times a second and not by each run; then all runs go on and succeed.
func TestReplica_OutageMakesNoStormOfConnections(t *testing.T) {
	t.Parallel()
	const outage, runs, most = 8 * time.Second, 50, 150
	direct := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	u, err := url.Parse(pgtest.TCPURL(t))
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	p := newProxy(t, server)
	u.Host = p.addr()
	pool, err := pgxpool.New(ctx, u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "slow link", func(ctx context.Context, n *pgexec.Node, left int) (int, error) {
		if left > 1 {
			n.Spawn("slow link", left-1, nil)
		}
		select {
		case <-time.After(20 * time.Millisecond):
			return left, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}, nil)
	serve(t, pool, pgexec.Config{Kinds: kinds, PoisonAfter: 1000})
	client := newClient(t, direct)
	var ids []pgexec.RunID
	for range runs {
		ids = append(ids, start(ctx, t, client, "slow link", 60))
	}
	eventually(ctx, t, direct, `select count(*) = $1 from pgexec.runs where owner is not null`, runs)
	before := p.count()
	p.pointTo("")
	select {
	case <-time.After(outage):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	tried := p.count() - before
	p.pointTo(server)
	t.Logf("%d connections before the outage, %d tried in it", before, tried)
	if tried > most {
		t.Errorf("%d connections were tried in %v, want at most %d", tried, outage, most)
	}
	for _, id := range ids {
		succeed(ctx, t, client, id)
	}
}
