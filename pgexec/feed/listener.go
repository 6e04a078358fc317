package feed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// ErrStopped says that the Listener was stopped while somebody was watching.
var ErrStopped = errors.New("feed is stopped")

var errNoPong = errors.New("notifications do not arrive")

// timing holds the intervals that tests shorten.
type timing struct {
	// ping is the time between two pings, pong how long one may take.
	ping, pong time.Duration
	// pollUp is the time between two polls while hints arrive, pollDown while they do not.
	pollUp, pollDown time.Duration
	// read is the least time between two reads for all watchers, readMost the
	// longest when many runs are watched.
	read, readMost time.Duration
}

var normalTiming = timing{
	ping:     3 * time.Second,
	pong:     2 * time.Second,
	pollUp:   2 * time.Second,
	pollDown: 250 * time.Millisecond,
	read:     20 * time.Millisecond,
	readMost: 100 * time.Millisecond,
}

const (
	connectTimeout  = 10 * time.Second
	logChannel      = "pgexec_log"
	applicationName = "pgexec feed"
)

// Listener serves all watchers of this process over one connection of its own
// and, for reading, the pool.
type Listener struct {
	conn   *pgx.ConnConfig
	pool   *pgxpool.Pool
	logger *slog.Logger
	timing timing
	// token tells our pings from those of other listeners.
	token string

	stop  chan struct{}
	once  sync.Once
	loops sync.WaitGroup

	// up says that hints arrive: the last ping came back.
	up    atomic.Bool
	pongs chan struct{}
	hub   hub
}

// NewListener returns a Listener that is not started yet. conn is for a direct
// connection, not through a transaction-mode pooler; where there is none, nil
// makes the Listener poll only.
func NewListener(conn *pgx.ConnConfig, pool *pgxpool.Pool, logger *slog.Logger) *Listener {
	if logger == nil {
		logger = slog.Default()
	}
	if conn != nil {
		conn = conn.Copy()
		if _, ok := conn.RuntimeParams["application_name"]; !ok {
			conn.RuntimeParams["application_name"] = applicationName
		}
	}
	return &Listener{
		conn:   conn,
		pool:   pool,
		logger: logger,
		timing: normalTiming,
		token:  rand.Text(),
		stop:   make(chan struct{}),
		pongs:  make(chan struct{}, 1),
		hub:    newHub(),
	}
}

// Start begins to listen. It is called once and does not wait for the
// database: watchers poll until the connection stands.
func (l *Listener) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	if l.conn != nil {
		l.loops.Go(func() { l.listen(ctx) })
	}
	l.loops.Go(func() { l.poll(ctx) })
	l.loops.Go(func() { l.readForAll(ctx) })
	l.loops.Go(func() {
		<-l.stop
		cancel()
	})
}

// Stop ends the watches in progress with [ErrStopped] and waits for all
// goroutines and the connection to end.
func (l *Listener) Stop() {
	l.once.Do(func() { close(l.stop) })
	l.loops.Wait()
}

// listen keeps a listening connection, one after another.
func (l *Listener) listen(ctx context.Context) {
	var failures int
	for ctx.Err() == nil {
		err := l.session(ctx)
		wasUp := l.setUp(false)
		if ctx.Err() != nil {
			return
		}
		if wasUp {
			failures = 0
		}
		if failures++; failures == 1 {
			l.logger.Warn("feed connection lost, watchers poll meanwhile", "error", err)
		}
		sleep(ctx, backoff(failures))
	}
}

// session listens on one connection until it ends or its pings stop coming back.
func (l *Listener) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	var pulse sync.WaitGroup
	defer pulse.Wait()
	defer cancel(nil)
	pulse.Go(func() { l.pulse(ctx, cancel) })
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("wait for notification: %w", err)
		}
		l.receive(n)
	}
}

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.conn)
	if err != nil {
		return nil, fmt.Errorf("connect feed: %w", err)
	}
	for _, listen := range []string{sql.FeedListenLog, sql.FeedListenPing} {
		if _, err := conn.Exec(ctx, listen); err != nil {
			_ = conn.Close(ctx)
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	return conn, nil
}

func (l *Listener) receive(n *pgconn.Notification) {
	if n.Channel == logChannel {
		if err := l.hub.hints(n.Payload); err != nil {
			l.logger.Debug("hint ignored", "error", err)
		}
		return
	}
	if n.Payload == l.token {
		select {
		case l.pongs <- struct{}{}:
		default:
		}
	}
}

// pulse pings the listening connection from another one. It ends the session
// when a ping that was sent does not arrive: the connection is half open, or a
// pooler has given its server connection to somebody else.
func (l *Listener) pulse(ctx context.Context, cancel context.CancelCauseFunc) {
	for ctx.Err() == nil {
		select {
		case <-l.pongs: // one that came too late
		default:
		}
		if err := l.ping(ctx); err != nil {
			// Nothing is known of the connection, but trouble is near.
			l.setUp(false)
			sleep(ctx, l.timing.pong)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-l.pongs:
			l.setUp(true)
		case <-time.After(l.timing.pong):
			cancel(errNoPong)
			return
		}
		sleep(ctx, l.timing.ping)
	}
}

func (l *Listener) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.timing.pong)
	defer cancel()
	if _, err := l.pool.Exec(ctx, sql.FeedPing, l.token); err != nil {
		return fmt.Errorf("ping feed: %w", err)
	}
	return nil
}

// setUp notes whether hints arrive and returns what was so before. On a change
// everybody looks at once: hints may have been lost.
func (l *Listener) setUp(up bool) (was bool) {
	if was = l.up.Swap(up); was != up {
		l.hub.pollAll()
	}
	return was
}

// poll has everybody look from time to time, often while hints do not arrive.
func (l *Listener) poll(ctx context.Context) {
	for sleep(ctx, l.timing.pollDown) {
		if l.up.Load() {
			l.hub.pollDue(time.Now(), l.timing.pollUp)
		} else {
			l.hub.pollAll()
		}
	}
}

// Subscribe returns a channel that gets a value, one at a time, when the run's
// log has grown and also every few seconds, more often while notifications
// fail: whoever waits for anything about the run looks at the database then.
// The caller must call cancel when done.
func (l *Listener) Subscribe(id runlog.RunID) (ch <-chan struct{}, cancel func()) {
	tick := make(chan struct{}, 1)
	w := l.hub.join(id)
	l.hub.subscribe(w, tick)
	return tick, sync.OnceFunc(func() {
		l.hub.unsubscribe(w, tick)
		l.hub.leave(w)
	})
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
