package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// interrupt is how the process learns that it shall stop. The first signal ends
// ctx; the second one ends the process at once, unless the command at work has
// asked for patience because it must clean up.
type interrupt struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	patient atomic.Bool
}

// signalError is the cause of a context that a signal has ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return e.signal.String() }

// exitCode is what a shell reports of a process that the signal has ended.
func (e signalError) exitCode() int { return 128 + int(e.signal) }

func newInterrupt(parent context.Context) *interrupt {
	i := &interrupt{}
	i.ctx, i.cancel = context.WithCancelCause(parent)
	return i
}

// catchSignals is called once, first of all, so that no signal finds the process
// without it.
func catchSignals() *interrupt {
	i := newInterrupt(context.Background())
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // nohup wants it to stay ignored
		signal.Notify(caught, syscall.SIGHUP)
	}
	go func() {
		for sig := range caught {
			i.signal(sig.(syscall.Signal), os.Exit)
		}
	}()
	return i
}

func (i *interrupt) signal(sig syscall.Signal, exitFunc func(int)) {
	if i.ctx.Err() == nil {
		i.cancel(signalError{sig})
		return
	}
	if !i.patient.Load() {
		exitFunc(signalError{sig}.exitCode())
	}
}

// caughtSignal returns the signal that has ended ctx, if one has.
func caughtSignal(ctx context.Context) (signalError, bool) {
	var sig signalError
	ok := errors.As(context.Cause(ctx), &sig)
	return sig, ok
}
