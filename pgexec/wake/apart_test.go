package wake

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// What is small comes with all else that has reached a run; the rest is read by itself, so that no answer grows with it (C22).
func TestReadApart_WhatIsNotSmall_C22(t *testing.T) {
	b := setup(t)
	id := b.ownMany(1)[0]
	b.own(id)
	b.exec(`select pgexec.declare_kind('t')`)
	long := `"` + strings.Repeat("x", 100_000) + `"`
	digits := `[` + strings.TrimSuffix(strings.Repeat("1e100000, ", 20), ", ") + `]` // few bytes in a table
	b.exec(`update pgexec.runs set input = $2::jsonb where run_id = $1`, id, long)
	for _, payload := range []string{`{"n": 1}`, long, digits} {
		b.exec(`select pgexec.signal($1, 'a', $2::text::jsonb)`, id, payload)
	}
	in := b.read(id, nil)
	if len(in.Signals) != 3 || string(in.Signals[0].Payload) != `{"n": 1}` || in.Signals[1].Payload != nil || in.Signals[2].Payload != nil {
		t.Fatalf("the inbox has %.1000v", fmt.Sprint(in.Signals))
	}
	if got, err := ReadSignal(t.Context(), b.pool, in.Signals[1].ID); err != nil || string(got) != long {
		t.Errorf("read a payload of %d bytes, %v", len(got), err)
	}
	if got, err := ReadSignal(t.Context(), b.pool, in.Signals[2].ID); err != nil || len(got) < 2_000_000 {
		t.Errorf("read a payload of %d bytes, %v", len(got), err)
	}
	if got, err := ReadInput(t.Context(), b.pool, id); err != nil || string(got) != long {
		t.Errorf("read an input of %d bytes, %v", len(got), err)
	}
	exact := ` [ "\u0000", ` + long + `]`
	b.startTasks(tasksOf(id, "small", "large"), false)
	b.exec(`select pgexec.complete(t.task_id, 'w', case t.node_id when 'large' then $1::json else '1' end) from pgexec.take('t', 'w', max_tasks => 2) t`, exact)
	ends, err := ReadTaskEnds(t.Context(), b.pool, Logged{RunID: id})
	if err != nil || len(ends) != 2 {
		t.Fatal(ends, err)
	}
	for _, end := range ends {
		got, err := ReadTaskOutput(t.Context(), b.pool, end.TaskID)
		switch {
		case err != nil:
			t.Error(err)
		case end.NodeID == "small" && (string(end.Output) != "1" || string(got) != "1"):
			t.Errorf("the small output is %s, read by itself %s", end.Output, got)
		case end.NodeID == "large" && (end.Output != nil || string(got) != exact):
			t.Errorf("the large output has %d bytes, read by itself %d", len(end.Output), len(got))
		}
	}
}

// What somebody has deleted meanwhile is said to be gone, and not looked for again.
func TestReadApart_Gone(t *testing.T) {
	b := setup(t)
	_, signal := ReadSignal(t.Context(), b.pool, 1)
	_, task := ReadTaskOutput(t.Context(), b.pool, 1)
	_, input := ReadInput(t.Context(), b.pool, runlog.RunID{1})
	if !errors.Is(signal, ErrGone) || !errors.Is(task, ErrGone) || !errors.Is(input, ErrNoRun) {
		t.Errorf("%v; %v; %v", signal, task, input)
	}
}
