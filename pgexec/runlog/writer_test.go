package runlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func isClosed(err error) bool { return errors.Is(err, runlog.ErrClosed) }

// G2, G5: many runs append at once; of each run the records are in the log in the order of the appends, the
// callbacks come in that order, and each after its commit.
func TestAppend_InOrderForEachRun_G2(t *testing.T) {
	b := setup(t)
	const runs, records = 40, 30
	var committed sync.Map // the heads that were told, by run
	w := b.writer(func(cfg *runlog.WriterConfig) {
		cfg.MaxBatchRows = 50
		cfg.CommittedFunc = func(id runlog.RunID, head runlog.Seq) {
			last, _ := committed.Swap(id, head)
			if last != nil && last.(runlog.Seq) >= head {
				t.Errorf("head %d of run %s was told after %d", head, id, last)
			}
		}
	})
	var wg sync.WaitGroup
	all := make([]*appending, runs)
	ids := make([]runlog.RunID, runs)
	wants := make([][][]byte, runs)
	for i := range runs {
		ids[i] = b.newRun()
		tail := b.open(w, ids[i], 1)
		wants[i] = [][]byte{claimRecord(t, 1, 1)}
		for k := range records {
			wants[i] = append(wants[i], node(t, fmt.Sprintf("%d-%d", i, k), 1))
		}
		wg.Go(func() { all[i] = b.appendAll(tail, wants[i][1:]...) })
	}
	wg.Wait()
	for i := range runs {
		all[i].wantSeqs(2)
		b.wantLog(ids[i], wants[i]...)
	}
	w.Close()
	for _, id := range ids {
		if head, _ := committed.Load(id); head != runlog.Seq(records+1) {
			t.Errorf("head of run %s was told as %v, want %d", id, head, records+1)
		}
	}
}

// G5: a record can be read by anybody when its callback comes.
func TestAppend_DurableBeforeCallback_G5(t *testing.T) {
	b := setup(t)
	w := b.writer(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	for i := range 20 {
		seen := make(chan bool, 1)
		tail.Append(node(t, fmt.Sprint(i), 1), func(seq runlog.Seq, err error) {
			var there bool
			readErr := b.pool.QueryRow(b.ctx, `select exists (select from pgexec.run_log where run_id = $1 and seq = $2)`,
				id, seq).Scan(&there)
			seen <- err == nil && readErr == nil && there
		})
		if !await(b, seen, "callback") {
			t.Fatalf("record %d is not there when its callback comes", i)
		}
	}
}

// After a failure a run's later records get the same error, and the server does not see them.
func TestAppend_NothingIsSentAfterAFailure(t *testing.T) {
	b := setup(t)
	var l line
	w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Pool = l.pool(b, nil) })
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.claim(b.pool, id, 2)
	b.appendAll(tail, node(t, "a", 1)).wantError(isFenced)
	l.requests.Store(1 << 40)
	b.appendAll(tail, node(t, "b", 1), node(t, "c", 1), node(t, "d", 1)).wantError(isFenced)
	if err := tail.Finish(b.ctx, runlog.FinishParams{Record: node(t, "end", 1), Status: "succeeded"}); !isFenced(err) {
		t.Errorf("finish: %v", err)
	}
	if sent := 1<<40 - l.requests.Load(); sent != 0 {
		t.Errorf("%d statements were sent", sent)
	}
}

func TestWriter_CloseFlushesAllThatIsQueued(t *testing.T) {
	b := setup(t)
	w, gate := b.gatedWriter(nil)
	id := b.newRun()
	tail := b.open(w, id, 1)
	a := b.appendAll(tail, node(t, "a", 1), node(t, "b", 1))
	closed := make(chan struct{})
	go func() { w.Close(); close(closed) }()
	gate()
	await(b, closed, "close")
	a.wantSeqs(2)
	b.appendAll(tail, node(t, "late", 1)).wantError(isClosed)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
}

// An aborted writer gives up flushes that wait, and does not wait for the database.
func TestWriter_AbortEndsPendingAppends(t *testing.T) {
	b := setup(t)
	w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Flushers = 1 })
	stuck, waiting := b.newRun(), b.newRun()
	stuckTail, waitingTail := b.open(w, stuck, 1), b.open(w, waiting, 1)
	tx := b.begin()
	b.claim(tx, stuck, 2)
	inFlight := b.appendAll(stuckTail, node(t, "a", 1))
	b.blockedOn(tx, 1)
	behind := b.appendAll(stuckTail, node(t, "b", 1))
	queued := b.appendAll(waitingTail, node(t, "a", 1))
	finished := make(chan error, 1)
	go func() {
		finished <- waitingTail.Finish(b.ctx, runlog.FinishParams{Record: node(t, "end", 1), Status: "succeeded"})
	}()

	w.Abort()
	for _, a := range []*appending{inFlight, behind, queued} {
		select {
		case <-a.all:
			a.wantError(isClosed)
		default:
			t.Error("a callback was still pending when Abort returned")
		}
	}
	if err := await(b, finished, "finish"); !isClosed(err) {
		t.Errorf("finish: %v", err)
	}
	b.appendAll(waitingTail, node(t, "late", 1)).wantError(isClosed)
}

// An attempt at a flush has its time; then it is made again, on another connection, and the record is there once.
func TestWriter_AttemptThatTakesTooLongIsMadeAgain_G1(t *testing.T) {
	b := setup(t)
	w := b.writer(func(cfg *runlog.WriterConfig) { cfg.Flushers, cfg.FlushTimeout = 1, 300*time.Millisecond })
	id := b.newRun()
	tail := b.open(w, id, 1)
	b.appendAll(tail, node(t, "a", 1)).wantSeqs(2)
	tx := b.begin()
	b.claim(tx, id, 2)
	slow := b.appendAll(tail, node(t, "b", 1))
	first := b.blockedOn(tx, 1)[0]
	b.until(func() bool { return !slices.Contains(b.blockedOn(tx, 1), first) })
	if err := tx.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
	slow.wantSeqs(3)
	b.wantLog(id, claimRecord(t, 1, 1), node(t, "a", 1), node(t, "b", 1))
}

// Appends while the writer is closed or aborted: each callback comes exactly once and in order.
func TestWriter_EachCallbackOnceWhileItStops(t *testing.T) {
	for name, stop := range map[string]func(*runlog.Writer){"close": (*runlog.Writer).Close, "abort": (*runlog.Writer).Abort} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			w := b.writer(nil)
			var wg sync.WaitGroup
			var started atomic.Int64
			for range 20 {
				tail := b.open(w, b.newRun(), 1)
				wg.Go(func() {
					const n = 200
					var order []int
					var mu sync.Mutex
					all := make(chan struct{})
					for k := range n {
						tail.Append(node(t, fmt.Sprint(k), 1), func(runlog.Seq, error) {
							mu.Lock()
							defer mu.Unlock()
							if order = append(order, k); len(order) == n {
								close(all)
							}
						})
						started.Add(1)
					}
					<-all
					if !slices.IsSorted(order) {
						t.Errorf("callbacks came in the order %v", order)
					}
				})
			}
			b.until(func() bool { return started.Load() > 500 })
			stop(w)
			wg.Wait()
		})
	}
}

// C29, C30: the bytes of a record come back as they went in, whatever they are, and nothing else is stored: an
// append costs the same at any length of the log.
func TestAppend_BytesUntouched_C29_C30(t *testing.T) {
	b := setup(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			pool := b.poolInMode(mode)
			w := runlog.NewWriter(runlog.WriterConfig{Pool: pool})
			defer w.Close()
			id := b.newRun()
			tail := b.open(w, id, 1)
			outputs := [][]byte{
				{},
				[]byte(`"\u0000"`),
				[]byte("\"\x00\""),
				[]byte(`"\ud800 lone"`),
				[]byte(`1e999999`),
				{0xff, 0xfe, 0x80},
				bytes.Repeat([]byte(`{"\\x": "''"}`), 100),
				bytes.Repeat([]byte{0}, 300_000),
			}
			want := [][]byte{claimRecord(t, 1, 1)}
			size := len(want[0])
			for i, out := range outputs {
				want = append(want, encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
					Id: fmt.Sprint(i), Output: &pb.Payload{Value: &pb.Payload_Json{Json: out}},
				}}}))
				size += len(want[i+1])
			}
			b.appendAll(tail, want[1]).wantSeqs(2)
			b.appendAll(tail, want[2:]...).wantSeqs(3)
			b.wantLog(id, want...)
			if stored := value[int](b, `select sum(octet_length(record)) from pgexec.run_log where run_id = $1`, id); stored != size {
				t.Errorf("%d bytes are stored for records of %d bytes", stored, size)
			}
			i := 0
			err := runlog.Read(b.ctx, pool, id, 1, func(seq runlog.Seq, rec *pb.Record) error {
				if got := rec.GetNode().GetOutput().GetJson(); !bytes.Equal(got, outputs[i]) {
					t.Errorf("output %d came back as %.80q", i, got)
				}
				i++
				return nil
			})
			if err != nil || i != len(outputs) {
				t.Errorf("%d records were read: %v", i, err)
			}
		})
	}
}
