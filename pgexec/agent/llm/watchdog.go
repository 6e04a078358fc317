package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	errIdle     = errors.New("idle")
	errDeadline = errors.New("deadline")
)

// watchdog ends a turn from which nothing comes any more, or that takes too long.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	config *Config
	idle   *time.Timer
	total  *time.Timer
}

// watch begins both times.
func watch(parent context.Context, c *Config) *watchdog {
	ctx, cancel := context.WithCancelCause(parent)
	return &watchdog{
		ctx:    ctx,
		cancel: cancel,
		config: c,
		idle:   time.AfterFunc(c.IdleTimeout, func() { cancel(errIdle) }),
		total:  time.AfterFunc(c.TotalTimeout, func() { cancel(errDeadline) }),
	}
}

func (w *watchdog) stop() {
	w.idle.Stop()
	w.total.Stop()
	w.cancel(nil)
}

// body watches the reads of a body. The time that its reader takes between them
// is not the provider's.
func (w *watchdog) body(rc io.ReadCloser) io.ReadCloser {
	w.idle.Stop()
	return &watchedBody{ReadCloser: rc, w: w}
}

type watchedBody struct {
	io.ReadCloser
	w *watchdog
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.w.idle.Reset(b.w.config.IdleTimeout)
	n, err := b.ReadCloser.Read(p)
	b.w.idle.Stop()
	return n, err
}

// expired is the error of the time that ran out, nil if none did.
func (w *watchdog) expired() *Error {
	switch cause := context.Cause(w.ctx); {
	case errors.Is(cause, errIdle):
		return &Error{Kind: Idle, Message: fmt.Sprintf("nothing was received for %s", w.config.IdleTimeout)}
	case errors.Is(cause, errDeadline):
		return &Error{Kind: Deadline, Message: fmt.Sprintf("the answer was not complete after %s", w.config.TotalTimeout)}
	default:
		return nil
	}
}
