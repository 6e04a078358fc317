package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/tool"
)

const (
	// bytesPerToken is a cautious guess at how much text fits into a window.
	bytesPerToken = 3
	// minTranscript is the shortest transcript, in bytes, that is tried when longer ones do not fit.
	minTranscript = 4 << 10
	// minGain is how small a part of the conversation a summary may be worth while for: an eighth.
	minGain = 8
)

const compactSystem = `You summarise the work of an assistant so that it can go on with the summary in the place of the conversation. ` +
	`Keep what the task is and every instruction of the user; what was done and found, with exact names, numbers, paths and identifiers; ` +
	`what failed and why; what was decided; and what is still to be done. Leave out what no longer matters. Answer with the summary only.`

// handleCompact has the model summarise the conversation, but for its last turns.
// What is summarised is told as text: it fits whatever the window is.
func (a *Agents) handleCompact(ctx context.Context, n *pgexec.Node, in numberInput) (*compactOutput, error) {
	s, err := a.look(ctx, n, in.Turn)
	if err != nil {
		return nil, err
	}
	client, err := a.client(s.def)
	if err != nil {
		return nil, err
	}
	keep := s.def.Context.KeepTurns
	if s.past[len(s.past)-1].turn.Overflow != "" {
		keep = 1 // the guess at the window was wrong, or these turns are long
	}
	out := &compactOutput{FirstKept: s.keepFrom(s.past, keep)}
	limit := int(s.def.Context.CompactAt * float64(s.def.Context.Window) * bytesPerToken)
	for {
		answer, err := client.Do(ctx, s.summaryRequest(transcript(&s.open, s.past, out.FirstKept, limit)), nil)
		var fault *llm.Error
		if errors.As(err, &fault) && fault.Kind == llm.ContextOverflow && limit/2 >= minTranscript {
			limit /= 2
			continue
		}
		if err != nil {
			return nil, modelError(ctx, err)
		}
		if out.spent, _, err = a.count(ctx, n, s.def, answer); err != nil {
			return nil, err
		}
		if out.Summary = strings.TrimSpace(answer.Text); out.Summary == "" {
			return nil, errors.New("the model gave no summary")
		}
		return out, nil
	}
}

// size is about how many tokens the conversation after these turns has, with all that a request repeats.
func (s *scene) size(pasts []past) int64 {
	return llm.EstimateTokens(&llm.Request{System: s.def.System, Tools: tool.LLM(s.tools), Messages: conversation(&s.open, pasts)})
}

// keepFrom is the number of the first turn that a compaction after these turns leaves as it is: at most keep turns are
// left, and no more than half of the conversation, or it would soon be too long again.
func (s *scene) keepFrom(pasts []past, keep int) int { return keepFrom(pasts, keep, s.size(pasts)/2) }

// worthCompacting reports whether a summary after these turns would replace enough for the conversation to be clearly shorter. Where
// the prompt, the tools and the last turn alone are too long it would not, and the next turn would ask for one again.
func (s *scene) worthCompacting(pasts []past) bool {
	replaced := replaced(&s.open, pasts, s.keepFrom(pasts, s.def.Context.KeepTurns))
	return minGain*llm.EstimateTokens(&llm.Request{Messages: replaced}) >= s.size(pasts)
}

func (s *scene) summaryRequest(transcript string) *llm.Request {
	r := s.baseRequest()
	r.System = compactSystem
	r.Messages = []llm.Message{userText(transcript + "## Your task\nSummarise all of the above.")}
	return r
}
