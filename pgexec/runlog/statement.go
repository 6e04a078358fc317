package runlog

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pgexec/runtime/sql"
)

// arguments are the columns of a statement for many runs, kept between flushes.
type arguments struct {
	ids     pgtype.FlatArray[RunID]
	heads   pgtype.FlatArray[int64]
	owners  pgtype.FlatArray[int32]
	epochs  pgtype.FlatArray[int64]
	records pgtype.FlatArray[[]byte]

	restIDs     pgtype.FlatArray[RunID]
	restSeqs    pgtype.FlatArray[int64]
	restRecords pgtype.FlatArray[[]byte]

	statuses   pgtype.FlatArray[string]
	results    pgtype.FlatArray[[]byte]
	resultSeqs pgtype.FlatArray[int64]
	errors     pgtype.FlatArray[[]byte]
	reasons    pgtype.FlatArray[[]byte]

	inboxes      pgtype.FlatArray[*int64]
	inputTokens  pgtype.FlatArray[int64]
	outputTokens pgtype.FlatArray[int64]
	costs        pgtype.FlatArray[int64]
	unpriced     pgtype.FlatArray[int64]
	nodes        pgtype.FlatArray[int64]
	mayAsk       pgtype.FlatArray[bool]
}

// send makes one attempt and sets the outcome of each flight, or returns an error and knows nothing. The flights are
// in the order of their ids.
func (f *flusher) send(ctx context.Context, a action, flights []*flight) error {
	for _, fl := range flights {
		fl.outcome = refused
	}
	return f.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if a == finishRuns {
			return f.sendFinish(ctx, conn, flights)
		}
		if len(flights) == 1 && len(flights[0].entries) == 1 {
			return f.sendOne(ctx, conn, flights[0])
		}
		return f.sendMany(ctx, conn, flights)
	})
}

// sendOne is the latency path.
func (f *flusher) sendOne(ctx context.Context, conn *pgx.Conn, fl *flight) error {
	t := fl.tail
	tag, err := conn.Exec(ctx, sql.RunlogAppendOne,
		t.id, int64(fl.head), fl.entries[0].record, int32(t.owner), int64(t.epoch))
	if tag.RowsAffected() == 1 {
		fl.outcome = written
	}
	return err
}

func (f *flusher) sendMany(ctx context.Context, conn *pgx.Conn, flights []*flight) error {
	a := &f.args
	a.reset()
	for _, fl := range flights {
		a.addFirst(fl)
		for i, e := range fl.entries[1:] {
			a.restIDs = append(a.restIDs, fl.tail.id)
			a.restSeqs = append(a.restSeqs, int64(fl.head)+2+int64(i))
			a.restRecords = append(a.restRecords, e.record)
		}
	}
	rows, err := conn.Query(ctx, sql.RunlogAppendMany,
		a.ids, a.heads, a.owners, a.epochs, a.records, a.restIDs, a.restSeqs, a.restRecords)
	return markWritten(rows, err, flights)
}

func (f *flusher) sendFinish(ctx context.Context, conn *pgx.Conn, flights []*flight) error {
	a := &f.args
	a.reset()
	for _, fl := range flights {
		a.addFirst(fl)
		p := fl.entries[0].finish
		a.statuses = append(a.statuses, p.Status)
		a.results = append(a.results, p.Result)
		a.resultSeqs = append(a.resultSeqs, int64(p.ResultSeq))
		a.errors = append(a.errors, orNil(p.Error))
		a.reasons = append(a.reasons, orNil(p.Reason))
		a.inboxes = append(a.inboxes, p.Inbox)
		a.inputTokens = append(a.inputTokens, p.InputTokens)
		a.outputTokens = append(a.outputTokens, p.OutputTokens)
		a.costs = append(a.costs, p.CostNanoUSD)
		a.unpriced = append(a.unpriced, p.Unpriced)
		a.nodes = append(a.nodes, p.Nodes)
		a.mayAsk = append(a.mayAsk, p.MayAsk)
	}
	rows, err := QueryPlanned[finishRow](ctx, conn, sql.PlanByKey, sql.RunlogFinish,
		a.ids, a.heads, a.owners, a.epochs, a.records, a.statuses, a.results, a.resultSeqs, a.errors, a.reasons,
		a.inboxes, a.inputTokens, a.outputTokens, a.costs, a.unpriced, a.nodes, a.mayAsk)
	if err != nil {
		return err
	}
	for _, r := range rows {
		switch r.Outcome {
		case "ended":
			find(flights, r.RunID).outcome = written
		case "busy":
			find(flights, r.RunID).outcome = busy
		case "changed":
			find(flights, r.RunID).outcome = changed
		case "tell":
			f.teller.owner(r.RunID)
		case "woken":
			f.teller.queue(*r.Queue)
		}
	}
	return nil
}

// finishRow says what became of a run, or of a parent.
type finishRow struct {
	RunID   RunID
	Outcome string
	Queue   *string // of a parent's wake
}

// orNil turns an empty text into NULL. It goes as bytes, which the statement makes valid text.
func orNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// markWritten reads the ids of the runs that a statement wrote.
func markWritten(rows pgx.Rows, err error, flights []*flight) error {
	if err != nil {
		return err
	}
	var id RunID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		find(flights, id).outcome = written
		return nil
	})
	return err
}

// find returns the flight of a run that is among them.
func find(flights []*flight, id RunID) *flight {
	i, _ := slices.BinarySearchFunc(flights, id, func(fl *flight, id RunID) int {
		return bytes.Compare(fl.tail.id[:], id[:])
	})
	return flights[i]
}

// readNext reads the records right after the flights' heads, where there are any.
func (f *flusher) readNext(ctx context.Context, flights []*flight) (map[RunID][]byte, error) {
	var ids pgtype.FlatArray[RunID]
	var seqs pgtype.FlatArray[int64]
	for _, fl := range flights {
		ids = append(ids, fl.tail.id)
		seqs = append(seqs, int64(fl.head)+1)
	}
	found := make(map[RunID][]byte, len(flights))
	err := f.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sql.RunlogLook, ids, seqs)
		if err != nil {
			return err
		}
		var id RunID
		var record []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &record}, func() error {
			found[id] = record
			return nil
		})
		return err
	})
	return found, err
}

func (a *arguments) addFirst(fl *flight) {
	a.ids = append(a.ids, fl.tail.id)
	a.heads = append(a.heads, int64(fl.head))
	a.owners = append(a.owners, int32(fl.tail.owner))
	a.epochs = append(a.epochs, int64(fl.tail.epoch))
	a.records = append(a.records, fl.entries[0].record)
}

// reset empties the columns and lets go of the last flush's records.
func (a *arguments) reset() {
	a.ids, a.heads, a.owners, a.epochs = a.ids[:0], a.heads[:0], a.owners[:0], a.epochs[:0]
	a.restIDs, a.restSeqs, a.resultSeqs = a.restIDs[:0], a.restSeqs[:0], a.resultSeqs[:0]
	a.inputTokens, a.outputTokens, a.costs, a.unpriced, a.nodes = a.inputTokens[:0], a.outputTokens[:0], a.costs[:0], a.unpriced[:0], a.nodes[:0]
	a.mayAsk = a.mayAsk[:0]
	for _, column := range []*pgtype.FlatArray[[]byte]{&a.records, &a.restRecords, &a.results, &a.errors, &a.reasons} {
		clear(*column)
		*column = (*column)[:0]
	}
	clear(a.statuses)
	a.statuses = a.statuses[:0]
	clear(a.inboxes)
	a.inboxes = a.inboxes[:0]
}
