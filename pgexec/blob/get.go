package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Get returns a blob's bytes, which must not be changed. They are the ones that were stored, or the error is a
// [*Fault] that names the blob. A store that cannot be reached is another error: try again later.
func (s *Store) Get(ctx context.Context, ref *pb.Blob) ([]byte, error) {
	if data, ok := s.cache.get(ref.GetSha256()); ok {
		return data, nil
	}
	r, err := s.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was read to its end, or has failed
	var data bytes.Buffer
	if size := ref.GetSize(); size >= 0 && size <= MaxBytes {
		data.Grow(int(size) + bytes.MinRead)
	}
	if _, err := data.ReadFrom(r); err != nil {
		return nil, err
	}
	s.cache.add(ref.GetSha256(), data.Bytes())
	return data.Bytes(), nil
}

// Open reads a blob. What it reads is what was stored only once the reader has returned [io.EOF]: before that it
// may yet say, with a [*Fault], that the blob is missing or was altered.
func (s *Store) Open(ctx context.Context, ref *pb.Blob) (io.ReadCloser, error) {
	if data, ok := s.cache.get(ref.GetSha256()); ok {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	b, key, err := s.locate(ctx, ref.GetUrl())
	if err != nil {
		return nil, err
	}
	r, err := b.read(ctx, key)
	if err != nil {
		return nil, readError(ref.GetUrl(), err)
	}
	return &verifier{from: r, ref: ref, sum: sha256.New()}, nil
}

func readError(url string, err error) error {
	if errors.Is(err, errAbsent) {
		return missing(url)
	}
	return fmt.Errorf("read blob %s: %w", url, err)
}

// verifier passes a blob's bytes on and compares them with what they should be. It never passes on more than the blob has.
type verifier struct {
	from io.ReadCloser
	ref  *pb.Blob
	sum  hash.Hash
	size int64
	err  error
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.from.Read(p)
	v.sum.Write(p[:n])
	v.size += int64(n)
	switch {
	case v.size > v.ref.GetSize():
		v.err = altered(v.ref.GetUrl(), fmt.Sprintf("it has more than its %d bytes", v.ref.GetSize()))
		return 0, v.err
	case errors.Is(err, io.EOF):
		v.err = v.verdict()
	case err != nil:
		v.err = readError(v.ref.GetUrl(), err)
	}
	return n, v.err
}

// verdict is what there is to say at the end of the bytes.
func (v *verifier) verdict() error {
	switch {
	case v.size < v.ref.GetSize():
		return altered(v.ref.GetUrl(), fmt.Sprintf("it has %d of its %d bytes", v.size, v.ref.GetSize()))
	case !bytes.Equal(v.sum.Sum(nil), v.ref.GetSha256()):
		return altered(v.ref.GetUrl(), "its bytes are others than those that were stored")
	}
	return io.EOF
}

func (v *verifier) Close() error { return v.from.Close() }
