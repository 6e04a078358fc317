package blob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// MaxBytes bounds a blob.
const MaxBytes = 1 << 30

// Database is the URL of the store that is the database itself, which every replica has.
const Database = "db:"

// cacheBytes bounds what a store keeps in memory of what it has read or written last.
const cacheBytes = 64 << 20

// Config configures a store.
type Config struct {
	// Write is the store that new blobs go to: [Database], or the URL of a directory ("file:///var/lib/blobs") or of a
	// bucket ("s3://bucket/prefix?region=eu-west-1", "gs://…", "azblob://…"), whose driver the program
	// imports. Defaults to [Database].
	Write string
	// Read are further stores from which blobs are read; the database is always one.
	Read []string
}

// Store stores blobs in one place and reads them from several. It is for any number of goroutines at once.
type Store struct {
	pool   *pgxpool.Pool
	writes string   // the base of the store that is written to
	urls   []string // of all stores, as they were given
	cache  *cache

	mu      sync.Mutex
	buckets map[string]bucket // by base, opened on first use
}

// New returns a store. Nothing is opened before its first use; [Store.Check] opens all.
func New(pool *pgxpool.Pool, cfg Config) *Store {
	if cfg.Write == "" {
		cfg.Write = Database
	}
	return &Store{
		pool:    pool,
		writes:  baseOf(cfg.Write),
		urls:    distinct(append(append([]string{cfg.Write}, cfg.Read...), Database)),
		cache:   newCache(cacheBytes),
		buckets: make(map[string]bucket),
	}
}

// distinct keeps the first URL of each store.
func distinct(urls []string) []string {
	var kept []string
	for _, u := range urls {
		if !slices.ContainsFunc(kept, func(k string) bool { return baseOf(k) == baseOf(u) }) {
			kept = append(kept, u)
		}
	}
	return kept
}

// baseOf is what the URLs of a store's blobs begin with: its own without what says how to connect.
func baseOf(store string) string {
	base, _, _ := strings.Cut(store, "?")
	return strings.TrimRight(base, "/")
}

// Check opens every store and says what is wrong with the first that cannot be, or with a directory that cannot be
// written to. Whether a server of objects answers is not asked: runs that need none of it go on without.
func (s *Store) Check(ctx context.Context) error {
	for _, u := range s.urls {
		b, err := s.open(ctx, baseOf(u))
		if err != nil {
			return err
		}
		if c, ok := b.(*cloud); ok && baseOf(u) == s.writes {
			err = c.checkWrite()
		}
		if err != nil {
			return fmt.Errorf("write to blob store %s: %w", baseOf(u), err)
		}
	}
	return nil
}

// Unread returns the stores that have blobs, by what the database knows, and are none of those that s reads.
func (s *Store) Unread(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, sql.BlobStores, s.bases())
	if err != nil {
		return nil, fmt.Errorf("list blob stores: %w", err)
	}
	stores, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list blob stores: %w", err)
	}
	return stores, nil
}

// Close closes what was opened. A later use opens it again.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for base, b := range s.buckets {
		_ = b.close() // nothing is being written: it cannot lose anything
		delete(s.buckets, base)
	}
}

// open returns the bucket of a configured store.
func (s *Store) open(ctx context.Context, base string) (bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[base]; b != nil {
		return b, nil
	}
	for _, u := range s.urls {
		if baseOf(u) != base {
			continue
		}
		if base == Database {
			s.buckets[base] = database{s.pool}
			return s.buckets[base], nil
		}
		b, err := openCloud(ctx, u)
		if err != nil {
			return nil, fmt.Errorf("open blob store %s: %w", base, err)
		}
		s.buckets[base] = b
		return b, nil
	}
	return nil, fmt.Errorf("%s is none of the configured blob stores (%s): add it to those that are read (BlobRead, --blob-read)", base, strings.Join(s.bases(), ", "))
}

func (s *Store) bases() []string {
	bases := make([]string, 0, len(s.urls))
	for _, u := range s.urls {
		bases = append(bases, baseOf(u))
	}
	return bases
}

// locate splits a blob's URL into its store and its key there.
func (s *Store) locate(ctx context.Context, blobURL string) (b bucket, key string, err error) {
	base, key := splitURL(blobURL)
	if base == "" {
		return nil, "", missing(blobURL)
	}
	b, err = s.open(ctx, base)
	return b, key, err
}

// splitURL undoes urlOf.
func splitURL(blobURL string) (base, key string) {
	if key, ok := strings.CutPrefix(blobURL, Database); ok {
		return Database, key
	}
	at := strings.LastIndexByte(blobURL, '/')
	if at > 0 {
		at = strings.LastIndexByte(blobURL[:at], '/')
	}
	if at < 1 {
		return "", ""
	}
	return blobURL[:at], blobURL[at+1:]
}

// urlOf names a place in a store for a content. Of the hash it has two digits in front: some stores
// are slow, or directories large, where all keys begin alike.
func urlOf(base, hash, generation string) string {
	if base == Database {
		return Database + hash + "-" + generation
	}
	return base + "/" + hash[:2] + "/" + hash + "-" + generation
}

// LongestRef returns a reference that is at least as long as any that [Store.Put] returns.
func (s *Store) LongestRef(mediaType string) *pb.Blob {
	url := urlOf(s.writes, strings.Repeat("f", 2*sha256.Size), strings.Repeat("f", 2*generationBytes))
	return &pb.Blob{Url: url, Size: MaxBytes, Sha256: make([]byte, sha256.Size), MediaType: mediaType}
}

// Find returns the blobs with that URL, or with that SHA-256 in hex, from all stores.
func (s *Store) Find(ctx context.Context, name string) ([]*pb.Blob, error) {
	return s.list(ctx, sql.BlobFind, name, hashOf(name))
}

// List returns the blobs that a run refers to, or may still refer to while it has not ended.
func (s *Store) List(ctx context.Context, run [16]byte) ([]*pb.Blob, error) {
	return s.list(ctx, sql.BlobList, run)
}

func (s *Store) list(ctx context.Context, statement string, args ...any) ([]*pb.Blob, error) {
	rows, err := s.pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	blobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*pb.Blob, error) {
		var b pb.Blob
		err := row.Scan(&b.Url, &b.Size, &b.Sha256, &b.MediaType)
		return &b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	return blobs, nil
}

// checkURL says what is wrong with a store's URL before a driver sees it.
func checkURL(store string) (*url.URL, error) {
	u, err := url.Parse(store)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme == "":
		return nil, fmt.Errorf("%q is no URL such as file:///var/lib/blobs or s3://bucket/prefix", store)
	case u.Query().Has("prefix"):
		return nil, fmt.Errorf("write the prefix as the URL's path, as in %s://%s/%s", u.Scheme, u.Host, strings.Trim(u.Query().Get("prefix"), "/"))
	}
	return u, nil
}
