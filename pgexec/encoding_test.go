package pgexec_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// A connection that is not for UTF-8 would keep other text than it is given, and show other text than there is.
func TestEncoding_OtherThanUTF8IsRefused(t *testing.T) {
	t.Parallel()
	good := bundleOn(t, pgtest.DB(t))
	id := good.start("greet", "Grüße")
	cfg := good.pool.Config()
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := bundleOn(t, pool)
	for name, call := range map[string]func() error{
		"start": func() error { _, err := b.client.Start(b.ctx, "greet", "Grüße", nil); return err },
		"startTx": func() error {
			return inTx(b, func(tx pgx.Tx) error { _, err := b.client.StartTx(b.ctx, tx, "greet", nil, nil); return err })
		},
		"signal": func() error { return b.client.Signal(b.ctx, id, "näme", nil, nil) },
		"cancel": func() error { _, err := b.client.Cancel(b.ctx, id, "müde"); return err },
		"get":    func() error { _, err := b.client.Get(b.ctx, id); return err },
		"list":   func() error { _, err := b.client.List(b.ctx, nil); return err },
		"below":  func() error { _, err := b.client.Descendants(b.ctx, []pgexec.RunID{id}, 1); return err },
		"run": func() error {
			kinds := pgexec.NewKinds()
			pgexec.AddKind(kinds, "greet", func(_ context.Context, _ *pgexec.Node, in json.RawMessage) (json.RawMessage, error) { return in, nil }, nil)
			rt, err := pgexec.New(pool, &pgexec.Config{Kinds: kinds, Logger: testLogger(t)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(b.ctx, patience/4)
			defer cancel()
			return rt.Run(ctx)
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "client_encoding is LATIN1, and must be UTF8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if run, err := good.client.Get(b.ctx, id); err != nil || run.Status != pgexec.RunQueued {
		t.Errorf("afterwards the run is %+v, %v", run, err)
	}
}

func inTx(b *bundle, f func(pgx.Tx) error) error { return pgx.BeginFunc(b.ctx, b.pool, f) }
