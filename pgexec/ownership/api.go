package ownership

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

var (
	// ErrSessionLost says that the replica's session is gone.
	ErrSessionLost = errors.New("replica session is lost")
	// ErrPooler says that the session would go through a pooler.
	ErrPooler = errors.New("connection goes through a transaction-mode pooler")
)

// ReplicaInfo is what pgexec.replicas shows of a replica.
type ReplicaInfo struct {
	Host          string
	PID           int
	Version       string
	Kinds, Queues []string
	MaxHotRuns    int
}

// SessionConfig configures a session.
type SessionConfig struct {
	ConnConfig  *pgx.ConnConfig
	Info        ReplicaInfo
	HotRunsFunc func() int
	Logger      *slog.Logger
	// Heartbeat defaults to 1 s.
	Heartbeat time.Duration
	// LateAfter defaults to 10 s.
	LateAfter time.Duration
}

// Session is a replica's proof of life.
type Session struct{}

// Open opens a session.
func Open(ctx context.Context, cfg SessionConfig) (*Session, error) { return nil, ErrSessionLost }

// ID returns the replica's id.
func (s *Session) ID() runlog.ReplicaID { return 0 }

// Lost is closed when the session is lost.
func (s *Session) Lost() <-chan struct{} { return nil }

// Err says why the session is lost.
func (s *Session) Err() error { return nil }

// Now estimates the database's clock.
func (s *Session) Now() time.Time { return time.Time{} }

// SetDraining shows the replica as draining.
func (s *Session) SetDraining(ctx context.Context) error { return nil }

// Close gives everything back.
func (s *Session) Close(ctx context.Context) error { return nil }

// Want asks for one run.
type Want struct {
	RunID runlog.RunID
	// WakeJob is the River job that asks for it; 0 for none.
	WakeJob int64
}

// Claimed is a run that is now ours.
type Claimed struct {
	RunID runlog.RunID
	Kind  string
	// Input is the run's input as JSON text.
	Input []byte
	Epoch runlog.Epoch
	// Head is the position of our claim record.
	Head runlog.Seq
	// Record is our claim record.
	Record *pb.Record
	// Fresh says that the claim record is the log's only record.
	Fresh bool
	// DeadReplicaID is the replica that lost the run by dying; 0 for none.
	DeadReplicaID runlog.ReplicaID
	Priority      int
	CreatedAt     time.Time
}

// ClaimResult is what became of the wants.
type ClaimResult struct {
	Claimed []Claimed
	// Busy runs are to be looked at again soon.
	Busy []runlog.RunID
}

// ClaimerConfig configures a claimer.
type ClaimerConfig struct {
	Pool      *pgxpool.Pool
	ReplicaID runlog.ReplicaID
	Info      ReplicaInfo
	Logger    *slog.Logger
}

// Claimer claims runs for one replica.
type Claimer struct{}

// NewClaimer returns a claimer.
func NewClaimer(cfg ClaimerConfig) *Claimer { return &Claimer{} }

// Claim claims runs.
func (c *Claimer) Claim(ctx context.Context, wants []Want) (ClaimResult, error) {
	return ClaimResult{}, nil
}

// Held is a run with the epoch it was claimed at.
type Held struct {
	RunID runlog.RunID
	Epoch runlog.Epoch
}

// ReleaseOpts are options of a release.
type ReleaseOpts struct {
	// WaitingKinds are the kinds the released runs need.
	WaitingKinds []string
}

// Release gives runs back to the queue.
func Release(ctx context.Context, pool *pgxpool.Pool, id runlog.ReplicaID, held []Held, opts *ReleaseOpts) error {
	return nil
}

// Owned returns the runs that the database says are the replica's.
func Owned(ctx context.Context, pool *pgxpool.Pool, id runlog.ReplicaID) ([]Held, error) {
	return nil, nil
}

// Buried is a dead replica that a finder removed.
type Buried struct {
	ReplicaID runlog.ReplicaID
	Host      string
	PID       int
	// Silent is the time since the last heartbeat.
	Silent time.Duration
	Runs   []runlog.RunID
}

// FinderConfig configures a finder.
type FinderConfig struct {
	Pool      *pgxpool.Pool
	ReplicaID runlog.ReplicaID
	// Interval defaults to 100 ms.
	Interval time.Duration
	// Heartbeat defaults to 1 s.
	Heartbeat time.Duration
	// LateAfter defaults to 10 s.
	LateAfter time.Duration
	// BuriedFunc is called for each dead replica.
	BuriedFunc func(Buried)
	Logger     *slog.Logger
}

// Finder looks for the dead.
type Finder struct{}

// NewFinder returns a finder.
func NewFinder(cfg FinderConfig) *Finder { return &Finder{} }

// Run looks for the dead until ctx is done.
func (f *Finder) Run(ctx context.Context) { <-ctx.Done() }

// Bury looks once.
func (f *Finder) Bury(ctx context.Context) ([]Buried, error) { return nil, nil }
