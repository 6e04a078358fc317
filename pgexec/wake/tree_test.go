package wake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// forest is trees of runs to which everything happens at the same time.
type forest struct {
	*bundle
	ctx    context.Context
	runs   []runlog.RunID
	writer *runlog.Writer
	claim  []byte
	record []byte
	done   [16]atomic.Int64 // what was done how often
}

// plant makes trees of 1 + 3 + 9 runs, all replica 1's.
func plant(b *bundle, trees int) *forest {
	b.t.Helper()
	f := &forest{
		bundle: b, ctx: b.t.Context(), writer: b.writer(),
		claim:  encode(b.t, &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 1, Epoch: 1}}}),
		record: encode(b.t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "root", Status: pb.NodeStatus_NODE_STATUS_FAILED}}}),
	}
	b.exec(`select pgexec.declare_kind('t', max_lost_leases => 2)`)
	level := b.ownMany(trees)
	for depth := range 3 {
		b.exec(`update pgexec.runs set status = 'running', owner = 1, epoch = 1, wake_job = null where run_id = any ($1)`, level)
		b.exec(`insert into pgexec.run_log select run_id, 1, $1 from pgexec.runs where run_id = any ($2)`, f.claim, level)
		f.runs = append(f.runs, level...)
		if depth == 2 {
			break
		}
		var next []runlog.RunID
		for _, parent := range level {
			for _, node := range []string{"a", "b", "c"} {
				b.startChild(child(parent, node))
				next = append(next, childID(parent, node))
			}
		}
		level = next
	}
	return f
}

func (f *forest) any() runlog.RunID { return f.runs[rand.N(len(f.runs))] }

func (f *forest) run(statement string, args ...any) error {
	_, err := f.pool.Exec(f.ctx, statement, args...)
	return err
}

// act does one of the things that people, applications and replicas do.
func (f *forest) act() error {
	n := rand.N(len(f.done))
	f.done[n].Add(1)
	switch n {
	case 0:
		return f.run(`select pgexec.cancel($1)`, f.any())
	case 1:
		return f.run(`select pgexec.pause($1)`, f.any())
	case 2:
		return f.run(`select pgexec.resume($1, add_tokens => 1)`, f.any())
	case 3:
		return f.run(`select pgexec.retry($1)`, f.any())
	case 4:
		return f.run(`insert into pgexec.signals (run_id, name) values ($1, 'go'), ($2, 'go'), ($3, 'go')`, f.any(), f.any(), f.any())
	case 5: // a claim, of a good part of what is free
		return f.run(`with free as (select run_id from pgexec.runs where owner is null and status <> 'paused' and random() < 0.5 for update skip locked),
				claimed as (update pgexec.runs r set status = 'running', owner = 1, epoch = epoch + 1, wake_job = null from free where r.run_id = free.run_id returning r.run_id)
			insert into pgexec.run_log select run_id, 1 + coalesce((select max(seq) from pgexec.run_log l where l.run_id = c.run_id), 0), $1 from claimed c`, f.claim)
	case 6:
		_, err := f.pool.Exec(f.ctx, sql.WakeDue, dueBatch, int64(500_000))
		return err
	case 7:
		_, err := f.pool.Exec(f.ctx, sql.WakeSweep, int64(0), sweepPage, "pgexec-1", int64(0), []int64{})
		return err
	case 8: // an application, whose transaction takes a moment
		return pgx.BeginFunc(f.ctx, f.pool, func(tx pgx.Tx) error {
			id := f.any()
			if _, err := tx.Exec(f.ctx, `update pgexec.runs set labels = '{"seen": true}' where run_id = $1`, id); err != nil {
				return err
			}
			_, err := tx.Exec(f.ctx, `select pgexec.signal($1, 'go')`, id)
			return err
		})
	case 9: // workers, whose leases are over at once
		return f.run(`select pgexec.take('t', 'w', '1 us', 5)`)
	case 10:
		return f.run(`select pgexec.complete(task_id, 'w'), pgexec.extend(task_id, 'w') from pgexec.tasks where state = 'taken' order by random() limit 1`)
	case 11:
		return f.run(`select pgexec.fail(task_id, 'w', 'no') from pgexec.tasks where state = 'taken' order by random() limit 1`)
	}
	return f.own(n)
}

// own does one of the things that the owner of a run does.
func (f *forest) own(n int) error {
	id := f.any()
	var owner, epoch, head, seen int64
	err := f.pool.QueryRow(f.ctx, `select coalesce(owner, 0), epoch, coalesce((select max(seq) from pgexec.run_log l where l.run_id = r.run_id), 0), inbox
		from pgexec.runs r where run_id = $1`, id).Scan(&owner, &epoch, &head, &seen)
	if err != nil || owner == 0 {
		return err
	}
	switch n {
	case 12:
		_, err := Park(f.ctx, f.pool, ParkParams{RunID: id, Owner: 1, Epoch: runlog.Epoch(epoch), Inbox: seen})
		return err
	case 13:
		p := child(id, fmt.Sprint("n", rand.N(3)))
		p.Epoch = runlog.Epoch(epoch)
		_, err := StartChild(f.ctx, f.pool, p)
		return err
	case 14:
		p := tasksOf(id, fmt.Sprint("n", rand.N(3)), fmt.Sprint("m", rand.N(3)))
		p.Epoch = runlog.Epoch(epoch)
		p.Tasks[0].Attempt += rand.N(2)
		_, err := StartTasks(f.ctx, f.pool, p)
		return err
	}
	status := []string{"succeeded", "failed", "failed", "paused"}[rand.N(4)]
	return f.writer.Open(id, 1, runlog.Epoch(epoch), runlog.Seq(head)).
		Finish(f.ctx, runlog.FinishParams{Record: f.record, Status: status, Inbox: &seen})
}

// Requests, signals, claims, parks and ends of parents and children, in one
// statement each, never deadlock, and no other error than their refusals comes out.
func TestTree_NobodyDeadlocks(t *testing.T) {
	b := setup(t)
	f := plant(b, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f.ctx = ctx
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(5000)
	for range 10 {
		wg.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				var pgErr *pgconn.PgError
				err := f.act()
				switch {
				case err == nil, errors.Is(err, runlog.ErrFenced), errors.Is(err, runlog.ErrChanged):
				case errors.As(err, &pgErr) && pgErr.Code == "55000": // a signal to a run that has ended, a task that somebody else has ended
				case errors.As(err, &pgErr) && pgErr.Code == "23505": // a claim whose log has grown meanwhile
				default:
					t.Errorf("error %v", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range f.done {
		if f.done[i].Load() == 0 {
			t.Errorf("nothing of kind %d was done", i)
		}
	}
	b.exec(sql.WakeTasks)
	for what, condition := range map[string]string{
		"has a wake without a job":      `r.wake_job is not null and not exists (select from pgexec.river_job j where j.id = r.wake_job)`,
		"has ended and yet is wanted":   `r.wanted is not null and r.status in ('succeeded', 'failed', 'cancelled')`,
		"is to be cancelled, not woken": `r.wanted = 'cancel' and r.owner is null and (r.status <> 'queued' or r.wake_job is null)`,
		"is deeper than it is":          `r.depth <> (select p.depth + 1 from pgexec.runs p where p.run_id = r.parent_run_id)`,
		"has ended and yet has a task":  `r.status in ('succeeded', 'failed', 'cancelled') and exists (select from pgexec.tasks t where t.run_id = r.run_id)`,
	} {
		if n := get[int](b, `select count(*) from pgexec.runs r where `+condition); n > 0 {
			t.Errorf("%d times a run %s", n, what)
		}
	}
}
