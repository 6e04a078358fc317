package agent

import (
	"context"

	"github.com/pgexec/runtime/pgexec"
)

// handleAnswer makes the run's result of the last turn in which the model answered.
func (a *Agents) handleAnswer(ctx context.Context, n *pgexec.Node, in numberInput) (*answerOutput, error) {
	s, err := a.look(ctx, n, in.Turn)
	if err != nil {
		return nil, err
	}
	out := new(answerOutput)
	if last := s.lastAnswered(); last != nil {
		out.Text, out.Stop, out.Refusal = last.turn.text, last.turn.Stop, last.turn.Refusal
	}
	out.Turns, out.Calls = s.made()
	n.Final()
	return out, nil
}
