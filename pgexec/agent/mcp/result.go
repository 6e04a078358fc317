package mcp

import (
	"encoding/json"
	"fmt"
)

// PartType says what a [Part] is.
type PartType string

// Types of parts.
const (
	Text  PartType = "text"
	Image PartType = "image"
	// Other is audio, a resource or a link to one, or what a later version of the protocol has.
	Other PartType = "other"
)

// Part is one piece of a result's content.
type Part struct {
	Type PartType
	// Text is set for Text.
	Text string
	// MediaType and Data are set for Image; the data is decoded.
	MediaType string
	Data      []byte
	// Raw is the part as the server sent it.
	Raw json.RawMessage
}

// Result is what a tool returned.
type Result struct {
	Parts []Part
	// Structured is a JSON value as the server sent it, or nil.
	Structured json.RawMessage
	// IsError says that the tool failed, and Parts why: something for the model to read.
	IsError bool
	// Needs says that the tool has not run to its end, because it needs input.
	Needs *InputNeeded
}

// InputNeeded is what a server wants to know before it completes a call. It can
// be kept for any time and answered on any replica with [Pool.Call].
type InputNeeded struct {
	// Requests is an object of {"method": …, "params": …} by the server's own keys.
	// A method is "elicitation/create" as a rule: params then hold a "message" for a
	// person, and a "requestedSchema" of the answer or a "url" to be visited.
	Requests json.RawMessage
	// State is the server's, to be returned as it is.
	State string
}

// Answer continues a call that needed input.
type Answer struct {
	// State is that of [InputNeeded].
	State string
	// Responses is an object of results by the keys of the requests. That of an
	// elicitation is {"action": "accept", "content": {…}}, or an action "decline" or "cancel".
	Responses json.RawMessage
}

// resultInputRequired is the resultType of a result that asks for input.
const resultInputRequired = "input_required"

// parseResult reads the result of tools/call as the server wrote it.
func parseResult(raw json.RawMessage) (*Result, error) {
	var wire struct {
		Content       []json.RawMessage          `json:"content"`
		Structured    json.RawMessage            `json:"structuredContent"`
		IsError       bool                       `json:"isError"`
		ResultType    string                     `json:"resultType"`
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
		RequestState  string                     `json:"requestState"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, fmt.Errorf("the result is not one of a tool: %w", err)
	}
	if wire.ResultType == resultInputRequired || len(wire.InputRequests) > 0 {
		return needs(wire.InputRequests, wire.RequestState)
	}
	res := &Result{Structured: wire.Structured, IsError: wire.IsError}
	for _, part := range wire.Content {
		res.Parts = append(res.Parts, ParsePart(part))
	}
	return res, nil
}

// ParsePart reads a piece of content, [Part.Raw].
func ParsePart(raw json.RawMessage) Part {
	var wire struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Data     []byte `json:"data"`
		MimeType string `json:"mimeType"`
	}
	err := json.Unmarshal(raw, &wire)
	switch {
	case err == nil && wire.Type == "text":
		return Part{Type: Text, Text: wire.Text, Raw: raw}
	case err == nil && wire.Type == "image":
		return Part{Type: Image, MediaType: wire.MimeType, Data: wire.Data, Raw: raw}
	default:
		return Part{Type: Other, Raw: raw}
	}
}

func needs(requests map[string]json.RawMessage, state string) (*Result, error) {
	n := &InputNeeded{State: state}
	if len(requests) > 0 {
		raw, err := json.Marshal(requests)
		if err != nil {
			return nil, fmt.Errorf("write the requests for input: %w", err)
		}
		n.Requests = raw
	}
	return &Result{Needs: n}, nil
}

// urlElicitation reads error -32042 of protocol 2025-11-25: the server waits until
// a person has visited its URLs, and wants the same call again.
func (e *RPCError) urlElicitation() (*Result, error) {
	var data struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil || len(data.Elicitations) == 0 {
		return nil, e
	}
	requests := map[string]json.RawMessage{}
	for i, params := range data.Elicitations {
		requests[fmt.Sprintf("url-%d", i+1)] = fmt.Appendf(nil, `{"method":"elicitation/create","params":%s}`, params)
	}
	return needs(requests, "")
}
