package runlog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// Read calls fn with each record after the given seq, in order. Decoding overlaps with fetching. A record is good until fn returns;
// its payloads, errors, usage and texts may be kept: a reader that keeps one of them keeps some of its neighbours in memory, too.
// A log that is not contiguous is a [*GapError], a record that is none a [*DecodeError]; an error of fn ends the reading and is returned as it
// is. fn must not wait for anything: a snapshot is held until the last record was fetched (G8).
func Read(ctx context.Context, pool *pgxpool.Pool, id RunID, after Seq, fn func(Seq, *pb.Record) error) error {
	var d decoder
	return newFetcher(id, after).read(ctx, pool, func(c chunk) error {
		return c.each(func(seq Seq, data []byte) error {
			rec, err := d.decode(data)
			if err != nil {
				return &DecodeError{RunID: id, Seq: seq, Err: err}
			}
			return fn(seq, rec)
		})
	})
}

const (
	// Chunks grow from the first size, which a short log fills and the reader gets early, to the last.
	minChunkBytes = 4 << 10
	maxChunkBytes = 128 << 10
	// chunksAhead bounds how far fetching may be ahead of the reader.
	chunksAhead = 4
)

// chunk is a number of consecutive records with their bytes in one piece.
type chunk struct {
	first Seq
	data  []byte
	ends  []int
}

func (c chunk) each(fn func(Seq, []byte) error) error {
	start := 0
	for i, end := range c.ends {
		if err := fn(c.first+Seq(i), c.data[start:end:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// fetcher reads rows in a goroutine of its own. It copies each record once, out of the connection's buffer.
type fetcher struct {
	id     RunID
	next   Seq
	chunks chan chunk
	// current is the chunk that is being filled, size that of the last one made.
	current chunk
	size    int
}

func newFetcher(id RunID, after Seq) *fetcher {
	return &fetcher{id: id, next: after + 1, chunks: make(chan chunk, chunksAhead)}
}

// read calls fn with one chunk after another, in the order of the log.
func (f *fetcher) read(ctx context.Context, pool *pgxpool.Pool, fn func(chunk) error) error {
	ctx, cancel := context.WithCancel(ctx)
	fetched := make(chan error, 1)
	go func() {
		defer close(f.chunks)
		fetched <- f.fetch(ctx, pool)
	}()
	var err error
	for c := range f.chunks {
		if err = fn(c); err != nil {
			break
		}
	}
	cancel()
	fetchErr := <-fetched
	if err == nil {
		err = fetchErr
	}
	return err
}

func (f *fetcher) fetch(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, sql.RunlogRead, pgx.QueryResultFormats{pgx.BinaryFormatCode}, f.id, int64(f.next)-1)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer rows.Close()
	err = f.gather(ctx, rows)
	if sendErr := f.send(ctx); err == nil {
		err = sendErr
	}
	return err
}

func (f *fetcher) gather(ctx context.Context, rows pgx.Rows) error {
	for rows.Next() {
		seq, record, err := rowOf(rows)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if seq != f.next {
			return &GapError{RunID: f.id, Want: f.next, Got: seq}
		}
		if f.current.data == nil || len(f.current.data)+len(record) > cap(f.current.data) {
			if err := f.send(ctx); err != nil {
				return err
			}
			f.begin(len(record))
		}
		f.next++
		f.current.data = append(f.current.data, record...)
		f.current.ends = append(f.current.ends, len(f.current.data))
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}

// begin starts a chunk with room for at least the next record.
func (f *fetcher) begin(room int) {
	f.size = min(max(2*f.size, minChunkBytes), maxChunkBytes)
	f.current = chunk{first: f.next, data: make([]byte, 0, max(f.size, room))}
}

// send hands the chunk over.
func (f *fetcher) send(ctx context.Context) error {
	if len(f.current.ends) == 0 {
		return nil
	}
	select {
	case f.chunks <- f.current:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rowOf reads a row of [sql.RunlogRead]. In the binary format, which all but the simple protocol give, the
// record is the connection's buffer, good until the next row.
func rowOf(rows pgx.Rows) (Seq, []byte, error) {
	if rows.FieldDescriptions()[1].Format == pgx.BinaryFormatCode {
		raw := rows.RawValues()
		return Seq(binary.BigEndian.Uint64(raw[0])), raw[1], nil
	}
	var seq Seq
	var record []byte
	err := rows.Scan(&seq, &record)
	return seq, record, err
}
