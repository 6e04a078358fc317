package llm

import "encoding/json"

// Call is one tool call of a turn.
type Call struct {
	// ID is unique in the conversation: where the provider gave none, or one that
	// was used before, Turn.Message has the same minted one.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Args is a JSON object, nil if there is a Fault.
	Args json.RawMessage `json:"args,omitempty"`
	// Fault says why the call cannot be executed: its arguments are malformed, cut
	// off or no object, or the provider refused it. It is written for the model:
	// the call still needs a result, and this is it.
	Fault string `json:"fault,omitempty"`
}

// Stop is why a turn ended.
type Stop string

// The reasons for a turn's end.
const (
	StopEnd           Stop = "end"            // the model has nothing to add
	StopToolCalls     Stop = "tool_calls"     // it waits for results
	StopMaxTokens     Stop = "max_tokens"     // cut off by MaxTokens; a call it cut has a Fault
	StopRefusal       Stop = "refusal"        // Turn.Refusal says why
	StopPause         Stop = "pause_turn"     // no end: send the message back and go on
	StopContentFilter Stop = "content_filter" // cut off by the provider
	StopContextWindow Stop = "context_window" // cut off by the model's window
)

// Usage counts tokens the same way for all providers.
type Usage struct {
	Input      int64 `json:"input"`       // all of the request, cached or not
	CachedRead int64 `json:"cached_read"` // the part of Input read from the cache
	CacheWrite int64 `json:"cache_write"` // the part of Input written to the cache
	Output     int64 `json:"output"`      // all of the answer, reasoning included
	Reasoning  int64 `json:"reasoning"`   // the part of Output that was reasoning
	// Estimated is set where the provider did not say and Input and Output were
	// estimated from the number of bytes.
	Estimated bool `json:"estimated,omitempty"`
}

// maxTokens is more than any turn can have.
const maxTokens = 1 << 40

// known reports whether the provider said how much it was, and a number that it can
// be: what came of a turn is not to be lost over a wrong count.
func (u *Usage) known() bool {
	for _, n := range []int64{u.Input, u.CachedRead, u.CacheWrite, u.Output, u.Reasoning} {
		if n < 0 || n > maxTokens {
			return false
		}
	}
	return u.Input+u.Output > 0
}

// Turn is the model's complete answer.
type Turn struct {
	// Message is the assistant message in the provider's format, for
	// Message.Raw of later requests. What the model said in it, reasoning and
	// signatures included, is kept byte for byte. Record it as bytes: json.Marshal
	// writes it anew, other escapes and blanks included.
	Message json.RawMessage
	Text    string
	Calls   []Call // in the order of Message
	Stop    Stop
	Refusal string // why the model or the provider refused, as far as it is said

	Usage     Usage
	Model     string // as the provider names it
	RequestID string // the provider's, for its support
}

// Delta is a piece of a turn that is still being streamed, to show to somebody.
// A later attempt of the turn starts from nothing.
type Delta struct {
	Text     string
	Thinking string
	Call     string // the name of a tool that is being called
}
