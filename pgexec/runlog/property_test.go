package runlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// fate is what was last said about one appended record.
type fate struct {
	seq  runlog.Seq
	err  error
	told bool
}

// race is one run that two replicas claim and append to.
type race struct {
	*bundle
	id      runlog.RunID
	writers [2]*runlog.Writer
	tails   []*runlog.Tail
	owners  []runlog.ReplicaID
	epochs  []runlog.Epoch

	mu      sync.Mutex
	pending sync.WaitGroup
	fates   map[string]*fate
}

func (b *bundle) newRace() *race {
	r := &race{bundle: b, id: b.newRun(), fates: make(map[string]*fate)}
	for i := range r.writers {
		r.writers[i] = b.writer(nil)
	}
	return r
}

// claim makes replica i+1 the owner. A last append of the former owner may win the seq; then it is tried again.
func (r *race) claim(i int) {
	owner := runlog.ReplicaID(i + 1)
	for {
		tx := r.begin()
		epoch, head, err := r.tryClaim(tx, r.id, owner)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "23505" {
			_ = tx.Rollback(r.ctx)
			continue
		}
		if err = errors.Join(err, tx.Commit(r.ctx)); err != nil {
			r.Fatal(err)
		}
		r.tails = append(r.tails, r.writers[i].Open(r.id, owner, epoch, head))
		r.owners, r.epochs = append(r.owners, owner), append(r.epochs, epoch)
		return
	}
}

// append queues n records at the tail of one of the claims, current or former.
func (r *race) append(claim, n int) {
	for range n {
		r.mu.Lock()
		name := fmt.Sprint(len(r.fates))
		f := &fate{}
		r.fates[name] = f
		r.mu.Unlock()
		r.pending.Add(1)
		record := encode(r, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
			Id: name, Kind: fmt.Sprint(r.epochs[claim]), ReplicaId: int32(r.owners[claim]),
		}}})
		r.tails[claim].Append(record, func(seq runlog.Seq, err error) {
			r.mu.Lock()
			if f.told {
				r.Errorf("record %s was told twice", name)
			}
			*f = fate{seq: seq, err: err, told: true}
			r.mu.Unlock()
			r.pending.Done()
		})
	}
}

// failover loses the newest records, and what the run's row says goes back with them. No statement outlives it,
// such as one that an aborted writer has left behind.
func (r *race) failover(n int) {
	r.pending.Wait()
	r.until(func() bool {
		return value[int](r.bundle, `select count(*) from pg_stat_activity
			where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()`) == 0
	})
	log := r.log(r.id)
	keep := max(1, len(log)-n)
	var claim *pb.Claim
	for _, data := range log[:keep] {
		var rec pb.Record
		if err := proto.Unmarshal(data, &rec); err != nil {
			r.Fatal(err)
		}
		if c := rec.GetClaim(); c != nil {
			claim = c
		}
	}
	r.exec(`delete from pgexec.run_log where run_id = $1 and seq > $2`, r.id, keep)
	r.exec(`update pgexec.runs set owner = $2, epoch = $3 where run_id = $1`, r.id, claim.GetReplicaId(), claim.GetEpoch())
	for _, f := range r.fates {
		if f.seq > runlog.Seq(keep) {
			*f = fate{err: errLost, told: true}
		}
	}
}

var errLost = errors.New("lost in a failover")

// check waits for all callbacks and compares the log with what they said.
func (r *race) check() {
	r.pending.Wait()
	var claim *pb.Claim
	places := make(map[string]runlog.Seq)
	for i, data := range r.log(r.id) {
		var rec pb.Record
		if err := proto.Unmarshal(data, &rec); err != nil {
			r.Fatal(err)
		}
		if c := rec.GetClaim(); c != nil {
			claim = c
			continue
		}
		n := rec.GetNode()
		if n.GetReplicaId() != claim.GetReplicaId() || n.GetKind() != fmt.Sprint(claim.GetEpoch()) {
			r.Errorf("record %d of replica %d, epoch %s, lies behind the claim of replica %d, epoch %d (G3)",
				i+1, n.GetReplicaId(), n.GetKind(), claim.GetReplicaId(), claim.GetEpoch())
		}
		if before, twice := places[n.GetId()]; twice {
			r.Errorf("node %s is recorded at %d and %d (G1)", n.GetId(), before, i+1)
		}
		places[n.GetId()] = runlog.Seq(i + 1)
	}
	for name, f := range r.fates {
		place, there := places[name]
		switch {
		case f.err == nil && place != f.seq:
			r.Errorf("node %s was confirmed at %d and is at %d (G5)", name, f.seq, place)
		case errors.Is(f.err, runlog.ErrFenced) && there:
			r.Errorf("node %s was fenced and is at %d (G3)", name, place)
		case f.err != nil && !isFenced(f.err) && !isClosed(f.err) && !errors.Is(f.err, errLost):
			r.Errorf("node %s: %v", name, f.err)
		}
	}
}

// G1, G2, G3 for any interleaving of claims, appends of owners and former owners, aborted writers and failovers:
// the log is a clean prefix, each record lies behind its owner's claim, once, and where its callback said.
func TestLog_IsCleanPrefix_G2_C07(t *testing.T) {
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := b.newRace()
		r.claim(0)
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(rt *rapid.T) { r.claim(rapid.IntRange(0, 1).Draw(rt, "replica")) },
			"append": func(rt *rapid.T) {
				r.append(rapid.IntRange(0, len(r.tails)-1).Draw(rt, "claim"), rapid.IntRange(1, 5).Draw(rt, "records"))
			},
			"append to the newest": func(rt *rapid.T) { r.append(len(r.tails)-1, rapid.IntRange(1, 5).Draw(rt, "records")) },
			"abort": func(rt *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(rt, "replica")
				r.writers[i].Abort()
				r.writers[i] = b.writer(nil)
			},
			"settle":   func(*rapid.T) { r.pending.Wait() },
			"failover": func(rt *rapid.T) { r.failover(rapid.IntRange(1, 3).Draw(rt, "records")) },
		})
		r.check()
		for _, w := range r.writers {
			w.Close()
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// C07: two replicas claim one run from each other and append all the time, as fast as they can.
func TestLog_TwoReplicasRace_C07(t *testing.T) {
	b := setup(t)
	r := b.newRace()
	for round := range 60 {
		r.claim(round % 2)
		// The former owner and the new one append at once.
		for claim := max(0, len(r.tails)-2); claim < len(r.tails); claim++ {
			r.append(claim, 1+rand.N(8))
		}
	}
	r.check()
	if n := len(r.log(r.id)); n < 61 {
		t.Errorf("the log has %d records", n)
	}
}
