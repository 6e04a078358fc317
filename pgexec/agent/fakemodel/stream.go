package fakemodel

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// The words of a script for the end of a reply. Other words go out as they are.
const (
	stopEnd       = "end"
	stopCalls     = "tool_calls"
	stopMaxTokens = "max_tokens"
	stopRefusal   = "refusal"
	stopFilter    = "content_filter"
	stopWindow    = "context_window"
)

// stop is why the reply ends.
func (t *turn) stop() string {
	switch {
	case t.reply.Stop != "":
		return t.reply.Stop
	case len(t.calls) > 0:
		return stopCalls
	}
	return stopEnd
}

// stopWord is stop in the API's own word.
func (t *turn) stopWord(words map[string]string) string {
	return first(words[t.stop()], t.stop())
}

// event is one event of a stream.
type event struct {
	name string // Anthropic's only
	data []byte
	// content marks a piece of text, thinking or arguments.
	content bool
	// terminal marks the first event that says that the reply is complete.
	terminal bool
}

// stream sends a reply's events, and breaks off where the script says so.
func (t *turn) stream(ctx context.Context, w http.ResponseWriter, events []event, requestID string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	out := http.NewResponseController(w)
	sent := 0
	for _, e := range events {
		if b := t.reply.Break; b != nil && (e.terminal || e.content && b.After != nil && sent >= *b.After) {
			_ = out.Flush() // fails only if the client has gone
			t.breakOff(ctx, w, requestID)
			return
		}
		if e.content {
			if sent > 0 && !pass(ctx, time.Duration(t.reply.Pause)) {
				return
			}
			sent++
		}
		if err := e.write(w); err != nil {
			return // the client has gone
		}
		_ = out.Flush() // an error shows at the next write
	}
}

func (e event) write(w http.ResponseWriter) error {
	if e.name != "" {
		if _, err := fmt.Fprintf(w, "event: %s\n", e.name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "data: %s\n\n", e.data)
	return err
}

// breakOff ends a reply before it is complete.
func (t *turn) breakOff(ctx context.Context, w http.ResponseWriter, requestID string) {
	b := t.reply.Break
	switch {
	case b.Error != nil:
		e := event{data: b.problem().body(t.conv.api, requestID)}
		if t.conv.api == apiAnthropic {
			e.name = "error"
		}
		_ = e.write(w) // a client that has gone needs no answer
	case b.With == breakReset:
		panic(http.ErrAbortHandler)
	case b.With == breakStall:
		<-ctx.Done()
	}
}

// problem is what the break reports, if it reports anything.
func (b *brokenReply) problem() *problem {
	p := &problem{failure: *b.Error}
	p.Status = http.StatusInternalServerError
	return p
}

// document sends the reply as one document. One that shall break fails as such
// an exchange does: with the error, or without an answer.
func (t *turn) document(ctx context.Context, w http.ResponseWriter, body []byte, requestID string) {
	switch b := t.reply.Break; {
	case b == nil:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that has gone needs no answer
	case b.Error != nil:
		b.problem().write(w, t.conv.api, requestID)
	case b.With == breakStall:
		<-ctx.Done()
	default:
		panic(http.ErrAbortHandler)
	}
}

// pass reports whether the time has passed before ctx was done.
func pass(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
