package pgexec_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec"
)

// unreadable is an error that panics when it is asked what it says, as many do behind a nil pointer.
type unreadable struct{ text string }

func (e *unreadable) Error() string { return e.text }

// What a handler returns as its error fails its node, whatever it is: neither the process nor the run's log is harmed.
func TestRun_ErrorsThatCannotBeRead(t *testing.T) {
	b := setup(t)
	var none *unreadable
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"nil":    {none, "panic"},
		"marked": {pgexec.Permanent(none), "panic"},
		"code":   {pgexec.Permanent(pgexec.WithCode(&unreadable{"no"}, "bad \xff code "+strings.Repeat("x", 2<<20))), "bad \uFFFD code xxx"},
		"text":   {pgexec.Permanent(&unreadable{"no \xff"}), "error"},
	} {
		kinds := pgexec.NewKinds()
		pgexec.AddKind(kinds, name, func(context.Context, *pgexec.Node, any) (int, error) { return 0, tc.err },
			&pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 1}})
		r := b.replica(kinds)
		id := b.start(name, nil)
		if run := b.wait(id); run.Status != pgexec.RunFailed {
			t.Errorf("%s: run is %s", name, run.Status)
		}
		const code = `select pgexec.decode(record) #>> '{node,error,code}' from pgexec.run_log where run_id = $1 and seq = 2`
		if got := query[string](b, code, id); !strings.HasPrefix(got, tc.code) || len(got) > 200 {
			t.Errorf("%s: code %.60q", name, got)
		}
		b.checkLog(id)
		r.drain()
	}
	for _, err := range []error{pgexec.Permanent(nil), pgexec.WithCode(nil, "x"), pgexec.RetryAfter(nil, time.Second)} {
		if err != nil {
			t.Errorf("a mark makes an error of none: %#v", err)
		}
	}
}

// A child run that the database will never take fails its node, and is not tried for ever.
func TestRun_ChildThatCanNeverBe(t *testing.T) {
	b := setup(t)
	b.replica(spawning())
	run := b.wait(b.startNode("run", `{"kind": "`+strings.Repeat("k", 200)+`"}`))
	if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "kind has 200 bytes, must have at most 128") {
		t.Errorf("run is %s: %s", run.Status, run.Error)
	}
}

// A log with a record that is none is not replayed: the run is paused, and says where.
func TestRun_LogThatCannotBeDecodedIsPaused(t *testing.T) {
	b := setup(t)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "root", func(context.Context, *pgexec.Node, none) (int, error) { return 1, nil }, nil)
	id := b.start("root", nil)
	if _, err := b.pool.Exec(b.ctx, `insert into pgexec.run_log (run_id, seq, record) values ($1, 1, '\xff')`, id); err != nil {
		t.Fatal(err)
	}
	b.replica(kinds)
	b.eventually(`select status = 'paused' and reason like '%decode record 1 of run%' from pgexec.runs where run_id = $1`, id)
}
