package agent

import (
	"fmt"
	"strings"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// past is a turn that is done: what was said before it, the model's answer, and
// what its calls gave. A conversation is a function of pasts alone, and those
// are a function of the log, so that it is the same on every replica (C51).
type past struct {
	number int
	turn   turnOutput
	// before is what users said since the turn before.
	before []llm.Message
	calls  []llm.Call
	// results has one for each call, in their order (C46).
	results []llm.Message
	// summary, of a compaction after this turn, replaces what came before the turn it keeps first.
	summary *compactOutput
}

// opening is what a conversation begins with.
type opening struct {
	// history is what a former run's conversation was, if this one continues it.
	history []llm.Message
	// prompt is what this run was asked; it ends with a user's message.
	prompt []llm.Message
}

func (o *opening) messages() []llm.Message {
	return append(o.history[:len(o.history):len(o.history)], o.prompt...)
}

// conversation is what a model is sent after these turns: each one only adds to
// the end of it, but for a compaction.
func conversation(o *opening, pasts []past) []llm.Message {
	summary := lastSummary(pasts)
	var messages []llm.Message
	if summary == nil {
		messages = o.messages()
	} else {
		messages = []llm.Message{o.summarised(summary.Summary)}
	}
	for i := range pasts {
		if summary == nil || pasts[i].number >= summary.FirstKept {
			messages = append(messages, pasts[i].messages()...)
		}
	}
	return messages
}

// replaced is what a summary that keeps the turns from first on would take out of the conversation after these turns.
func replaced(o *opening, pasts []past, first int) []llm.Message {
	var messages []llm.Message
	summary := lastSummary(pasts)
	if summary == nil {
		messages = o.messages()
	}
	for i := range pasts {
		if n := pasts[i].number; n < first && (summary == nil || n >= summary.FirstKept) {
			messages = append(messages, pasts[i].messages()...)
		}
	}
	return messages
}

// lastSummary is the newest one, nil without any.
func lastSummary(pasts []past) *compactOutput {
	for i := len(pasts) - 1; i >= 0; i-- {
		if s := pasts[i].summary; s != nil {
			return s
		}
	}
	return nil
}

// messages is what a turn adds to the conversation. A turn without a message
// adds nothing of its own: the model did not answer, or was not asked.
func (p *past) messages() []llm.Message {
	messages := p.before
	if p.turn.Message == nil {
		return messages
	}
	messages = messages[:len(messages):len(messages)]
	if p.turn.Note != "" {
		messages = append(messages, userText(p.turn.Note))
	}
	messages = append(messages, llm.Message{Role: llm.RoleAssistant, Raw: p.turn.Message})
	return append(messages, p.results...)
}

func userText(text string) llm.Message {
	return llm.Message{Role: llm.RoleUser, Parts: []llm.Part{{Text: text}}}
}

// maxPromptTokens bounds the prompt that stays in front of a summary.
const maxPromptTokens = 8000

// summarised is the one message that stands for what a summary replaces. The
// prompt itself stays in it, unless it is long.
func (o *opening) summarised(summary string) llm.Message {
	m := llm.Message{Role: llm.RoleUser}
	for i := range o.prompt {
		first := o.prompt[i : i+1]
		if first[0].Role == llm.RoleUser && llm.EstimateTokens(&llm.Request{Messages: first}) <= maxPromptTokens {
			m.Parts = append(m.Parts, first[0].Parts...)
			break
		}
	}
	m.Parts = append(m.Parts, llm.Part{Text: "[What came next is summarised here, since it was too long to keep.]\n\n" + summary})
	return m
}

// keepFrom is the number of the first turn that a compaction after these turns
// leaves as it is, so that at most keep turns are, and beside the last one no more than have room tokens
// altogether; one turn at least is summarised.
func keepFrom(pasts []past, keep int, room int64) int {
	first := 0
	if s := lastSummary(pasts); s != nil {
		first = s.FirstKept
	}
	var answered []*past
	for i := range pasts {
		if p := &pasts[i]; p.number >= first && p.turn.Message != nil {
			answered = append(answered, p)
		}
	}
	from := pasts[len(pasts)-1].number + 1
	for kept := 0; kept < min(keep, len(answered)-1); kept++ {
		p := answered[len(answered)-1-kept]
		if room -= llm.EstimateTokens(&llm.Request{Messages: p.messages()}); room < 0 && kept > 0 {
			break
		}
		from = p.number
	}
	return from
}

// transcript tells, within about so many bytes, what a compaction is to summarise: everything before turn first.
func transcript(o *opening, pasts []past, first int, limit int) string {
	entries := transcriptEntries(o, pasts, first)
	for each := limit; ; each /= 2 {
		var b strings.Builder
		for _, e := range entries {
			fmt.Fprintf(&b, "## %s\n%s\n\n", e.who, clip(e.text, each))
		}
		if b.Len() <= limit || each < minEntry {
			return clip(b.String(), limit)
		}
	}
}

// minEntry bounds, in bytes, how far one entry of a transcript is cut for the others.
const minEntry = 200

type entry struct{ who, text string }

func transcriptEntries(o *opening, pasts []past, first int) []entry {
	var entries []entry
	summary, from := lastSummary(pasts), 0
	if summary != nil {
		from = summary.FirstKept
		entries = append(entries, entry{"Summary of what came before", summary.Summary})
	} else {
		for _, m := range o.messages() {
			entries = append(entries, entryOf(&m))
		}
	}
	for i := range pasts {
		p := &pasts[i]
		if p.number < from || p.number >= first {
			continue
		}
		for _, m := range p.before {
			entries = append(entries, entryOf(&m))
		}
		if p.turn.Message != nil {
			entries = append(entries, entry{"Assistant", p.spoken()})
		}
		for j := range p.results {
			entries = append(entries, entry{"Result of " + p.calls[j].Name, textOf(p.results[j].Parts)})
		}
	}
	return entries
}

// spoken is what the assistant said and called.
func (p *past) spoken() string {
	var b strings.Builder
	b.WriteString(p.turn.text)
	for _, c := range p.calls {
		fmt.Fprintf(&b, "\n[calls %s with %s]", c.Name, c.Args)
	}
	return strings.TrimSpace(b.String())
}

func entryOf(m *llm.Message) entry {
	switch m.Role {
	case llm.RoleAssistant:
		return entry{"Assistant", string(m.Raw)}
	case llm.RoleTool:
		return entry{"Result of " + m.Name, textOf(m.Parts)}
	default:
		return entry{"User", textOf(m.Parts)}
	}
}

func textOf(parts []llm.Part) string {
	var texts []string
	for _, p := range parts {
		if p.Image != nil {
			texts = append(texts, "[an image]")
		} else {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// clip leaves out the middle of a text that is longer than limit bytes.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head, tail := text[:limit*2/3], text[len(text)-limit/3:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[… %d bytes are left out …]\n", len(text)-limit) + strings.ToValidUTF8(tail, "")
}
