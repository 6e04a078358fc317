package wake

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// childID is an id derived from parent and node.
func childID(parent runlog.RunID, node string) runlog.RunID {
	sum := sha256.Sum256(append(parent[:], node...))
	id := parent
	copy(id[6:], sum[:10])
	return id
}

func child(parent runlog.RunID, node string) ChildParams {
	return ChildParams{ParentID: parent, Owner: 1, Epoch: 1, ParentNodeID: node, ChildID: childID(parent, node), Kind: "c"}
}

func (b *bundle) startChild(p ChildParams) {
	b.t.Helper()
	if _, err := StartChild(b.t.Context(), b.pool, p); err != nil {
		b.t.Fatal(err)
	}
}

// A child run is made once, with its wake, its parent's queue and role, and its own limits.
func TestStartChild_OnceAndComplete(t *testing.T) {
	b := setup(t)
	parent := b.ownMany(1)[0]
	b.exec(`update pgexec.runs set queue = 'slow', priority = 3, traceparent = 'trace', created_by = 'somebody', soft_limit = 0.5`)
	b.own(parent)
	p := child(parent, "n")
	p.Input = []byte(`{"text": "\u0000"}`)
	p.Limits = Limits{
		MaxTokens: 5, MaxCostNanoUSD: 1, MaxNodes: math.MaxInt64, MaxWallMs: 7,
		DeadlineUs: 1_900_000_000_000_001, MaxParallel: 8, SoftLimit: 0.25,
	}
	for range 2 {
		b.startChild(p)
	}
	got := get[string](b, `select concat_ws(' ', kind, input, status, depth, queue, priority, traceparent, created_by, parent_run_id = $1, parent_node_id,
			max_tokens, max_cost_usd, max_nodes, max_wall_ms, deadline at time zone 'UTC', max_parallel, soft_limit,
			wake_job = (select max(id) from pgexec.river_job where queue = 'slow'))
		from pgexec.runs where run_id = $2`, parent, p.ChildID)
	want := `c {"text": "` + "\uFFFD" + `"} queued 1 slow 3 trace somebody t n 5 0.000000001 2147483647 7 2030-03-17 17:46:40.000001 8 0.25 t`
	if got != want {
		t.Errorf("child is\n%s, want\n%s", got, want)
	}
	if n := get[int](b, `select count(*) from pgexec.runs where parent_run_id = $1`, parent); n != 1 {
		t.Errorf("%d children", n)
	}
	in, err := ReadInbox(t.Context(), b.pool, Logged{RunID: p.ChildID}, nil)
	p.Limits.MaxNodes = math.MaxInt32
	if err != nil || in.Limits != p.Limits {
		t.Errorf("limits %+v, error %v", in.Limits, err)
	}
	b.exec(`update pgexec.runs set owner = 1, status = 'running', epoch = 1, wake_job = null where run_id = $1`, p.ChildID)
	grandchild := child(p.ChildID, "n")
	grandchild.Priority = 1
	b.startChild(grandchild)
	if got := get[string](b, `select concat_ws(' ', depth, input, priority, num_nonnulls(max_tokens, max_cost_usd, max_nodes, deadline), soft_limit)
		from pgexec.runs where run_id = $1`, grandchild.ChildID); got != "2 null 1 0 0.25" {
		t.Errorf("grandchild is %s", got)
	}
}

func TestStartChild_Refused(t *testing.T) {
	b := setup(t)
	parent := b.ownMany(1)[0]
	b.own(parent)
	other := child(parent, "n")
	other.Epoch = 2
	if _, err := StartChild(t.Context(), b.pool, other); !errors.Is(err, runlog.ErrFenced) || errors.Is(err, ErrWanted) {
		t.Errorf("of another epoch: %v", err)
	}
	taken := child(parent, "n")
	b.exec(`insert into pgexec.runs (run_id, kind) values ($1, 'k')`, taken.ChildID)
	if _, err := StartChild(t.Context(), b.pool, taken); err == nil || !strings.Contains(err.Error(), "no child of node") {
		t.Errorf("with a taken id: %v", err)
	}
	b.startChild(child(parent, "before"))
	for _, want := range []string{"pause", "cancel"} {
		b.exec(`select pgexec.` + want + `(run_id) from pgexec.runs where owner = 1`)
		if _, err := StartChild(t.Context(), b.pool, child(parent, "after")); !errors.Is(err, ErrWanted) || !errors.Is(err, runlog.ErrFenced) {
			t.Errorf("while %s is wanted: %v", want, err)
		}
		b.startChild(child(parent, "before")) // is there already
	}
}

// Whoever holds the parent's row does not hold a connection of ours; an open signal does not even delay.
func TestStartChild_ParentIsLocked(t *testing.T) {
	b := setup(t)
	parent := b.ownMany(1)[0]
	b.own(parent)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select pgexec.signal($1, 'go')`, parent); err != nil {
		t.Fatal(err)
	}
	b.startChild(child(parent, "a"))
	if _, err := tx.Exec(t.Context(), `select from pgexec.runs where run_id = $1 for update`, parent); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := StartChild(ctx, b.pool, child(parent, "b")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := StartChild(t.Context(), b.pool, child(parent, "b"))
		done <- err
	}()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := next(b, done); err != nil {
		t.Error(err)
	}
}

// C41: a request that goes down the tree while children are being made reaches every one of them.
func TestStartChild_NoneIsMissedByCancelAndPause_C41(t *testing.T) {
	for want, reached := range map[string]string{
		"cancel": `wanted = 'cancel' and wake_job is not null`,
		"pause":  `status = 'paused' and wake_job is null`,
	} {
		t.Run(want, func(t *testing.T) {
			b := setup(t)
			const rounds = 600
			parents := b.ownMany(rounds)
			b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1`)
			for _, parent := range parents {
				var wg sync.WaitGroup
				for _, node := range []string{"a", "b", "c"} {
					wg.Go(func() {
						_, err := StartChild(t.Context(), b.pool, child(parent, node))
						if err != nil && !errors.Is(err, ErrWanted) {
							t.Error(err)
						}
					})
				}
				wg.Go(func() {
					if _, err := b.pool.Exec(t.Context(), `select pgexec.`+want+`($1)`, parent); err != nil {
						t.Error(err)
					}
				})
				wg.Wait()
			}
			made := get[int](b, `select count(*) from pgexec.runs where parent_run_id is not null`)
			if missed := get[int](b, `select count(*) from pgexec.runs where parent_run_id is not null and not (`+reached+`)`); missed > 0 {
				t.Errorf("%d of %d children missed", missed, made)
			}
			t.Logf("%d of %d children were made", made, 3*rounds)
			if made == 0 || made == 3*rounds {
				t.Error("it was no race")
			}
		})
	}
}

func encode(t *testing.T, rec *pb.Record) []byte {
	t.Helper()
	raw, err := runlog.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// writer starts a writer that the test's end closes.
func (b *bundle) writer() *runlog.Writer {
	w := runlog.NewWriter(runlog.WriterConfig{Pool: b.pool})
	b.t.Cleanup(w.Close)
	return w
}

// childrenOf makes each run a child that waits for its end: replica 1's, with a log.
func (b *bundle) childrenOf(parents []runlog.RunID) map[runlog.RunID]runlog.RunID {
	b.t.Helper()
	children := make(map[runlog.RunID]runlog.RunID)
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1`)
	for _, parent := range parents {
		p := child(parent, "wait")
		b.startChild(p)
		children[parent] = p.ChildID
	}
	b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1, wake_job = null where parent_run_id is not null`)
	b.exec(`insert into pgexec.run_log (run_id, seq, record) select run_id, 1, $1 from pgexec.runs where parent_run_id is not null`,
		encode(b.t, &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 1, Epoch: 1}}}))
	return children
}

// G4: the end of a child run, its status and the news for its parent commit together, also while the parent parks.
func TestPark_NoChildsEndIsLost(t *testing.T) {
	b := setup(t)
	w := b.writer()
	finished := encode(t, &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: pb.RunStatus_RUN_STATUS_SUCCEEDED}}})
	var children map[runlog.RunID]runlog.RunID
	parked, hot := parkRace{
		prepare: func(b *bundle, n int) []runlog.RunID {
			parents := b.ownMany(n)
			children = b.childrenOf(parents)
			return parents
		},
		reach: func(ctx context.Context, _ *bundle, id runlog.RunID) error {
			return w.Open(children[id], 1, 1, 1).Finish(ctx, runlog.FinishParams{Record: finished, Status: "succeeded"})
		},
		there: func(in Inbox) bool { return len(in.Children) == 1 && in.Children[0].Status == "succeeded" },
		lost:  `not (r.inbox = 1 and (r.status = 'running' or r.wake_job is not null))`,
	}.race(b, 700)
	t.Logf("%d parked first, %d saw the end first", parked, hot)
	if parked == 0 || hot == 0 {
		t.Error("it was no race")
	}
	b.eventually("each woken parent has one job", `select count(*) = $1 from pgexec.runs r
		join pgexec.river_job j on j.id = r.wake_job where r.status = 'parked'`, parked)
}

// CancelChild makes nothing of a child that is not there, or has ended.
func TestCancelChild(t *testing.T) {
	b := setup(t)
	id := b.insert()
	for _, id := range []runlog.RunID{id, {1}} {
		if _, err := CancelChild(t.Context(), b.pool, id, "no more"); err != nil {
			t.Error(err)
		}
	}
	if got := get[string](b, `select wanted || ' ' || wanted_reason from pgexec.runs`); got != "cancel no more" {
		t.Errorf("wanted: %s", got)
	}
	b.exec(`update pgexec.runs set status = 'cancelled', wanted = null`)
	if _, err := CancelChild(t.Context(), b.pool, id, "no more"); err != nil {
		t.Error(err)
	}
}

// frozen holds up a process after the server's answer to a statement.
type frozen struct {
	statement string
	answered  chan struct{}
	thaw      <-chan struct{}
}

func (f frozen) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, f, q.SQL)
}

func (f frozen) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(f) == f.statement {
		close(f.answered)
		<-f.thaw
	}
}

// C06: a replica that freezes while it cancels a tree keeps no run of it locked.
func TestCancelChild_FrozenHoldsNoLock_C06(t *testing.T) {
	b := setup(t)
	parent := b.ownMany(1)[0]
	p := child(parent, "n")
	b.own(parent)
	b.startChild(p)
	thaw := make(chan struct{})
	f := frozen{sql.LifeCancel, make(chan struct{}), thaw}
	cfg := b.pool.Config()
	cfg.ConnConfig.Tracer = f
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	cancelled := make(chan error, 1)
	go func() {
		_, err := CancelChild(t.Context(), pool, p.ChildID, "parent failed")
		cancelled <- err
	}()
	next(b, f.answered)
	b.exec(`update pgexec.runs set priority = 4 where run_id = $1`, p.ChildID)
	close(thaw)
	if err := next(b, cancelled); err == nil {
		t.Error("the cancel that the server has ended says that it is done")
	}
	if status := get[string](b, `select status from pgexec.runs where run_id = $1`, p.ChildID); status != "queued" {
		t.Errorf("the child is %s", status)
	}
}
