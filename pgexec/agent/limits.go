package agent

import (
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// meter is one limit of a run and how much of it is used.
type meter struct {
	name string
	// used and most are for comparing, say is how they are told; most of 0 is no limit.
	used, most float64
	say        func(v float64) string
}

// meters are all limits of a run as of now.
type meters []meter

// use is what the run's own node adds to what its budget says, which is that of its start.
type use struct {
	usage    llm.Usage
	costNano int64
	nodes    int64
	took     time.Duration
}

// meters are the limits that keep a turn from having tools.
func (t *turn) meters() meters {
	turns, calls := t.made()
	for i := range t.past {
		if t.past[i].turn.Last != "" {
			turns-- // a turn that only ends the work comes on top: one more turn is one with tools
		}
	}
	return append(meters{
		{"max_turns", float64(turns), float64(t.row.MaxTurns), plain},
		{"max_tool_calls", float64(calls), float64(t.row.MaxToolCalls), plain},
	}, t.costs(use{})...)
}

// costs are the limits that keep calls from being made, this turn's own use
// added to what was used when it began. The calls of the last turn that may have
// any are made: what comes next is an answer that knows their results.
func (t *turn) costs(more use) meters {
	b := &t.budget
	tokens := b.Spent.InputTokens + b.Spent.OutputTokens + more.usage.Input + more.usage.Output
	m := meters{
		{"max_tokens", float64(tokens), float64(b.MaxTokens), plain},
		{"max_cost_usd", float64(b.Spent.CostNanoUSD + more.costNano), float64(b.MaxCostNanoUSD), usd},
		{"max_nodes", float64(b.Nodes + more.nodes), float64(b.MaxNodes), plain},
		{"max_wall", float64(b.Active + more.took), float64(b.MaxActive), span},
	}
	if t.row.deadline != nil {
		m = append(m, meter{"deadline", *t.row.seconds * float64(time.Second), *t.row.deadline * float64(time.Second), span})
	}
	return m
}

func plain(v float64) string { return fmt.Sprintf("%.0f", v) }
func usd(v float64) string   { return "$" + decimal(int64(v)) }
func span(v float64) string  { return time.Duration(v).Round(time.Second).String() }

// reached names the first limit that is used up, "" if none is.
func (m meters) reached() string {
	for _, l := range m {
		if l.most > 0 && l.used >= l.most {
			return fmt.Sprintf("limit %s reached: %s of %s", l.name, l.say(l.used), l.say(l.most))
		}
	}
	return ""
}

// near tells of the first limit that is used up to the soft one, "" if none is.
func (m meters) near(soft float64) string {
	for _, l := range m {
		if l.most > 0 && l.used >= soft*l.most {
			return fmt.Sprintf("%s of %s (%s)", l.say(l.used), l.say(l.most), l.name)
		}
	}
	return ""
}

// What the runtime tells the model. A note is recorded with the turn that got
// it, so that these words may change without a change to any old conversation.
func nearNote(what string) string {
	return "[Note of the runtime: " + what + " of what this run may use is used. Finish the task soon, with the most important steps only.]"
}

func lastNote(limit string) string {
	return "[Note of the runtime: " + limit + ". No tool can be called now. Give the best answer that you can give with what you know, and say what is not done.]"
}

const raisedNote = "[Note of the runtime: the limit was raised, and tools can be called again. Go on with the task.]"
