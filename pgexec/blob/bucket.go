package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file://
	"gocloud.dev/gcerrors"
)

// errAbsent says that a bucket has nothing under a key.
var errAbsent = errors.New("not there")

// bucket holds bytes under keys. What is written under a key is always the same.
type bucket interface {
	// write is durable when it returns. Writing the same at the same time, or again, does no harm.
	write(ctx context.Context, key string, r io.Reader) error
	// read fails with errAbsent, at once or at the first byte, where there is nothing.
	read(ctx context.Context, key string) (io.ReadCloser, error)
	// size counts the bytes that are there; it fails with errAbsent where there is nothing.
	size(ctx context.Context, key string) (int64, error)
	// remove does nothing where there is nothing.
	remove(ctx context.Context, key string) error
	close() error
}

// cloud is a directory or a bucket of an object store.
type cloud struct {
	bucket *blob.Bucket
	// dir is set for a directory: its files are written to disk before they count.
	dir string
}

// openCloud opens a store by its URL, whose path is a prefix of all keys.
func openCloud(ctx context.Context, store string) (bucket, error) {
	u, err := checkURL(store)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "file" {
		return openDir(ctx, u)
	}
	prefix := strings.Trim(u.Path, "/")
	u.Path = ""
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		if !blob.DefaultURLMux().ValidBucketScheme(u.Scheme) {
			err = fmt.Errorf("no driver for %s:// in this program; it comes with an import such as _ %q", u.Scheme, "gocloud.dev/blob/s3blob")
		}
		return nil, err
	}
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix+"/")
	}
	return &cloud{bucket: b}, nil
}

func openDir(ctx context.Context, u *url.URL) (bucket, error) {
	if u.Path == "" || u.Host != "" {
		return nil, fmt.Errorf("%s: the directory's path must be absolute, as in file:///var/lib/blobs", u)
	}
	q := u.Query()
	q.Set("create_dir", "1")
	q.Set("no_tmp_dir", "1") // a rename must not leave the file system
	q.Set("metadata", "skip")
	opened := *u
	opened.RawQuery = q.Encode()
	b, err := blob.OpenBucket(ctx, opened.String())
	if err != nil {
		return nil, err
	}
	return &cloud{bucket: b, dir: filepath.FromSlash(u.Path)}, nil
}

func (c *cloud) write(ctx context.Context, key string, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before the writer is closed, this is what drops a part
	w, err := c.bucket.NewWriter(ctx, key, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		cancel()
		_ = w.Close() // its error is that of the cancelled context
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if c.dir == "" {
		return nil
	}
	file := filepath.Join(c.dir, filepath.FromSlash(key))
	return errors.Join(flush(file), flush(filepath.Dir(file)), flush(c.dir))
}

// flush waits until a file or a directory is on disk.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (c *cloud) read(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := c.bucket.NewReader(ctx, key, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (c *cloud) size(ctx context.Context, key string) (int64, error) {
	attrs, err := c.bucket.Attributes(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return 0, errAbsent
	}
	if err != nil {
		return 0, err
	}
	return attrs.Size, nil
}

func (c *cloud) remove(ctx context.Context, key string) error {
	if err := c.bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}

// minTempAge is how long a file may be written to that has no name yet.
const minTempAge = time.Hour

// checkWrite says at once that a directory cannot be written to.
func (c *cloud) checkWrite() error {
	if c.dir == "" {
		return nil
	}
	file, err := os.CreateTemp(c.dir, "check.*.tmp") // which a sweep removes, should this process end here
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// sweep removes from a directory what writers that died were in the middle of.
func (c *cloud) sweep(ctx context.Context, grace time.Duration) error {
	if c.dir == "" {
		return nil
	}
	return filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".tmp" {
			return errors.Join(err, ctx.Err())
		}
		info, err := d.Info()
		if err == nil && time.Since(info.ModTime()) > max(grace, minTempAge) {
			err = os.Remove(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // another collector, or its writer, was first
			return nil
		}
		return err
	})
}

func (c *cloud) close() error { return c.bucket.Close() }
