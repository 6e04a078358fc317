package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// maxDraws bounds the ids drawn until a free one is found. Two draws are rare already.
const maxDraws = 10

// ReplicaInfo is what pgexec.replicas shows of a replica.
type ReplicaInfo struct {
	Host          string
	PID           int
	Version       string
	Kinds, Queues []string
	MaxHotRuns    int
	// FormerIDs are those that the process had before, of sessions that it has outlived.
	FormerIDs []int32
}

// SessionConfig configures a [Session]. Only ConnConfig is required.
type SessionConfig struct {
	// ConnConfig leads to the server itself, not to a transaction-mode pooler.
	// It is copied.
	ConnConfig *pgx.ConnConfig
	Info       ReplicaInfo
	// HotRunsFunc returns what the replica's row shows as hot_runs.
	HotRunsFunc func() int
	// ControlFunc, if set, is told of runs that something has reached from
	// outside, whoever owns them: a hint that may be lost. It is called from the
	// goroutine of the heartbeats and must not block.
	ControlFunc func([]runlog.RunID)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Heartbeat is the time between two heartbeats. Defaults to 1 s.
	Heartbeat time.Duration
	// LateAfter is the silence after which other replicas end this session, the
	// same for all replicas. This one gives itself up after half of it. Defaults to 10 s.
	LateAfter time.Duration
}

func (c SessionConfig) withDefaults() SessionConfig {
	if c.HotRunsFunc == nil {
		c.HotRunsFunc = func() int { return 0 }
	}
	if c.ControlFunc == nil {
		c.ControlFunc = func([]runlog.RunID) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = time.Second
	}
	if c.LateAfter <= 0 {
		c.LateAfter = 10 * time.Second
	}
	return c
}

func (c SessionConfig) validate() error {
	switch {
	case c.ConnConfig == nil:
		return errors.New("ConnConfig is missing")
	case 2*c.Heartbeat > c.LateAfter/2:
		return fmt.Errorf("LateAfter is %s: it must be at least four heartbeats of %s", c.LateAfter, c.Heartbeat)
	}
	return nil
}

// giveUpAfter is the age of the last confirmed heartbeat at which the replica
// takes itself for dead: well before others may.
func (c SessionConfig) giveUpAfter() time.Duration { return c.LateAfter / 2 }

// Session is a replica's proof of life: one connection that holds the advisory
// lock ('pgex' as integer, replica id). Whoever runs work for the replica
// watches [Session.Lost].
type Session struct {
	cfg   SessionConfig
	conn  *pgx.Conn
	id    runlog.ReplicaID
	log   *slog.Logger
	clock clock

	stop    context.CancelFunc
	stopped chan struct{} // closed when the heartbeats have ended
	lost    chan struct{}
	shown   chan struct{} // closed when a heartbeat has shown the drain

	mu        sync.Mutex
	err       error              // why lost; set before lost is closed
	outlived  bool               // set with err
	draining  bool               // wanted by SetDraining
	interrupt context.CancelFunc // ends the rest between two heartbeats

	closeOnce sync.Once
	closeErr  error
}

// Open connects, takes a new id's lock and lists the replica. A [*PoolerError]
// says that the address is a transaction-mode pooler's. The heartbeats go on
// until [Session.Close], which must be called also after a loss.
func Open(ctx context.Context, cfg SessionConfig) (*Session, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open replica session: %w", err)
	}
	conn, token, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open replica session: %w", err)
	}
	s := &Session{
		cfg: cfg, conn: conn,
		stopped: make(chan struct{}), lost: make(chan struct{}), shown: make(chan struct{}),
	}
	sent, err := s.enlist(ctx, token)
	if err != nil {
		closeConn(conn)
		return nil, fmt.Errorf("open replica session: %w", err)
	}
	s.log = cfg.Logger.With("replica_id", int32(s.id))
	beatCtx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.beat(beatCtx, sent)
	return s, nil
}

// enlist draws ids until one is free, and lists it. It returns when the
// listing, which is the first heartbeat, was sent.
func (s *Session) enlist(ctx context.Context, token string) (sent time.Time, err error) {
	for range maxDraws {
		s.id = runlog.ReplicaID(1 + rand.Int32N(math.MaxInt32))
		free, err := queryValue[bool](ctx, s.conn, sql.OwnershipSessionLock, int32(s.id))
		if err != nil {
			return sent, fmt.Errorf("lock replica id: %w", err)
		}
		if !free {
			continue
		}
		if err := refusePooler(ctx, s.cfg, s.conn, pooled{token: token, id: s.id}); err != nil {
			return sent, err
		}
		if err := ctx.Err(); err != nil {
			return sent, err
		}
		// From here on a stop does not cut it off: what is listed is taken off the list by [Session.Close].
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.giveUpAfter())
		defer cancel()
		info := s.cfg.Info
		sent = time.Now()
		at, err := queryValue[time.Time](ctx, s.conn, sql.OwnershipSessionInsert, int32(s.id), info.Host, int32(info.PID),
			info.Version, orEmpty(info.Kinds), orEmpty(info.Queues), int32(info.MaxHotRuns), orEmpty(info.FormerIDs))
		if err == nil {
			s.clock.add(sent, time.Now(), at)
			return sent, errors.Join(s.name(ctx), s.listen(ctx))
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return sent, fmt.Errorf("list replica: %w", err)
		}
		// Listed and free: a dead replica that is not buried yet. Holding its lock would keep it from that.
		if _, err := queryValue[bool](ctx, s.conn, sql.OwnershipSessionUnlock, int32(s.id)); err != nil {
			return sent, fmt.Errorf("unlock replica id: %w", err)
		}
	}
	return sent, fmt.Errorf("lock replica id: none of %d drawn ids is free", maxDraws)
}

// ID returns the replica's id, valid until the session is lost or closed.
func (s *Session) ID() runlog.ReplicaID { return s.id }

// Lost is closed when the session is lost: its connection broke, it was
// declared dead, or it could not show a heartbeat in time.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err says why the session is lost, wrapping [ErrSessionLost]; nil while it is not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Outlived reports that the session is lost and the process was at work meanwhile: it did not stand still for so long that
// others had to end the session. So whatever it was doing has not brought it down.
func (s *Session) Outlived() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outlived
}

// Now estimates the database's clock. It may go back by a little when a new
// heartbeat gives a better estimate.
func (s *Session) Now() time.Time { return s.clock.now() }

// SetDraining shows the replica as draining and returns when its row says so.
func (s *Session) SetDraining(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	if s.interrupt != nil {
		s.interrupt()
	}
	s.mu.Unlock()
	select {
	case <-s.shown:
		return nil
	case <-s.stopped:
		if err := s.Err(); err != nil {
			return fmt.Errorf("show drain: %w", err)
		}
		return fmt.Errorf("show drain: session is closed")
	case <-ctx.Done():
		return fmt.Errorf("show drain: %w", ctx.Err())
	}
}

// Close ends the heartbeats, puts back what the replica still owns, takes it
// off the list and gives up its lock by closing the connection. Of a lost
// session only the connection is left to close. The error is informative: what
// could not be put back now is put back by whoever finds the replica gone.
func (s *Session) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		s.stop()
		<-s.stopped
		if s.Err() == nil {
			s.closeErr = s.leave(ctx)
		}
		closeConn(s.conn)
	})
	return s.closeErr
}

// leave puts back what the replica still owns, and tells of it.
func (s *Session) leave(ctx context.Context) error {
	b, err := bury(ctx, s.conn, s.id, notOrphaned)
	if err != nil {
		return fmt.Errorf("close replica session: %w", err)
	}
	if b != nil && len(b.Queues) > 0 {
		if _, err := s.conn.Exec(ctx, sql.WakeNudge, b.Queues); err != nil {
			s.log.Debug("nudge queues", "error", err)
		}
	}
	return nil
}

// lose is called by the heartbeats only, once. sent is when the last confirmed one left.
func (s *Session) lose(cause error, sent time.Time) {
	s.mu.Lock()
	s.err = fmt.Errorf("%w: %w", ErrSessionLost, cause)
	s.outlived = time.Since(sent) < s.cfg.LateAfter
	s.mu.Unlock()
	close(s.lost)
}

// CountOutlived counts those of some replicas that lost their session only: the process that was one of them is
// listed under another id, and was at work when the session ended.
func CountOutlived(ctx context.Context, pool *pgxpool.Pool, dead []int32) (int, error) {
	n, err := queryValue[int](ctx, pool, sql.OwnershipOutlived, dead)
	if err != nil {
		return 0, fmt.Errorf("look for outlived sessions: %w", err)
	}
	return n, nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
