package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

const (
	// maxClaimTries bounds how often one claim is tried again after it lost a
	// race, mostly against a last append of a former owner.
	maxClaimTries = 5
	// rereadTimeout bounds the question what became of a claim without an answer.
	rereadTimeout = 5 * time.Second
)

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
	// Input is the run's input as JSON text. One that is not small is not there, and InputApart says so: read it with
	// package wake when it is needed.
	Input      []byte
	InputApart bool
	Epoch      runlog.Epoch
	// Head is the position of our claim record, the last of the log.
	Head runlog.Seq
	// Record is our claim record.
	Record *pb.Record
	// Fresh says that the claim record is the only one: there is nothing to read.
	Fresh bool
	// DeadReplicaID is the replica that lost the run by dying; 0 for none.
	DeadReplicaID runlog.ReplicaID
	Priority      int
	CreatedAt     time.Time
	// Inbox is the version of what has reached the run from outside; 0 when nothing ever has.
	Inbox  int64
	Limits runlog.Limits
	// Depth is how many runs it is away from its root; 0 for a run that no other one started.
	Depth int
	// ParentRunID is the run that this one is a part of; zero for none.
	ParentRunID runlog.RunID
}

// ClaimResult says what became of the wants. A run that is in neither list
// cannot be claimed and needs no look: it is finished, paused, not due, gone,
// waits for other kinds, or has a living owner. Its job is completed; whatever
// makes it claimable again makes a new wake.
type ClaimResult struct {
	Claimed []Claimed
	// Busy runs are to be looked at again soon: somebody else holds or has just
	// changed the row. Their jobs are untouched.
	Busy []runlog.RunID
}

// ClaimerConfig configures a [Claimer]. Pool and ReplicaID are required.
type ClaimerConfig struct {
	Pool *pgxpool.Pool
	// ReplicaID is the id of an open session.
	ReplicaID runlog.ReplicaID
	// Info is the session's; the claim record names its host.
	Info ReplicaInfo
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Claimer claims runs for one replica. It may be used by several goroutines.
type Claimer struct {
	pool *pgxpool.Pool
	id   runlog.ReplicaID
	host string
	log  *slog.Logger
}

// NewClaimer returns a claimer for the replica of an open session.
func NewClaimer(cfg ClaimerConfig) *Claimer {
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	return &Claimer{pool: cfg.Pool, id: cfg.ReplicaID, host: cfg.Info.Host, log: log}
}

// Claim claims what can be claimed of the wanted runs, in one statement after
// one look, and completes the River jobs of all but the busy ones in it. After
// an error none of the runs is ours, unless the database could not be asked:
// then [Owned] tells later. An [ErrSessionLost] says that the replica has been
// declared dead. A run wanted twice is claimed once.
func (c *Claimer) Claim(ctx context.Context, wants []Want) (ClaimResult, error) {
	var result ClaimResult
	for len(wants) > 0 {
		batch, twice := splitRepeated(wants)
		part, err := c.claimBatch(ctx, batch)
		result.Claimed = append(result.Claimed, part.Claimed...)
		result.Busy = append(result.Busy, part.Busy...)
		if err != nil {
			if len(result.Claimed) > 0 {
				c.log.Warn("settle wakes of runs wanted twice", "error", err)
				return result, nil
			}
			return result, fmt.Errorf("claim runs: %w", err)
		}
		wants = twice
	}
	return result, nil
}

// splitRepeated keeps the first want of each run and returns the others apart.
func splitRepeated(wants []Want) (first, rest []Want) {
	seen := make(map[runlog.RunID]bool, len(wants))
	for _, w := range wants {
		if seen[w.RunID] {
			rest = append(rest, w)
			continue
		}
		seen[w.RunID] = true
		first = append(first, w)
	}
	return first, rest
}

// claimBatch claims once for each run. A statement that lost a race has been
// rolled back whole: the runs are looked at again.
func (c *Claimer) claimBatch(ctx context.Context, wants []Want) (ClaimResult, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return ClaimResult{}, err
	}
	defer conn.Release()
	for range maxClaimTries {
		var p *proposal
		if p, err = c.propose(ctx, conn, wants); err != nil {
			return ClaimResult{}, err
		}
		var rows []claimRow
		rows, err = runlog.QueryPlanned[claimRow](ctx, conn, sql.PlanIndexOnly, sql.OwnershipClaim,
			int32(c.id), runlog.Texts(p.runIDs), p.jobs, p.epochs, p.owners, p.orphanedBy, p.records)
		switch {
		case err == nil && len(rows) == 0:
			return ClaimResult{}, fmt.Errorf("%w: replica %d is not listed any more", ErrSessionLost, c.id)
		case err == nil:
			return p.result(rows), nil
		case conn.Conn().IsClosed(): // it may have committed
			conn.Release()
			return c.reread(ctx, p, err)
		case !lostRace(err):
			return ClaimResult{}, err
		}
	}
	return ClaimResult{}, err
}

// reread finds out what a claim without an answer did. What is not ours by now
// is called busy: should the statement still be on its way, the runs turn up in [Owned].
func (c *Claimer) reread(ctx context.Context, p *proposal, cause error) (ClaimResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rereadTimeout)
	defer cancel()
	rows, err := runlog.QueryPlanned[claimRow](ctx, c.pool, sql.PlanIndexOnly, sql.OwnershipClaimReread, int32(c.id), runlog.Texts(p.runIDs), p.epochs, p.records)
	if err != nil {
		return ClaimResult{}, errors.Join(cause, err)
	}
	c.log.Warn("claim had no answer, read again", "runs", len(p.runIDs), "claimed", len(rows), "error", cause)
	result := p.result(rows)
	ours := make(map[runlog.RunID]bool, len(rows))
	for _, r := range rows {
		ours[r.RunID] = true
	}
	for _, id := range p.runIDs {
		if !ours[id] {
			result.Busy = append(result.Busy, id)
		}
	}
	return result, nil
}

// claimRow is one answer of the claim. For a run that was not claimed all but
// the first two are null or zero.
type claimRow struct {
	RunID     runlog.RunID
	Busy      bool
	Epoch     *int64
	Seq       *int64
	Kind      *string
	Input     []byte
	HasInput  bool
	Priority  *int16
	CreatedAt *time.Time
	Inbox     int64
	Depth     int32
	Parent    *runlog.RunID
	runlog.Limits
}

// proposal is what a claim is conditional on, and the records it would append.
type proposal struct {
	runIDs     []runlog.RunID
	jobs       []int64
	epochs     []int64
	owners     []int32
	orphanedBy []int32
	records    [][]byte
	claims     map[runlog.RunID]*pb.Record
}

type lookRow struct {
	RunID      runlog.RunID
	Epoch      int64
	Owner      int32
	OrphanedBy int32
	// Closed says that the owner has left in order.
	Closed bool
	AtUs   int64
}

// propose looks at the runs and encodes their claim records. A run that is gone
// is wanted all the same: its job has to be completed.
func (c *Claimer) propose(ctx context.Context, db runlog.Sender, wants []Want) (*proposal, error) {
	ids := make([]runlog.RunID, len(wants))
	for i, w := range wants {
		ids[i] = w.RunID
	}
	looks, err := runlog.QueryPlanned[lookRow](ctx, db, sql.PlanIndexOnly, sql.OwnershipClaimLook, runlog.Texts(ids))
	if err != nil {
		return nil, err
	}
	found := make(map[runlog.RunID]lookRow, len(looks))
	for _, l := range looks {
		found[l.RunID] = l
	}
	p := &proposal{runIDs: ids, claims: make(map[runlog.RunID]*pb.Record, len(looks))}
	for _, w := range wants {
		l := found[w.RunID]
		record := c.record(l)
		raw, err := runlog.Encode(record)
		if err != nil {
			return nil, err
		}
		p.claims[w.RunID] = record
		p.jobs = append(p.jobs, w.WakeJob)
		p.epochs = append(p.epochs, l.Epoch)
		p.owners = append(p.owners, l.Owner)
		p.orphanedBy = append(p.orphanedBy, l.OrphanedBy)
		p.records = append(p.records, raw)
	}
	return p, nil
}

func (c *Claimer) record(l lookRow) *pb.Record {
	dead := l.OrphanedBy
	if l.Owner != 0 && !l.Closed {
		dead = l.Owner
	}
	return &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{
		ReplicaId:     int32(c.id),
		Epoch:         l.Epoch + 1,
		AtUs:          l.AtUs,
		Host:          c.host,
		DeadReplicaId: dead,
	}}}
}

func (p *proposal) result(rows []claimRow) ClaimResult {
	var result ClaimResult
	for _, r := range rows {
		switch {
		case r.Busy:
			result.Busy = append(result.Busy, r.RunID)
		case r.Seq != nil:
			record := p.claims[r.RunID]
			var parent runlog.RunID
			if r.Parent != nil {
				parent = *r.Parent
			}
			result.Claimed = append(result.Claimed, Claimed{
				RunID:         r.RunID,
				Kind:          *r.Kind,
				Input:         r.Input,
				InputApart:    r.HasInput && r.Input == nil,
				Epoch:         runlog.Epoch(*r.Epoch),
				Head:          runlog.Seq(*r.Seq),
				Record:        record,
				Fresh:         *r.Seq == 1,
				DeadReplicaID: runlog.ReplicaID(record.GetClaim().GetDeadReplicaId()),
				Priority:      int(*r.Priority),
				CreatedAt:     *r.CreatedAt,
				Inbox:         r.Inbox,
				Limits:        r.Limits,
				Depth:         int(r.Depth),
				ParentRunID:   parent,
			})
		}
	}
	return result
}
