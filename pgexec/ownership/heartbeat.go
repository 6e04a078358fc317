package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// errDeclaredDead says that a heartbeat found no row of its own.
var errDeclaredDead = errors.New("the replica was declared dead, or its connection was moved to another backend")

// beat shows a heartbeat now and then until ctx is done or the session is
// lost. Between them the connection waits for what the server may send, so that
// its end is noticed when it happens. sent is when the last confirmed heartbeat
// left; its age, by the local monotonic clock, bounds how long the replica
// believes in itself.
func (s *Session) beat(ctx context.Context, sent time.Time) {
	defer close(s.stopped)
	pause := s.cfg.Heartbeat
	for {
		if err := s.rest(ctx, sent.Add(pause)); err != nil {
			s.lose(err, sent)
			return
		}
		if ctx.Err() != nil {
			return
		}
		// True at once after the process was frozen for long.
		if age := time.Since(sent); age >= s.cfg.giveUpAfter() {
			s.lose(fmt.Errorf("no heartbeat for %s", age.Round(time.Millisecond)), sent)
			return
		}
		now, err := s.beatOnce(ctx, sent.Add(s.cfg.giveUpAfter()))
		switch {
		case err == nil:
			sent, pause = now, s.cfg.Heartbeat
		case errors.Is(err, errDeclaredDead):
			s.lose(err, sent)
			return
		case s.conn.IsClosed():
			if ctx.Err() == nil {
				s.lose(err, sent)
			}
			return
		default:
			s.log.Warn("show heartbeat, trying again", "error", err)
			pause = time.Since(sent) + s.cfg.Heartbeat/4
		}
	}
}

// beatOnce shows one heartbeat and returns when it was sent.
func (s *Session) beatOnce(ctx context.Context, deadline time.Time) (sent time.Time, err error) {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	// Not under the stop: a heartbeat that is cut off costs the connection.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	sent = time.Now()
	at, err := queryValue[time.Time](ctx, s.conn, sql.OwnershipHeartbeat, int32(s.id), int32(s.cfg.HotRunsFunc()), draining)
	if errors.Is(err, pgx.ErrNoRows) {
		return sent, errDeclaredDead
	}
	if err != nil {
		return sent, fmt.Errorf("show heartbeat: %w", err)
	}
	s.clock.add(sent, time.Now(), at)
	if draining {
		s.showDrain()
	}
	return sent, nil
}

// rest returns nil at the given time, or sooner when a drain is to be shown or
// ctx is done; an error says that the connection is gone.
func (s *Session) rest(ctx context.Context, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	s.mu.Lock()
	if s.draining && !s.drainShown() {
		cancel()
	}
	s.interrupt = cancel
	s.mu.Unlock()
	for ctx.Err() == nil {
		n, err := s.conn.WaitForNotification(ctx)
		switch {
		case err == nil:
			s.hear(n.Payload)
		case s.conn.IsClosed():
			return fmt.Errorf("connection ended: %w", err)
		}
	}
	return nil
}

func (s *Session) drainShown() bool {
	select {
	case <-s.shown:
		return true
	default:
		return false
	}
}

func (s *Session) showDrain() {
	if !s.drainShown() {
		close(s.shown)
	}
}
