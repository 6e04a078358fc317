package agent

import (
	"context"

	"github.com/pgexec/runtime/pgexec"
)

// handleAnswer makes the run's result of its last turn.
func (a *Agents) handleAnswer(ctx context.Context, n *pgexec.Node, in numberInput) (*answerOutput, error) {
	s, err := look(ctx, n, in.Turn)
	if err != nil {
		return nil, err
	}
	last := s.past[len(s.past)-1].turn
	out := &answerOutput{Text: last.text, Stop: last.Stop, Refusal: last.Refusal}
	out.Turns, out.Calls = s.made()
	n.Final()
	return out, nil
}
