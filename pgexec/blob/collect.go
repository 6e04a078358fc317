package blob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

const (
	// DefaultGrace is how long a blob is kept that nobody refers to.
	DefaultGrace = 24 * time.Hour

	// collectInterval is the time between two passes of a replica's collector.
	collectInterval = time.Hour
	// refPage, blobPage and removePage bound what one statement looks at. Settling a reference reads its run's log.
	refPage, blobPage, removePage = 50, 1000, 100
	// collectTimeout bounds each statement of a pass.
	collectTimeout = 30 * time.Second
)

// Collected is what a pass has done.
type Collected struct {
	// Refs were dropped: their runs have ended without a record that has them.
	Refs int
	// Blobs and their Bytes were removed from their stores.
	Blobs int
	Bytes int64
}

// ErrOtherCollector ends a pass that meets another one, which may have judged some blobs before they could go.
var ErrOtherCollector = errors.New("another collector is at work and this one has given way: what is left goes with the next pass")

// Collect makes one pass over the stores of s: it drops the references of ended runs that came to nothing, and removes
// the blobs that nobody refers to. What was touched within the grace is left alone. Any number of passes may
// be made at the same time; one that meets another judges no more blobs, removes those that have been judged, and
// returns [ErrOtherCollector] with what it has done.
func (s *Store) Collect(ctx context.Context, grace time.Duration) (done Collected, err error) {
	judged := s.settleRefs(ctx, grace, &done)
	if judged == nil {
		judged = s.doom(ctx, grace)
	}
	if judged == nil || errors.Is(judged, ErrOtherCollector) {
		err = s.removeDoomed(ctx, &done)
	}
	if err == nil {
		err = judged
	}
	if err == nil {
		err = s.sweep(ctx, grace)
	}
	if err != nil {
		err = fmt.Errorf("collect blobs: %w", err)
	}
	return done, err
}

// RunCollector makes a pass now and then until ctx ends.
func (s *Store) RunCollector(ctx context.Context, log *slog.Logger) {
	for {
		timer := time.NewTimer(collectInterval/2 + rand.N(collectInterval))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		done, err := s.Collect(ctx, DefaultGrace)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrOtherCollector):
			log.Info("leaving blobs to another collector", "blobs", done.Blobs, "bytes", done.Bytes)
		case err != nil:
			log.Warn("collect blobs, trying again later", "error", err)
		case done.Blobs > 0:
			log.Info("collected blobs", "blobs", done.Blobs, "bytes", done.Bytes)
		}
	}
}

// refsPage is the answer of one look at open references.
type refsPage struct {
	Mine       bool
	LookedAt   int
	LastRun    *[16]byte
	LastSHA256 []byte
	Dropped    int
}

func (s *Store) settleRefs(ctx context.Context, grace time.Duration, done *Collected) error {
	var run [16]byte
	sha256 := []byte{}
	for {
		page, err := planned[refsPage](ctx, s, sql.BlobCollectRefs, run, sha256, grace.Microseconds(), refPage)
		if err != nil {
			return err
		}
		done.Refs += page.Dropped
		switch {
		case !page.Mine:
			return ErrOtherCollector
		case page.LookedAt < refPage:
			return nil
		}
		run, sha256 = *page.LastRun, page.LastSHA256
	}
}

// blobsPage is the answer of one look at blobs.
type blobsPage struct {
	Mine     bool
	LookedAt int
	LastURL  *string
	Doomed   int
}

func (s *Store) doom(ctx context.Context, grace time.Duration) error {
	for after := ""; ; {
		page, err := planned[blobsPage](ctx, s, sql.BlobCollectDoom, after, s.bases(), grace.Microseconds(), blobPage)
		switch {
		case err != nil:
			return err
		case !page.Mine:
			return ErrOtherCollector
		case page.LookedAt < blobPage:
			return nil
		}
		after = *page.LastURL
	}
}

// doomed is a blob that is to be removed.
type doomed struct {
	URL  string
	Size int64
}

// removeDoomed removes what this pass, or one that did not come to its end, has doomed. One that cannot be removed
// does not keep the others.
func (s *Store) removeDoomed(ctx context.Context, done *Collected) error {
	var failed error
	for after := ""; ; {
		rows, err := s.pool.Query(ctx, sql.BlobDoomed, after, s.bases(), removePage)
		if err != nil {
			return err
		}
		page, err := pgx.CollectRows(rows, pgx.RowToStructByPos[doomed])
		if err != nil {
			return err
		}
		var removed []string
		for _, d := range page {
			after = d.URL
			if err := s.remove(ctx, d.URL); err != nil {
				failed = fmt.Errorf("remove blob %s: %w", d.URL, err)
				continue
			}
			removed = append(removed, d.URL)
			done.Bytes += d.Size
		}
		tag, err := s.pool.Exec(ctx, sql.BlobForget, removed)
		if err != nil {
			return err
		}
		done.Blobs += int(tag.RowsAffected())
		if len(page) < removePage || ctx.Err() != nil {
			return failed
		}
	}
}

func (s *Store) sweep(ctx context.Context, grace time.Duration) error {
	for _, base := range s.bases() {
		b, err := s.open(ctx, base)
		if err != nil {
			return err
		}
		if c, ok := b.(*cloud); ok {
			if err := c.sweep(ctx, grace); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) remove(ctx context.Context, url string) error {
	b, key, err := s.locate(ctx, url)
	if err != nil {
		return err
	}
	return b.remove(ctx, key)
}

// planned runs a statement of a pass in one round trip, with a plan that finds rows by key however small the tables were.
func planned[T any](ctx context.Context, s *Store, statement string, args ...any) (row T, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(sql.PlanByKey)
	batch.Queue(statement, args...).Query(func(rows pgx.Rows) error {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[T])
		return err
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return row, err
	}
	return row, nil
}
