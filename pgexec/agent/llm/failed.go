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
	name, args, ok := refusedCall(e.Generation)
	if e.Kind != ToolUseFailed || !ok {
		return nil
	}
	f, err := formatOf(c.config.Provider)
	if err != nil {
		return nil // New has checked it
	}
	call := Call{ID: newMinter(r.Messages).id(""), Name: name, Args: args}
	t := &Turn{
		Message:   f.assistant("", []Call{call}),
		Stop:      StopToolCalls,
		Model:     c.config.Model,
		RequestID: e.RequestID,
		Usage:     Usage{Input: EstimateTokens(r), Output: bytesToTokens(len(e.Generation)), Estimated: true},
	}
	call.Args, call.Fault = nil, "the provider refused this call: "+e.Message+"; call again"
	t.Calls = []Call{call}
	return t
}

// refusedCall reads what the model wrote.
func refusedCall(generation string) (name string, args json.RawMessage, ok bool) {
	var g struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"` // some models' word for it
	}
	if json.Unmarshal([]byte(generation), &g) != nil || g.Name == "" {
		return "", nil, false
	}
	if g.Arguments == nil {
		g.Arguments = g.Parameters
	}
	text := string(g.Arguments)
	if s := ""; json.Unmarshal(g.Arguments, &s) == nil { // a text that is JSON
		text = s
	}
	return g.Name, sendableArgs(text, false), true
}
