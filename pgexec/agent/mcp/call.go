package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxEmptyRounds is how often in a row a server may ask for another call and nothing else.
const maxEmptyRounds = 3

// call is one tool call, through as many requests as it takes.
type call struct {
	tool   string
	args   json.RawMessage
	answer *Answer
	// list says that the session must have seen the tools first: some servers want
	// arguments in headers, which the SDK takes from a tool's schema.
	list bool
}

// Call runs a tool with args, a JSON object or nothing, and returns what it returned. With
// answer it goes on with a call that needed input; tool and args are the same then.
//
// It takes as long as the tool does: ctx bounds it, and its cause is returned.
// Errors are *[Error]. A failure of the tool is a Result with IsError.
func (p *Pool) Call(ctx context.Context, server Server, tool string, args json.RawMessage, answer *Answer) (*Result, error) {
	res, err := p.call(ctx, server, &call{tool: tool, args: args, answer: answer})
	if err != nil {
		err.Tool = tool
		return nil, err
	}
	return res, nil
}

func (p *Pool) call(ctx context.Context, server Server, c *call) (*Result, *Error) {
	server, err := p.resolve(server)
	if err != nil {
		return nil, &Error{Server: server.Name, Permanent: true, Err: err}
	}
	ctx, done := p.bound(ctx)
	defer done()
	repeated := false
	for rounds := 0; ; {
		res, err := p.attempt(ctx, server, c)
		switch {
		case err == nil && (res.Needs == nil || res.Needs.Requests != nil):
			return res, nil
		case err == nil:
			if rounds++; rounds > maxEmptyRounds {
				return nil, &Error{Server: server.Name, Err: errBusy}
			}
			c.answer = &Answer{State: res.Needs.State}
		case !repeated && !err.MayHaveRun && err.lost && ctx.Err() == nil:
			repeated = true
		case !c.list && err.isCode(sdk.CodeHeaderMismatch):
			c.list = true
		default:
			return nil, err
		}
	}
}

// bound returns a context that ends with the pool too.
func (p *Pool) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })
	return ctx, func() {
		stop()
		// What is left of the response is read a little longer, so that its connection can be used again.
		time.AfterFunc(p.limits.grace, func() { cancel(nil) })
	}
}

// attempt makes one request for the call.
func (p *Pool) attempt(ctx context.Context, server Server, c *call) (*Result, *Error) {
	s, err := p.acquire(ctx, server)
	if err != nil {
		return nil, err
	}
	res, err := s.try(ctx, c)
	p.explain(s, err)
	p.release(s, err == nil || err.keepsSession())
	return res, err
}

// try makes the request on a session.
func (s *session) try(ctx context.Context, c *call) (*Result, *Error) {
	params, err := c.params(s.modern())
	if err != nil {
		return nil, &Error{Server: s.server.Name, Permanent: true, Err: err}
	}
	if c.list {
		if _, err := s.tools(ctx); err != nil {
			err.MayHaveRun = false
			return nil, err
		}
	}
	inner, t := newTrip(ctx)
	_, err = s.cs.CallTool(inner, params)
	t.end()
	if t.result != nil {
		return s.result(t.result)
	}
	t.abort()
	if t.rpc != nil && t.rpc.Code == sdk.CodeURLElicitationRequired {
		if res, err := t.rpc.urlElicitation(); err == nil {
			return res, nil
		}
	}
	if cause := context.Cause(ctx); cause != nil && t.fault == nil {
		return nil, &Error{Server: s.server.Name, MayHaveRun: t.sent, Err: cause}
	}
	if err == nil {
		err = errors.New("an answer that is none")
	}
	return nil, s.failure(t, err)
}

// result is what the server returned, or an error if that makes no sense.
func (s *session) result(raw json.RawMessage) (*Result, *Error) {
	res, err := parseResult(raw)
	if err != nil {
		return nil, &Error{Server: s.server.Name, Permanent: true, MayHaveRun: true, Err: s.plain(err)}
	}
	return res, nil
}

// params are those of tools/call. A server of an older protocol keeps no call
// open: it is asked anew, and has heard of its person's answer in another way.
func (c *call) params(modern bool) (*sdk.CallToolParams, error) {
	params := &sdk.CallToolParams{Name: c.tool}
	if args := bytes.TrimSpace(c.args); len(args) > 0 {
		if args[0] != '{' || !json.Valid(args) {
			return nil, fmt.Errorf("arguments: %s is not a JSON object", clip(string(args)))
		}
		params.Arguments = c.args
	}
	if c.answer == nil || !modern {
		return params, nil
	}
	params.RequestState = c.answer.State
	if len(c.answer.Responses) == 0 {
		return params, nil
	}
	if err := json.Unmarshal(c.answer.Responses, &params.InputResponses); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return params, nil
}
