package pgexec

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pgexec/runtime/pgexec/blob"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// BlobRef is a value in an input, an output or a signal that stands for bytes in a blob store. As JSON it is
// {"$blob": {"url": …, "size": …, "sha256": …, "media_type": …}}. A blob is kept for as long as there is a run whose
// input or log, or any blob that these refer to, has such a value of it.
type BlobRef struct {
	// URL says where the bytes are.
	URL string
	// Size is their number.
	Size int64
	// SHA256 is that of the bytes, in hex. What is read is compared with it.
	SHA256 string
	// MediaType is what was given for it, such as "image/png".
	MediaType string
}

// Errors of blobs.
var (
	// ErrBlobNotFound: no blob has that URL or SHA-256.
	ErrBlobNotFound = errors.New("blob not found")
	// ErrBlobFault: the blob is missing from its store, or its bytes are not those that were stored: no
	// retry mends that. The message names it.
	ErrBlobFault = errors.New("blob is missing or altered")
	// ErrOtherCollector: a pass of [Client.CollectBlobs] has met another one, of a replica perhaps, and has left to it, or to the
	// next one, blobs that could go.
	ErrOtherCollector = blob.ErrOtherCollector
)

// blobFields is the JSON form of what a BlobRef says.
type blobFields struct {
	URL       string `json:"url"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
	MediaType string `json:"media_type"`
}

type blobJSON struct {
	Blob *blobFields `json:"$blob"`
}

// MarshalJSON writes {"$blob": {…}}.
func (b BlobRef) MarshalJSON() ([]byte, error) {
	fields := blobFields(b)
	return json.Marshal(blobJSON{&fields})
}

// UnmarshalJSON reads {"$blob": {…}}.
func (b *BlobRef) UnmarshalJSON(raw []byte) error {
	var v blobJSON
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if v.Blob == nil {
		return fmt.Errorf(`not a reference to a blob, {"$blob": {…}}: %.80s`, bytes.TrimSpace(raw))
	}
	*b = BlobRef(*v.Blob)
	return nil
}

func blobRefOf(b *pb.Blob) BlobRef {
	return BlobRef{URL: b.GetUrl(), Size: b.GetSize(), SHA256: hex.EncodeToString(b.GetSha256()), MediaType: b.GetMediaType()}
}

func (b BlobRef) proto() (*pb.Blob, error) {
	hash, err := hex.DecodeString(b.SHA256)
	if err != nil {
		return nil, fmt.Errorf("blob %s: SHA-256 %q is not hex", b.URL, b.SHA256)
	}
	return &pb.Blob{Url: b.URL, Size: b.Size, Sha256: hash, MediaType: b.MediaType}, nil
}

// PutBlob stores bytes, up to 1 GiB, and returns the value that stands for them. The same bytes are stored once. They are
// kept for as long as the run has that value in its log: put it into the node's output, or into the input of
// a node it spawns. To repeat it, as another attempt does, does no harm.
func (n *Node) PutBlob(ctx context.Context, mediaType string, r io.Reader) (BlobRef, error) {
	return putBlob(ctx, n.call.Blobs, n.RunID(), mediaType, r)
}

// OpenBlob reads the bytes that a value stands for, from whatever run it is. The caller closes the reader. They are the bytes that
// were stored only once the reader has returned [io.EOF]: return any other error of it as it is, and the node
// fails for good, with code "blob_missing" or "blob_altered", where that is what it is.
func (n *Node) OpenBlob(ctx context.Context, ref BlobRef) (io.ReadCloser, error) {
	return openBlob(ctx, n.call.Blobs, ref)
}

// PutBlob stores bytes, up to 1 GiB, for the input of a run or the payload of a signal, and returns the value that stands
// for them. They are kept for a day; when a run or a signal that has the value is inserted by then, for as long as
// that run is there.
func (c *Client) PutBlob(ctx context.Context, mediaType string, r io.Reader) (BlobRef, error) {
	return putBlob(ctx, c.blobs, RunID{}, mediaType, r)
}

// OpenBlob reads the bytes that a value stands for. The caller closes the reader. They are the bytes that were stored only once
// the reader has returned [io.EOF]: an error before that may be [ErrBlobFault].
func (c *Client) OpenBlob(ctx context.Context, ref BlobRef) (io.ReadCloser, error) {
	r, err := openBlob(ctx, c.blobs, ref)
	if err != nil {
		return nil, blobError(err)
	}
	return &blobReader{r}, nil
}

// FindBlob returns what stands for the blob with that URL, or with that SHA-256 in hex. The error is [ErrBlobNotFound] if
// there is none.
func (c *Client) FindBlob(ctx context.Context, name string) (BlobRef, error) {
	found, err := c.blobs.Find(ctx, name)
	if err != nil {
		return BlobRef{}, err
	}
	if len(found) == 0 {
		return BlobRef{}, fmt.Errorf("blob %s: %w", name, ErrBlobNotFound)
	}
	return blobRefOf(found[0]), nil
}

// Blobs lists the blobs that a run refers to; while it has not ended, also those that an attempt has
// stored and not recorded.
func (c *Client) Blobs(ctx context.Context, id RunID) ([]BlobRef, error) {
	found, err := c.blobs.List(ctx, id)
	if err != nil {
		return nil, err
	}
	refs := make([]BlobRef, len(found))
	for i, b := range found {
		refs[i] = blobRefOf(b)
	}
	return refs, nil
}

// CollectedBlobs is what [Client.CollectBlobs] has removed.
type CollectedBlobs struct {
	Blobs int
	Bytes int64
}

// CollectBlobs removes the blobs that no run refers to and that nobody has stored again within the grace, from
// the client's stores. Replicas do that by themselves every hour, with a grace of a day. It may run at any time, any
// number of times at once: what a run refers to is never removed. A pass that meets another one gives way: the error is
// [ErrOtherCollector], beside what it has removed all the same.
func (c *Client) CollectBlobs(ctx context.Context, grace time.Duration) (CollectedBlobs, error) {
	done, err := c.blobs.Collect(ctx, grace)
	return CollectedBlobs{Blobs: done.Blobs, Bytes: done.Bytes}, err
}

func putBlob(ctx context.Context, store *blob.Store, run RunID, mediaType string, r io.Reader) (BlobRef, error) {
	ref, err := store.PutFrom(ctx, run, mediaType, r)
	if err != nil {
		return BlobRef{}, err
	}
	return blobRefOf(ref), nil
}

func openBlob(ctx context.Context, store *blob.Store, ref BlobRef) (io.ReadCloser, error) {
	b, err := ref.proto()
	if err != nil {
		return nil, Permanent(err)
	}
	return store.Open(ctx, b)
}

// blobError names the faults that callers branch on.
func blobError(err error) error {
	var fault *blob.Fault
	if errors.As(err, &fault) {
		return fmt.Errorf("%w: %w", ErrBlobFault, err)
	}
	return err
}

// blobReader gives a client's errors.
type blobReader struct{ io.ReadCloser }

func (b *blobReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, blobError(err)
}
