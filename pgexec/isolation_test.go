package pgexec_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
)

// G8: where transactions are stricter by default, whole trees are controlled all the
// same, by people and by a run that fails while others wait below it.
func TestControl_DefaultIsolationDoesNotMatter_G8(t *testing.T) {
	for _, isolation := range []string{"repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			b := setup(t)
			name := pgx.Identifier{b.pool.Config().ConnConfig.Database}.Sanitize()
			if _, err := b.pool.Exec(b.ctx, "alter database "+name+" set default_transaction_isolation = '"+isolation+"'"); err != nil {
				t.Fatal(err)
			}
			b.pool.Reset()
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "root", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				n.Spawn(pgexec.KindRun, pgexec.RunInput{Kind: "waits"}, nil)
				n.Spawn("fails", nil, nil)
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "waits", func(_ context.Context, n *pgexec.Node, _ none) (int, error) {
				n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: "go"}, nil)
				return 0, nil
			}, nil)
			pgexec.AddKind(kinds, "fails", func(_ context.Context, _ *pgexec.Node, _ none) (int, error) {
				b.eventually(`select count(*) = 1 from pgexec.runs where depth = 1 and status = 'parked'`)
				return 0, pgexec.Permanent(errors.New("broken"))
			}, nil)
			b.replica(kinds, briefly)
			id := b.start("root", nil)
			if run := b.wait(id); run.Status != pgexec.RunFailed || run.Epoch != 1 {
				t.Errorf("run %s: %s, claimed %d times", run.Status, run.Error, run.Epoch)
			}
			b.eventually(`select status = 'cancelled' from pgexec.runs where depth = 1`)
			b.controls(b.start("waits", nil))
		})
	}
}

// controls asks of a run that waits all that a client can.
func (b *bundle) controls(id pgexec.RunID) {
	b.t.Helper()
	b.eventually(`select status = 'parked' from pgexec.runs where run_id = $1`, id)
	want := func(want string) func(string, error) {
		return func(got string, err error) {
			b.t.Helper()
			if err != nil || got != want {
				b.t.Errorf("answer %q, error %v, want %q", got, err, want)
			}
		}
	}
	want("paused")(b.client.Pause(b.ctx, id, ""))
	want("resumed")(b.client.Resume(b.ctx, id, nil))
	fork, err := b.client.Fork(b.ctx, id, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	want("cancelling")(b.client.Cancel(b.ctx, fork, ""))
	b.eventually(`select status = 'cancelled' from pgexec.runs where run_id = $1`, fork)
	want("retrying")(b.client.Retry(b.ctx, query[pgexec.RunID](b, `select run_id from pgexec.runs where status = 'failed'`)))
	if err := b.client.Signal(b.ctx, id, "go", 1, nil); err != nil {
		b.t.Fatal(err)
	}
	b.succeed(id)
}
