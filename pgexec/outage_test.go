package pgexec_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// outage is a way to the database that can be cut.
type outage struct {
	*pgxpool.Pool
	down    atomic.Bool
	refused atomic.Int64
}

func newOutage(t *testing.T, b *bundle) *outage {
	t.Helper()
	o := new(outage)
	cfg := b.pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if o.down.Load() {
			o.refused.Add(1)
			return nil, errors.New("refused by the test")
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o.Pool = pool
	return o
}

// cut ends all connections, and no new one comes about.
func (o *outage) cut() {
	o.down.Store(true)
	o.Reset()
}

// Who waits for a run outlasts failures of the database; who never found it hears of them.
func TestClient_WaitOutlastsFailuresOfTheDatabase(t *testing.T) {
	b := setup(t)
	o := newOutage(t, b)
	client := pgexec.NewClient(o.Pool, &pgexec.ClientConfig{Logger: testLogger(t)})
	t.Cleanup(client.Close)
	id := b.start("k", nil)
	type answer struct {
		run *pgexec.Run
		err error
	}
	done := make(chan answer, 1)
	found := o.Stat().AcquireCount()
	go func() {
		run, err := client.Wait(b.ctx, id)
		done <- answer{run, err}
	}()
	until(t, func() bool { return o.Stat().AcquireCount() > found && o.Stat().AcquiredConns() == 0 })
	o.cut()
	before := o.refused.Load()
	until(t, func() bool { return o.refused.Load() > before+3 })
	if _, err := client.Wait(b.ctx, id); err == nil {
		t.Error("a run that was never found is waited for")
	}
	select {
	case a := <-done:
		t.Fatalf("the wait ended: %v", a.err)
	default:
	}
	o.down.Store(false)
	b.exec(`update pgexec.runs set status = 'succeeded', result = '1', finished_at = now(), wake_job = null where run_id = $1`, id)
	if a := <-done; a.err != nil || a.run.Status != pgexec.RunSucceeded {
		t.Errorf("got %+v, %v", a.run, a.err)
	}

	other := b.start("k", nil)
	found = o.Stat().AcquireCount()
	go func() {
		run, err := client.Wait(b.ctx, other)
		done <- answer{run, err}
	}()
	until(t, func() bool { return o.Stat().AcquireCount() > found && o.Stat().AcquiredConns() == 0 })
	o.Close()
	if a := <-done; a.err == nil {
		t.Errorf("the wait on a pool that was closed returned %+v", a.run)
	}
}

// until waits for what happens in another goroutine and has no other sign.
func until(t *testing.T, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !happened(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v", patience)
		}
	}
}
