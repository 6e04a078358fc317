package agent

import (
	"time"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// follow spawns what comes after a turn. Everything that belongs to the loop
// itself starts although a limit is reached, so that it is the turn's handler
// that winds the run down, with a valid conversation; calls of tools do not.
func (t *turn) follow(out *turnOutput, answer *llm.Turn) {
	own := use{usage: answer.Usage, nodes: 1, took: time.Since(t.started)}
	if t.row.costNano != nil {
		own.costNano = *t.row.costNano
	}
	switch limit := t.costs(own).reached(); {
	case t.limit != "":
		t.n.Pause(t.limit)
		out.hold(answer, 0, t.limit)
		if t.def.Interactive && len(answer.Calls) == 0 {
			t.awaitMessage(out)
		} else {
			t.spawnTurn(nil)
		}
	case answer.Stop == llm.StopPause:
		t.spawnTurn(nil)
	case len(answer.Calls) == 0 && t.def.Interactive:
		t.awaitMessage(out)
	case len(answer.Calls) == 0:
		t.spawnAnswer()
	case limit != "":
		out.hold(answer, 0, limit)
		t.spawnTurn(nil)
	default:
		t.goOn(out, answer)
	}
}

// hold notes that calls from one on are not made.
func (o *turnOutput) hold(answer *llm.Turn, from int, limit string) {
	if from < len(answer.Calls) {
		o.Held, o.HeldFrom = limit, from
	}
}

// awaitMessage has the next turn wait for the user's next message. Only when it is
// there is it worth while to summarise a long conversation.
func (t *turn) awaitMessage(out *turnOutput) {
	after := []pgexec.NodeRef{t.n.Spawn(pgexec.KindSignal, pgexec.SignalInput{Name: messageSignal},
		&pgexec.SpawnOpts{ID: messageID(t.number), OwnLimits: true})}
	if t.tooLong(out) {
		after = append(after, t.spawnCompact(after))
	}
	t.spawnTurn(after)
}

// goOn makes the calls of a turn, and the next turn after them.
func (t *turn) goOn(out *turnOutput, answer *llm.Turn) {
	calls := t.spawnCalls(out, answer)
	after := calls
	if t.def.Interactive {
		after = append(after, t.n.Spawn(pgexec.KindSignal,
			pgexec.SignalInput{Name: messageSignal, Timeout: "0s", Default: []byte("null")},
			&pgexec.SpawnOpts{ID: inboxID(t.number), After: t.after(calls), Join: pgexec.AllDone, OwnLimits: true}))
	}
	if t.tooLong(out) {
		after = append(after, t.spawnCompact(calls))
	}
	t.spawnTurn(after)
}

// spawnCalls makes a node of each call that can be made, up to the limits of calls and
// of nodes: a run that stopped between two calls could take no last turn.
func (t *turn) spawnCalls(out *turnOutput, answer *llm.Turn) []pgexec.NodeRef {
	var refs []pgexec.NodeRef
	_, made := t.made()
	for i, call := range answer.Calls {
		limit := meters{
			{"max_tool_calls", float64(made + i), float64(t.row.MaxToolCalls), plain},
			{"max_nodes", float64(t.budget.Nodes + 1 + int64(len(refs))), float64(t.budget.MaxNodes), plain},
		}.reached()
		if limit != "" {
			out.hold(answer, i, limit)
			break
		}
		if ref, ok := t.callsOf(t.number).Spawn(i+1, call); ok {
			refs = append(refs, ref)
		}
	}
	return refs
}

// tooLong reports whether the next request would come near to the model's window, and a summary would help.
func (t *turn) tooLong(out *turnOutput) bool {
	if float64(out.Usage.Input+out.Usage.Output) < t.def.Context.CompactAt*float64(t.def.Context.Window) {
		return false
	}
	return t.worthCompacting(append(t.past[:len(t.past):len(t.past)], past{number: t.number, before: t.heard, turn: *out}))
}

func (t *turn) spawnAnswer() {
	t.n.Spawn(kindAnswer, numberInput{t.number}, &pgexec.SpawnOpts{ID: kindAnswer, OwnLimits: true})
}

// after adds this node to what comes after it, so that it is a parent of all of them.
func (t *turn) after(refs []pgexec.NodeRef) []pgexec.NodeRef {
	return append([]pgexec.NodeRef{t.n.Ref()}, refs...)
}

func (t *turn) spawnTurn(after []pgexec.NodeRef) {
	t.spawn(kindTurn, turnID(t.number+1), t.number+1, after)
}

func (t *turn) spawnCompact(after []pgexec.NodeRef) pgexec.NodeRef {
	return t.spawn(kindCompact, compactID(t.number), t.number, after)
}

// spawn adds a node that asks the model, when everything before it is done.
func (t *turn) spawn(kind string, id pgexec.NodeID, number int, after []pgexec.NodeRef) pgexec.NodeRef {
	return t.n.Spawn(kind, numberInput{number}, &pgexec.SpawnOpts{
		ID: id, After: t.after(after), Join: pgexec.AllDone, OwnLimits: true,
		Retry: pgexec.RetryPolicy{MaxAttempts: t.def.MaxAttempts},
	})
}
