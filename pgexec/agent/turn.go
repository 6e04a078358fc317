package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/tool"
	"github.com/pgexec/runtime/pgexec/kinds"
)

// numberInput is the input of turns and compactions.
type numberInput struct {
	Turn int `json:"turn"`
}

// turn is one attempt of a node of kind turn.
type turn struct {
	*scene
	number  int
	row     *ledger
	budget  pgexec.Budget
	started time.Time
	// limit names the limit that was reached when the turn began, "" if none was.
	limit string
	// note and told are what this turn's request ends with.
	note string
	told bool
}

// handleTurn asks the model once and spawns what its answer calls for.
func (a *Agents) handleTurn(ctx context.Context, n *pgexec.Node, in numberInput) (json.RawMessage, error) {
	t, err := a.newTurn(ctx, n, in.Turn)
	if err != nil {
		return nil, err
	}
	switch {
	case t.ended:
		t.spawnAnswer()
		return (&turnOutput{Ended: true}).encode()
	case t.limit != "" && t.pausedBefore():
		return t.pauseAgain()
	}
	if open, err := t.openCalls(); err != nil || len(open) > 0 {
		return t.waitFor(open, err)
	}
	client, err := a.client(t.def)
	if err != nil {
		return nil, err
	}
	req := t.request()
	answer, err := client.Do(ctx, req, nil)
	var fault *llm.Error
	if errors.As(err, &fault) && fault.Kind == llm.ToolUseFailed {
		if failed := client.FailedTurn(req, fault); failed != nil {
			return a.record(ctx, t, failed, failed.Calls[0].Fault)
		}
	}
	switch {
	case err == nil:
		return a.record(ctx, t, answer, "")
	case fault != nil && fault.Kind == llm.ContextOverflow && !t.compactedBefore():
		return t.overflow(fault.Error(), spent{})
	default:
		return nil, modelError(ctx, err)
	}
}

func (a *Agents) newTurn(ctx context.Context, n *pgexec.Node, number int) (*turn, error) {
	t := &turn{number: number, budget: n.Budget(), started: time.Now()}
	var err error
	if t.scene, err = a.look(ctx, n, number-1); err != nil {
		return nil, err
	}
	if t.row, err = a.readLedger(ctx, n.RunID(), t.def, &llm.Usage{}); err != nil {
		return nil, err
	}
	t.limit = t.budget.LimitReached
	if t.limit == "" {
		t.limit = t.meters().reached()
	}
	t.takeNote()
	return t, nil
}

// made counts the turns in which the model answered, and the calls that were made of them.
func (s *scene) made() (turns, calls int) {
	for i := range s.past {
		p := &s.past[i]
		if p.turn.Message == nil {
			continue
		}
		turns++
		calls += p.made()
	}
	return turns, calls
}

// made counts the calls of a turn that were not held.
func (p *past) made() int {
	if p.turn.Held != "" {
		return p.turn.HeldFrom
	}
	return len(p.calls)
}

// takeNote decides what the runtime tells the model in this turn.
func (t *turn) takeNote() {
	last := t.lastAnswered()
	switch near := t.meters().near(t.row.SoftLimit); {
	case t.limit != "":
		t.note = lastNote(t.limit)
	case last != nil && last.turn.Last != "":
		t.note = raisedNote
	case near != "" && !t.toldBefore():
		t.note, t.told = nearNote(near), true
	}
}

// lastAnswered is the last turn in which the model answered, nil without any.
func (s *scene) lastAnswered() *past {
	for i := len(s.past) - 1; i >= 0; i-- {
		if s.past[i].turn.Message != nil {
			return &s.past[i]
		}
	}
	return nil
}

// toldBefore reports whether the model knows that a limit is near, since a limit was raised last.
func (s *scene) toldBefore() bool {
	for i := len(s.past) - 1; i >= 0 && s.past[i].turn.Last == ""; i-- {
		if s.past[i].turn.Told {
			return true
		}
	}
	return false
}

// pausedBefore reports whether the run was paused before this turn, for a limit.
func (t *turn) pausedBefore() bool {
	if len(t.past) == 0 {
		return false
	}
	last := t.past[len(t.past)-1].turn
	return last.Last != "" || last.Paused != ""
}

// compactedBefore reports whether the conversation was just made shorter, or could not be.
func (t *turn) compactedBefore() bool {
	return t.nodes[compactID(t.number-1)] != nil
}

// pauseAgain is the turn of a run that was resumed although its limit is still reached.
func (t *turn) pauseAgain() (json.RawMessage, error) {
	t.n.Pause(t.limit)
	t.spawnTurn(nil)
	return (&turnOutput{Paused: t.limit}).encode()
}

// openCalls are the nodes in which calls go on that needed a person's input (see [tool.Open]).
func (t *turn) openCalls() ([]pgexec.NodeRef, error) {
	last := t.lastAnswered()
	if last == nil {
		return nil, nil
	}
	return tool.Open(t.nodes, last.number, last.made())
}

// waitFor leaves it to the next turn to ask.
func (t *turn) waitFor(open []pgexec.NodeRef, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	t.spawnTurn(open)
	return (&turnOutput{Waiting: true}).encode()
}

// request is what the model is asked in this turn.
func (t *turn) request() *llm.Request {
	r := t.baseRequest()
	r.System, r.Messages = t.def.System, append(conversation(&t.open, t.past), t.heard...)
	if t.note != "" {
		r.Messages = append(r.Messages, userText(t.note))
	}
	r.Tools = tool.LLM(t.tools)
	r.ParallelCalls = t.def.ParallelToolCalls
	if t.limit != "" && len(r.Tools) > 0 {
		r.ToolChoice = llm.ChoiceNone // not without tools: the provider's cache holds
	}
	return r
}

// record makes the record of a turn in which the model answered, and what comes
// after it. refused is what the provider said to calls that it did not take.
func (a *Agents) record(ctx context.Context, t *turn, answer *llm.Turn, refused string) (json.RawMessage, error) {
	cost, row, err := a.count(ctx, t.n, t.def, answer)
	if err != nil {
		return nil, err
	}
	t.row = row // a limit may have been raised meanwhile
	if answer.Stop == llm.StopContextWindow && !t.compactedBefore() {
		return t.overflow("the answer was cut off by the model's context window", cost)
	}
	out := &turnOutput{
		Message: answer.Message, Stop: answer.Stop, Refusal: answer.Refusal, spent: cost, Refused: refused,
		Note: t.note, Told: t.told, Last: t.limit,
	}
	t.follow(out, answer)
	return out.encode()
}

// overflow records that the conversation was too long, and has it made shorter.
func (t *turn) overflow(words string, cost spent) (json.RawMessage, error) {
	compact := t.spawnCompact(nil)
	t.spawnTurn([]pgexec.NodeRef{compact})
	return (&turnOutput{Overflow: words, spent: cost}).encode()
}

// modelError is how a turn that got no answer fails: for good, after the time
// that the provider asks for, or to be tried again by the policy (C49).
func modelError(ctx context.Context, err error) error {
	var fault *llm.Error
	switch {
	case errors.As(err, &fault):
	case ctx.Err() != nil:
		return err
	default: // nothing was sent
		return pgexec.Permanent(pgexec.WithCode(err, "bad_request"))
	}
	err = pgexec.WithCode(err, string(fault.Kind))
	switch {
	case fault.Kind == llm.ToolUseFailed:
		return err // the provider does not show the call: another attempt may make a better one
	case fault.Permanent() || errors.Is(err, kinds.ErrAddressRefused):
		return pgexec.Permanent(err)
	case fault.RetryAfter > 0:
		return pgexec.RetryAfter(err, fault.RetryAfter)
	default:
		return err
	}
}
