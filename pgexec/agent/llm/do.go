package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// maxAnswer bounds an answer, in bytes. A stream has some 400 of them for each token.
const maxAnswer = 256 << 20

// assembler makes a turn of what arrives.
type assembler interface {
	// event takes one event of a stream, and reports whether it was the last.
	event(ev event, show func(Delta)) (last bool, err error)
	// whole takes an answer that was not streamed, though it was asked to be.
	whole(body []byte, show func(Delta)) error
	// complete reports whether the end marker was seen.
	complete() bool
	turn() (*Turn, error) // the error is an *Error
}

// Do asks the model for one turn. onDelta, which may be nil, is called with
// pieces of it as they arrive, one call at a time.
//
// It makes a single attempt: an *Error says whether another one makes sense, and
// after what time. If ctx ends, its cause is returned as it is. Other errors are
// those of Encode, before anything is sent.
func (c *Client) Do(ctx context.Context, r *Request, onDelta func(Delta)) (*Turn, error) {
	body, err := Encode(c.config.Provider, c.config.Model, r)
	if err != nil {
		return nil, err
	}
	if onDelta == nil {
		onDelta = func(Delta) {}
	}
	w := watch(ctx, &c.config)
	defer w.stop()
	turn, err := c.ask(w, c.newAssembler(r), body, onDelta)
	if err != nil {
		return nil, c.fault(ctx, w, err)
	}
	if err := c.redactor.cleanTurn(c.config.Provider, turn); err != nil {
		return nil, c.fault(ctx, w, err)
	}
	if !turn.Usage.known() {
		turn.Usage = Usage{Input: EstimateTokens(r), Output: bytesToTokens(len(turn.Message)), Estimated: true}
	}
	return turn, nil
}

func (c *Client) newAssembler(r *Request) assembler {
	if c.config.Provider == OpenAI {
		return newOpenAIStream(r)
	}
	return newAnthropicStream(r)
}

// ask sends the request and reads the answer to its end.
func (c *Client) ask(w *watchdog, a assembler, body []byte, show func(Delta)) (*Turn, error) {
	resp, err := c.wire.post(w.ctx, body)
	if resp == nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, readError(resp)
	}
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, w.body(resp.Body), maxAnswer)
	turn, err := c.receive(resp, a, show)
	var told *Error
	if errors.As(err, &told) {
		told.Status = resp.StatusCode
	}
	if id := requestID(resp.Header); id != "" && err == nil {
		turn.RequestID = id
	} else if id != "" && told != nil {
		told.RequestID = id
	}
	return turn, err
}

// receive reads an answer to its end marker. What breaks behind that takes nothing
// away: only the usage may lack.
func (c *Client) receive(resp *http.Response, a assembler, show func(Delta)) (*Turn, error) {
	err := c.read(resp, a, show)
	var told *Error
	switch {
	case errors.As(err, &told):
		return nil, told
	case a.complete():
		return a.turn()
	case err != nil:
		return nil, err
	default:
		return nil, &Error{Kind: Incomplete, Message: "the answer ended without its end marker"}
	}
}

func (c *Client) read(resp *http.Response, a assembler, show func(Delta)) error {
	switch media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media {
	case "application/json":
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return a.whole(body, show)
	case "text/html":
		return &Error{Kind: BadRequest, Message: "the answer is a web page: the base URL is not that of an API"}
	}
	for ev, err := range c.wire.events(resp) {
		if err != nil {
			return err
		}
		ev.data = bytes.TrimSpace(ev.data)
		last, err := a.event(ev, show)
		if err != nil || last {
			return err
		}
	}
	return nil
}

// readError makes an error of a response that is one.
func readError(resp *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what there is of it is shown
	e := newError(resp.StatusCode, resp.Header, body)
	switch {
	case resp.StatusCode < http.StatusBadRequest:
		e.Message = "the server redirects to " + location(resp) + ": make that the base URL"
	case resp.StatusCode == http.StatusNotFound && e.Kind == BadRequest:
		e.Message = fmt.Sprintf("there is nothing at %s: check the base URL; %s", resp.Request.URL.Redacted(), e.Message)
	}
	return e
}

// location is where a redirect goes, without what may be a secret.
func location(resp *http.Response) string {
	u, err := resp.Location()
	if err != nil {
		return "nowhere"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// fault makes an Error of whatever went wrong, unless it was the caller's will.
func (c *Client) fault(ctx context.Context, w *watchdog, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var e *Error
	if !errors.As(err, &e) {
		e = w.expired()
	}
	if big := (*http.MaxBytesError)(nil); e == nil && errors.As(err, &big) {
		e = &Error{Kind: Server, Message: fmt.Sprintf("the answer has more than %d bytes", big.Limit)}
	}
	if e == nil {
		e = &Error{Kind: Connection, Message: transportMessage(err), cause: err}
	}
	e.Provider = c.config.Provider
	c.redactor.cleanError(e)
	return e
}

// transportMessage is what a transport says, without the URL around it.
func transportMessage(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}
