package llm

import "encoding/json"

// FailedTurn makes a turn of one that the provider refused because of how the
// model called a tool (ToolUseFailed), so that the conversation can go on: the
// call has a Fault that says what the provider said, and its result tells the
// model. It is nil if the provider does not show the call: then there is nothing
// to answer, and asking again is all that is left.
//
// The provider charges for such a turn and does not say how much: its usage is
// estimated.
func (c *Client) FailedTurn(r *Request, e *Error) *Turn {
	f, err := formatOf(c.config.Provider)
	refused := refusedCalls(e.Generation)
	if err != nil || e.Kind != ToolUseFailed || len(refused) == 0 {
		return nil
	}
	ids := newMinter(r.Messages)
	for i := range refused {
		refused[i].ID = ids.id("")
	}
	t := &Turn{
		Message:   f.assistant("", refused),
		Calls:     refused,
		Stop:      StopToolCalls,
		Model:     c.config.Model,
		RequestID: e.RequestID,
		Usage:     Usage{Input: EstimateTokens(r), Output: bytesToTokens(len(e.Generation)), Estimated: true},
	}
	for i := range t.Calls {
		t.Calls[i].Args, t.Calls[i].Fault = nil, "the provider refused this call: "+e.Message+"; call again"
	}
	return t
}

// refusedCalls reads what the model wrote: a call, or a list of them.
func refusedCalls(generation string) []Call {
	type written struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"` // some models' word for it
	}
	var list []written
	if json.Unmarshal([]byte(generation), &list) != nil {
		list = make([]written, 1)
		if json.Unmarshal([]byte(generation), &list[0]) != nil {
			return nil
		}
	}
	var calls []Call
	for _, w := range list {
		if w.Name == "" {
			return nil
		}
		if w.Arguments == nil {
			w.Arguments = w.Parameters
		}
		text := string(w.Arguments)
		if s := ""; json.Unmarshal(w.Arguments, &s) == nil { // a text that is JSON
			text = s
		}
		calls = append(calls, Call{Name: sendableName(w.Name), Args: sendableArgs(text, false)})
	}
	return calls
}
