package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/tool"
)

// turnOutput is the output of a node of kind turn: what this one turn adds, and nothing else.
type turnOutput struct {
	// Message is the assistant's, byte for byte (C47); none if the model was not
	// asked or gave none, and then Overflow or Paused says why.
	Message json.RawMessage `json:"-"`
	Stop    llm.Stop        `json:"stop,omitempty"`
	Refusal string          `json:"refusal,omitempty"`
	spent
	// Refused is what the provider said to the calls of this turn, which it refused.
	Refused string `json:"refused,omitempty"`
	// Note is what the runtime told the model at the end of the request.
	Note string `json:"note,omitempty"`
	// Told is set where the note says that a limit is near.
	Told bool `json:"told,omitempty"`
	// Last names the limit for which this turn had no tools.
	Last string `json:"last,omitempty"`
	// Held names the limit for which calls from HeldFrom (0 is the first) on were not run.
	Held     string `json:"held,omitempty"`
	HeldFrom int    `json:"held_from,omitempty"`
	// Overflow says how the provider found the conversation too long.
	Overflow string `json:"overflow,omitempty"`
	// Ended is set where a user ended the conversation.
	Ended bool `json:"ended,omitempty"`
	// Waiting is set where calls of an earlier turn go on in nodes that came later: this turn did not ask.
	Waiting bool `json:"waiting,omitempty"`
	// Paused names the limit that is still reached after the run was resumed.
	Paused string `json:"paused,omitempty"`

	text string // of Message
}

// spent is what asking the model cost. CostUSD is a text, or null for an unknown
// one: the model has no price in pgexec.model_prices.
type spent struct {
	Model     string          `json:"model,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	Usage     *llm.Usage      `json:"usage,omitempty"`
	CostUSD   json.RawMessage `json:"cost_usd,omitempty"`
}

// encode writes the message's bytes as they are, which json.Marshal would not.
func (o *turnOutput) encode() (json.RawMessage, error) {
	rest, err := tool.EncodeJSON(o)
	if err != nil || o.Message == nil {
		return rest, err
	}
	if !json.Valid(o.Message) {
		return nil, fmt.Errorf("the model's message is not JSON: %.80q", o.Message)
	}
	var b bytes.Buffer
	b.WriteString(`{"message":`)
	b.Write(o.Message)
	if len(rest) > len("{}") {
		b.WriteByte(',')
	}
	b.Write(rest[1:])
	return b.Bytes(), nil
}

func decodeTurn(raw json.RawMessage) (turnOutput, error) {
	var o turnOutput
	var m struct {
		Message json.RawMessage `json:"message"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return o, err
	}
	err := json.Unmarshal(raw, &m)
	o.Message = m.Message
	return o, err
}

// compactOutput is the output of a node of kind compact.
type compactOutput struct {
	Summary string `json:"summary"`
	// FirstKept is the first turn that the summary does not replace.
	FirstKept int `json:"first_kept"`
	spent
}

// answerOutput is the output of a node of kind answer, and the run's result.
type answerOutput struct {
	Text string   `json:"text"`
	Stop llm.Stop `json:"stop"`
	// Refusal says why the model refused, where it did.
	Refusal string `json:"refusal,omitempty"`
	Turns   int    `json:"turns"`
	Calls   int    `json:"tool_calls"`
}

// decimal writes billionths as a decimal number.
func decimal(nano int64) string {
	text := strconv.FormatFloat(float64(nano)/1e9, 'f', 9, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func trimmed(text string) string { return strings.TrimSpace(text) }
