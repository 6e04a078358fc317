package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

const (
	// relistEvery is the number of passes between two looks for owners that are not listed.
	relistEvery = 20
	// maxFinderPause bounds the pause after passes that failed.
	maxFinderPause = 2 * time.Second
	// passTimeout bounds one pass.
	passTimeout = 10 * time.Second
)

// FinderConfig configures a [Finder]. Pool is required.
type FinderConfig struct {
	// Pool must not be the session's connection, in which its own lock always looks free.
	Pool *pgxpool.Pool
	// ReplicaID is the finder's own replica, which it leaves alone; 0 for none.
	ReplicaID runlog.ReplicaID
	// Interval is the time between two passes, plus up to a third of it as
	// jitter. Defaults to 100 ms.
	Interval time.Duration
	// Heartbeat is the replicas' heartbeat interval. Defaults to 1 s.
	Heartbeat time.Duration
	// LateAfter is the age of a heartbeat at which a replica's session is ended.
	// Defaults to 10 s.
	LateAfter time.Duration
	// BuriedFunc is called for each dead replica whose runs were put back. It must not block.
	BuriedFunc func(Buried)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Finder finds dead replicas and puts their runs back. Any number of finders
// may run at once: each step is conditional, and one of them does it.
type Finder struct {
	cfg    FinderConfig
	passes int
	late   map[runlog.ReplicaID]lateReplica
}

// lateReplica is a replica whose heartbeat is late. Its session is ended only
// if the heartbeat does not move for one more interval: after a step of the
// database's clock all replicas are late, until their next heartbeat.
type lateReplica struct {
	heartbeat time.Time
	since     time.Time
	refused   bool // this role may not end its session; said once
}

// NewFinder returns a finder.
func NewFinder(cfg FinderConfig) *Finder {
	if cfg.Interval <= 0 {
		cfg.Interval = 100 * time.Millisecond
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.LateAfter <= 0 {
		cfg.LateAfter = 10 * time.Second
	}
	if cfg.BuriedFunc == nil {
		cfg.BuriedFunc = func(Buried) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Finder{cfg: cfg, late: make(map[runlog.ReplicaID]lateReplica)}
}

// Run makes passes until ctx is done. It backs off while the database does not answer.
func (f *Finder) Run(ctx context.Context) {
	pause := f.cfg.Interval
	for {
		timer := time.NewTimer(pause + rand.N(pause/3+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		_, err := f.Pass(ctx)
		if err == nil {
			pause = f.cfg.Interval
			continue
		}
		if ctx.Err() == nil {
			f.cfg.Logger.Warn("look for dead replicas, trying again", "error", err)
			pause = min(2*pause, max(maxFinderPause, f.cfg.Interval))
		}
	}
}

// Pass looks once and returns the dead replicas that this finder buried. It is
// called by one goroutine at a time.
func (f *Finder) Pass(ctx context.Context) ([]Buried, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	if f.passes++; f.passes%relistEvery == 0 {
		if err := f.relist(ctx); err != nil {
			return nil, err
		}
	}
	found, err := f.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for dead replicas: %w", err)
	}
	f.forgetAllBut(found)
	var all []Buried
	var errs []error
	for _, r := range found {
		if !r.Free {
			errs = append(errs, f.judgeLate(ctx, r))
			continue
		}
		b, err := bury(ctx, f.cfg.Pool, runlog.ReplicaID(r.ReplicaID), &r.ReplicaID)
		if err != nil {
			errs = append(errs, err)
		} else if b != nil {
			f.report(*b)
			all = append(all, *b)
		}
	}
	return all, errors.Join(errs...)
}

type foundRow struct {
	ReplicaID   int32
	Free        bool
	HeartbeatAt time.Time
}

func (f *Finder) look(ctx context.Context) ([]foundRow, error) {
	rows, err := f.cfg.Pool.Query(ctx, sql.OwnershipFinderLook, int32(f.cfg.ReplicaID), f.cfg.LateAfter.Microseconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[foundRow])
}

func (f *Finder) relist(ctx context.Context) error {
	rows, err := f.cfg.Pool.Query(ctx, sql.OwnershipFinderRelist)
	if err != nil {
		return fmt.Errorf("list unlisted owners: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return fmt.Errorf("list unlisted owners: %w", err)
	}
	for _, id := range ids {
		f.cfg.Logger.Warn("runs have an owner that is not listed; if it is dead they are put back", "owner", id)
	}
	return nil
}

func (f *Finder) report(b Buried) {
	if len(b.Runs) > 0 || b.Gone {
		f.cfg.Logger.Warn("replica is dead, its runs are put back", "dead_replica_id", int32(b.ReplicaID), "host", b.Host,
			"pid", b.PID, "runs", len(b.Runs), "jobs", b.Jobs, "silent_ms", b.Silent.Milliseconds())
	}
	f.cfg.BuriedFunc(b)
}

// forgetAllBut drops what was noted of replicas that are late no more.
func (f *Finder) forgetAllBut(found []foundRow) {
	still := make(map[runlog.ReplicaID]lateReplica, len(f.late))
	for _, r := range found {
		if l, ok := f.late[runlog.ReplicaID(r.ReplicaID)]; ok && !r.Free {
			still[runlog.ReplicaID(r.ReplicaID)] = l
		}
	}
	f.late = still
}

// judgeLate ends the session of a replica that stays late. The lock it held is
// found free by a later pass.
func (f *Finder) judgeLate(ctx context.Context, r foundRow) error {
	id := runlog.ReplicaID(r.ReplicaID)
	l, known := f.late[id]
	if !known || !l.heartbeat.Equal(r.HeartbeatAt) {
		f.late[id] = lateReplica{heartbeat: r.HeartbeatAt, since: time.Now()}
		return nil
	}
	if l.refused || time.Since(l.since) < f.cfg.Heartbeat {
		return nil
	}
	ended, err := queryValue[bool](ctx, f.cfg.Pool, sql.OwnershipFinderTerminate, r.ReplicaID, r.HeartbeatAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // its backend is gone, or its heartbeat has moved
	case sqlState(err) == insufficientPrivilege, err == nil && !ended:
		l.refused = true
		f.late[id] = l
		f.cfg.Logger.Error("a replica is frozen, and this role may not end its session: "+
			"grant pg_signal_backend and pg_read_all_stats to it, or let all replicas use one role",
			"late_replica_id", r.ReplicaID)
		return nil
	case err != nil:
		return fmt.Errorf("end session of late replica: %w", err)
	}
	f.cfg.Logger.Warn("replica is frozen, its session was ended", "late_replica_id", r.ReplicaID, "heartbeat_at", r.HeartbeatAt)
	return nil
}
