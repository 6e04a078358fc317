package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// places bounds the places that one Put tries: each but the last was doomed while it was being written to, so
// that the writer had rested for longer than a collector's grace.
const places = 3

// Put stores a content, unless it is there already (all of its bytes, as many as it has: what somebody has removed by hand is put back), and has a run refer to it (the zero id: none, so that it is kept for
// the collector's grace only). Both are durable when it returns, so that a record may refer to it. To repeat
// it does no harm. The run must exist. An error is a [*Fault] only if the same bytes can never be stored.
func (s *Store) Put(ctx context.Context, run [16]byte, mediaType string, data []byte) (*pb.Blob, error) {
	ref, err := s.put(ctx, run, mediaType, inMemory(data))
	if err == nil {
		s.cache.add(ref.Sha256, data)
	}
	return ref, err
}

// PutFrom is [Store.Put] for bytes that need not fit into memory: they are read once, into a temporary file if
// they are many.
func (s *Store) PutFrom(ctx context.Context, run [16]byte, mediaType string, r io.Reader) (*pb.Blob, error) {
	c, err := spool(r)
	if err != nil {
		return nil, err
	}
	defer c.drop()
	return s.put(ctx, run, mediaType, c)
}

func (s *Store) put(ctx context.Context, run [16]byte, mediaType string, c *content) (*pb.Blob, error) {
	if c.size > MaxBytes {
		return nil, tooLarge()
	}
	for range places {
		at, stored, err := s.begin(ctx, run, mediaType, c)
		if err != nil {
			return nil, fmt.Errorf("store blob: %w", err)
		}
		if stored {
			stored, err = s.isThere(ctx, at, c.size)
		}
		if err == nil && !stored {
			stored, err = s.write(ctx, at, c)
		}
		if err != nil {
			return nil, fmt.Errorf("store blob %s: %w", at, err)
		}
		if stored {
			return &pb.Blob{Url: at, Size: c.size, Sha256: c.hash[:], MediaType: mediaType}, nil
		}
	}
	return nil, fmt.Errorf("store blob of %d bytes: its place was collected %d times while it was written", c.size, places)
}

// generationBytes of a URL tell the places of one content apart.
const generationBytes = 4

// begin reserves a place, or finds and touches the one that is there.
func (s *Store) begin(ctx context.Context, run [16]byte, mediaType string, c *content) (at string, stored bool, err error) {
	var generation [generationBytes]byte
	rand.Read(generation[:]) //nolint:errcheck // it never fails
	var referrer any
	if run != [16]byte{} {
		referrer = run
	}
	fresh := urlOf(s.writes, hex.EncodeToString(c.hash[:]), hex.EncodeToString(generation[:]))
	err = s.pool.QueryRow(ctx, sql.BlobBegin, fresh, s.writes, c.hash[:], c.size, mediaType, referrer).Scan(&at, &stored)
	return at, stored, err
}

// isThere reports whether a place that holds a content still does: somebody may have removed it, and these are its bytes.
func (s *Store) isThere(ctx context.Context, at string, size int64) (bool, error) {
	b, key, err := s.locate(ctx, at)
	if err != nil {
		return false, err
	}
	found, err := b.size(ctx, key)
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	return found == size, err
}

// write writes the bytes and says so; ok is false if the place was doomed meanwhile, and then nothing is left there.
func (s *Store) write(ctx context.Context, at string, c *content) (ok bool, err error) {
	b, key, err := s.locate(ctx, at)
	if err != nil {
		return false, err
	}
	if err := c.each(func(r io.Reader) error { return b.write(ctx, key, r) }); err != nil {
		return false, err
	}
	tag, err := s.pool.Exec(ctx, sql.BlobStored, at)
	if err != nil || tag.RowsAffected() > 0 {
		return err == nil, err
	}
	return false, b.remove(ctx, key)
}

// Hold has a run refer to blobs that are there, by their contents; those that are nowhere are passed over. With lasting
// the reference lives as long as the run, without it only if the run's log has it when the run has ended.
func (s *Store) Hold(ctx context.Context, run [16]byte, contents [][]byte, lasting bool) error {
	if _, err := s.pool.Exec(ctx, sql.BlobHold, run, contents, lasting); err != nil {
		return fmt.Errorf("refer to blobs: %w", err)
	}
	return nil
}

var (
	refMark = []byte(`"$blob"`)
	hashes  = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
)

// Mentioned reports whether a JSON text may refer to blobs.
func Mentioned(json []byte) bool { return bytes.Contains(json, refMark) }

// ContentsIn returns the contents of the blobs that a JSON text refers to, and perhaps of some that it only mentions.
func ContentsIn(json []byte) [][]byte {
	if !Mentioned(json) {
		return nil
	}
	var found [][]byte
	seen := make(map[string]bool)
	for _, text := range hashes.FindAll(json, -1) {
		if hash := hashOf(string(text)); !seen[string(text)] {
			seen[string(text)] = true
			found = append(found, hash)
		}
	}
	return found
}

// hashOf reads a SHA-256 in hex; nil if it is none.
func hashOf(text string) []byte {
	hash, err := hex.DecodeString(text)
	if err != nil || len(hash) != sha256.Size {
		return nil
	}
	return hash
}

// content is what is to be stored: in memory, or in a temporary file.
type content struct {
	hash [sha256.Size]byte
	size int64
	data []byte
	file *os.File
}

func inMemory(data []byte) *content {
	return &content{hash: sha256.Sum256(data), size: int64(len(data)), data: data}
}

// spoolBytes is how much is kept in memory before a temporary file is made.
const spoolBytes = 4 << 20

// spool reads all of r, at most a byte more than a blob may have.
func spool(r io.Reader) (*content, error) {
	r = io.LimitReader(r, MaxBytes+1)
	var head bytes.Buffer
	if _, err := io.CopyN(&head, r, spoolBytes); errors.Is(err, io.EOF) {
		return inMemory(head.Bytes()), nil
	} else if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "pgexec-blob-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name()) // it goes with the process, where the system allows that; else drop removes it
	c := &content{file: file}
	sum := sha256.New()
	c.size, err = io.Copy(io.MultiWriter(file, sum), io.MultiReader(&head, r))
	if err != nil {
		c.drop()
		return nil, err
	}
	sum.Sum(c.hash[:0])
	return c, nil
}

// each calls f with the bytes from the start.
func (c *content) each(f func(io.Reader) error) error {
	if c.file == nil {
		return f(bytes.NewReader(c.data))
	}
	return f(io.NewSectionReader(c.file, 0, c.size))
}

func (c *content) drop() {
	if c.file != nil {
		_ = c.file.Close() // it was only read since
		_ = os.Remove(c.file.Name())
	}
}
