package blob

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/sql"
)

const (
	chunkBytes = 1 << 20
	// chunksRemoved bounds the pieces that one statement removes.
	chunksRemoved = 64
)

// database is the bucket that is the database: rows of pgexec.blob_chunks. Each piece is a transaction of its own, so
// that none is open for long; what counts is the row of pgexec.blobs that says all are there.
type database struct{ pool *pgxpool.Pool }

func (d database) write(ctx context.Context, key string, r io.Reader) error {
	chunk := make([]byte, chunkBytes)
	for n := 0; ; n++ {
		size, err := io.ReadFull(r, chunk)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return err
		}
		if size > 0 || n == 0 { // an empty blob is one empty piece
			if _, err := d.pool.Exec(ctx, sql.BlobChunkWrite, Database+key, n, chunk[:size]); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

func (d database) read(ctx context.Context, key string) (io.ReadCloser, error) {
	return &chunks{ctx: ctx, pool: d.pool, url: Database + key}, nil
}

func (d database) size(ctx context.Context, key string) (int64, error) {
	var size *int64
	if err := d.pool.QueryRow(ctx, sql.BlobChunkSize, Database+key).Scan(&size); err != nil {
		return 0, err
	}
	if size == nil {
		return 0, errAbsent
	}
	return *size, nil
}

func (d database) remove(ctx context.Context, key string) error {
	for {
		tag, err := d.pool.Exec(ctx, sql.BlobChunkRemove, Database+key, chunksRemoved)
		if err != nil || tag.RowsAffected() < chunksRemoved {
			return err
		}
	}
}

func (database) close() error { return nil }

// chunks reads a blob piece by piece. No connection is held in between.
type chunks struct {
	ctx  context.Context // of one read, as with an HTTP response's body
	pool *pgxpool.Pool
	url  string
	next int
	rest []byte
	err  error
}

func (c *chunks) Read(p []byte) (int, error) {
	for len(c.rest) == 0 && c.err == nil {
		c.fetch()
	}
	if len(c.rest) == 0 {
		return 0, c.err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *chunks) fetch() {
	err := c.pool.QueryRow(c.ctx, sql.BlobChunkRead, c.url, c.next).Scan(&c.rest)
	switch {
	case err == nil:
		c.next++
	case !errors.Is(err, pgx.ErrNoRows):
		c.err = err
	case c.next == 0:
		c.err = errAbsent
	default:
		c.err = io.EOF
	}
}

func (c *chunks) Close() error { return nil }
