package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	// maxPayload keeps a notification below PostgreSQL's 8,000 bytes.
	maxPayload = 7900
	// maxPending bounds the runs whose heads are kept through an outage; what
	// is beyond is left to the watchers' polling.
	maxPending = 100_000
	// A notifying transaction that names many runs is followed by a longer
	// pause: by one more interval for each busyRuns of them, busyMost at most.
	busyRuns, busyMost = 32, 7
	// notifyTimeout bounds one notifying transaction, stopTimeout all that is
	// still to be sent when the Notifier is stopped, unless a test says otherwise.
	notifyTimeout, stopTimeout = 5 * time.Second, time.Second
)

// Notifier announces committed heads. Many commits become one notification.
type Notifier struct {
	pool        *pgxpool.Pool
	interval    time.Duration
	stopTimeout time.Duration
	logger      *slog.Logger

	kick chan struct{}
	stop chan struct{}
	done sync.WaitGroup
	once sync.Once

	mu    sync.Mutex
	heads map[runlog.RunID]runlog.Seq
}

// NewNotifier returns a Notifier that sends at most one notifying transaction
// each interval, fewer when it has many runs to tell of, on a connection it takes from the pool for that moment.
func NewNotifier(pool *pgxpool.Pool, interval time.Duration, logger *slog.Logger) *Notifier {
	if logger == nil {
		logger = slog.Default()
	}
	return &Notifier{
		pool:        pool,
		interval:    interval,
		stopTimeout: stopTimeout,
		logger:      logger,
		kick:        make(chan struct{}, 1),
		stop:        make(chan struct{}),
		heads:       make(map[runlog.RunID]runlog.Seq),
	}
}

// Start begins to send. It is called once.
func (n *Notifier) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	finished := make(chan struct{})
	n.done.Go(func() {
		defer close(finished)
		n.run(ctx)
	})
	n.done.Go(func() {
		defer cancel()
		<-n.stop
		select {
		case <-finished:
		case <-time.After(n.stopTimeout):
		}
	})
}

// Stop sends what is pending, within a second, and waits for the sender to end.
func (n *Notifier) Stop() {
	n.once.Do(func() { close(n.stop) })
	n.done.Wait()
}

// Committed notes that a run's log has grown to head. It never blocks and
// never fails, whatever the state of the database.
func (n *Notifier) Committed(id runlog.RunID, head runlog.Seq) {
	n.mu.Lock()
	known, ok := n.heads[id]
	if head > known && (ok || len(n.heads) < maxPending) {
		n.heads[id] = head
	}
	n.mu.Unlock()
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

func (n *Notifier) run(ctx context.Context) {
	var failures int
	for {
		select {
		case <-n.stop:
			n.flushLast(ctx)
			return
		case <-n.kick:
		}
		runs, err := n.flush(ctx)
		// Many runs at once are a busy time, in which watchers read less often too.
		pause := n.interval * time.Duration(1+min(runs/busyRuns, busyMost))
		if err != nil {
			if failures++; failures == 1 {
				n.logger.Warn("cannot notify watchers, they poll meanwhile", "error", err)
			}
			pause = backoff(failures)
		} else if failures > 0 {
			n.logger.Info("can notify watchers again", "failures", failures)
			failures = 0
		}
		select {
		case <-n.stop:
			n.flushLast(ctx)
			return
		case <-time.After(pause):
		}
	}
}

// flushLast sends what is left. Nobody is harmed when it cannot: watchers poll.
func (n *Notifier) flushLast(ctx context.Context) {
	if _, err := n.flush(ctx); err != nil {
		n.logger.Debug("notify watchers at the end", "error", err)
	}
}

// flush sends the pending heads and returns their number; those of a failed
// attempt stay pending.
func (n *Notifier) flush(ctx context.Context) (int, error) {
	n.mu.Lock()
	heads := n.heads
	n.heads = make(map[runlog.RunID]runlog.Seq)
	n.mu.Unlock()
	if len(heads) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if _, err := n.pool.Exec(ctx, sql.FeedNotify, payloads(heads)); err != nil {
		for id, head := range heads {
			n.Committed(id, head)
		}
		return 0, fmt.Errorf("notify watchers: %w", err)
	}
	return len(heads), nil
}

// payloads writes the heads as "<run_id>:<head>" joined by commas, in as many
// notifications as their size asks for.
func payloads(heads map[runlog.RunID]runlog.Seq) []string {
	var (
		all []string
		buf = make([]byte, 0, maxPayload)
	)
	for id, head := range heads {
		if len(buf)+1+36+1+20 > maxPayload {
			all = append(all, string(buf))
			buf = buf[:0]
		}
		if len(buf) > 0 {
			buf = append(buf, ',')
		}
		buf = append(buf, id.String()...)
		buf = append(buf, ':')
		buf = strconv.AppendInt(buf, int64(head), 10)
	}
	return append(all, string(buf))
}

var errBadHint = errors.New("not of the form run_id:head")

// parseHints calls fn for each hint of a notification's payload.
func parseHints(payload string, fn func(runlog.RunID, runlog.Seq)) error {
	for len(payload) > 0 {
		if len(payload) < 38 || payload[36] != ':' {
			return errBadHint
		}
		var id runlog.RunID
		if err := id.UnmarshalText([]byte(payload[:36])); err != nil {
			return err
		}
		end := 37
		for end < len(payload) && payload[end] != ',' {
			end++
		}
		head, err := strconv.ParseInt(payload[37:end], 10, 64)
		if err != nil {
			return errBadHint
		}
		fn(id, runlog.Seq(head))
		payload = payload[min(end+1, len(payload)):]
	}
	return nil
}

// backoff grows from 100 ms to 5 s, with jitter.
func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures-1, 6), 5*time.Second)
	return d/2 + rand.N(d/2)
}
