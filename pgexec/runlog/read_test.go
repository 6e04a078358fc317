package runlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// logOf makes a run whose log has a claim and node records with outputs of the given sizes.
func (b *bundle) logOf(sizes ...int) (runlog.RunID, [][]byte) {
	b.Helper()
	id := b.newRun()
	b.claim(b.pool, id, 1)
	records := [][]byte{claimRecord(b, 1, 1)}
	for i, size := range sizes {
		rec := encode(b, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
			Id: fmt.Sprint(i), Output: &pb.Payload{Value: &pb.Payload_Json{Json: bytes.Repeat([]byte{byte(i)}, size)}},
		}}})
		records = append(records, rec)
	}
	b.exec(`insert into pgexec.run_log (run_id, seq, record) select $1, 1 + i, r from unnest($2::bytea[]) with ordinality u (r, i)`,
		id, records[1:])
	return id, records
}

// G2: records come in order and whole, from any position, whatever their sizes are.
func TestRead_AllRecordsInOrder_G2(t *testing.T) {
	for name, sizes := range map[string][]int{
		"claim only":   {},
		"small":        slices.Repeat([]int{10}, 3000),
		"mixed":        slices.Repeat([]int{0, 600, 5000, 1, 100_000, 4096, 70}, 30),
		"large":        {900_000, 900_000, 900_000},
		"large behind": append(slices.Repeat([]int{100}, 100), 900_000, 5),
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			id, want := b.logOf(sizes...)
			for _, after := range []int{0, 1, len(want) / 2, len(want) - 1, len(want)} {
				var kept []*pb.Record
				err := runlog.Read(b.ctx, b.pool, id, runlog.Seq(after), func(seq runlog.Seq, rec *pb.Record) error {
					if seq != runlog.Seq(after+len(kept)+1) {
						t.Errorf("record %d came after %d records from %d", seq, len(kept), after)
					}
					node := rec.GetNode()
					if seq > 1 {
						rec = &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: node.GetId(), Output: node.GetOutput()}}}
					}
					kept = append(kept, rec)
					return nil
				})
				// All of them are compared at the end: what they refer to is for the reader to keep.
				same := func(rec *pb.Record, raw []byte) bool { return bytes.Equal(encode(t, rec), raw) }
				if err != nil || !slices.EqualFunc(kept, want[after:], same) {
					t.Errorf("after %d: %d records, %v; want %d", after, len(kept), err, len(want)-after)
				}
			}
		})
	}
}

func TestRead_UnknownRunIsEmpty(t *testing.T) {
	b := setup(t)
	err := runlog.Read(b.ctx, b.pool, runlog.RunID{1}, 0, func(runlog.Seq, *pb.Record) error {
		t.Error("a record of a run that is not there")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A log that somebody has damaged is not replayed as if it were whole: the records before the hole, then an error.
func TestRead_GapIsAnError(t *testing.T) {
	b := setup(t)
	id, _ := b.logOf(slices.Repeat([]int{600}, 100)...)
	for _, c := range []struct{ missing, after, read int }{{50, 0, 49}, {1, 0, 0}, {51, 50, 0}} {
		if c.missing != 50 {
			b.exec(`delete from pgexec.run_log where run_id = $1 and seq = $2`, id, c.missing)
		} else {
			b.exec(`delete from pgexec.run_log where run_id = $1 and seq in (50, 52)`, id)
		}
		got := 0
		err := runlog.Read(b.ctx, b.pool, id, runlog.Seq(c.after), func(runlog.Seq, *pb.Record) error { got++; return nil })
		var gap *runlog.GapError
		if !errors.As(err, &gap) || gap.RunID != id || gap.Want != runlog.Seq(c.missing) || gap.Got <= gap.Want || got != c.read {
			t.Errorf("record %d is missing: %d records after %d, then %v", c.missing, got, c.after, err)
		}
	}
}

func TestRead_UndecodableRecordIsAnError(t *testing.T) {
	b := setup(t)
	id, _ := b.logOf(10, 10, 10)
	b.exec(`update pgexec.run_log set record = '\xffff' where run_id = $1 and seq = 3`, id)
	got := 0
	err := runlog.Read(b.ctx, b.pool, id, 0, func(runlog.Seq, *pb.Record) error { got++; return nil })
	if err == nil || got != 2 {
		t.Errorf("%d records, then %v", got, err)
	}
}

// The reader's own error ends the reading and comes back; so does the end of the context.
func TestRead_StopsEarly(t *testing.T) {
	b := setup(t)
	id, _ := b.logOf(slices.Repeat([]int{50_000}, 200)...)
	enough := errors.New("enough")
	err := runlog.Read(b.ctx, b.pool, id, 0, func(seq runlog.Seq, _ *pb.Record) error {
		if seq == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	err = runlog.Read(ctx, b.pool, id, 0, func(seq runlog.Seq, _ *pb.Record) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.until(func() bool { return b.pool.Stat().AcquiredConns() == 0 })
}
