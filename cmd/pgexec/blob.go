package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/s3blob"    // s3://

	"github.com/pgexec/runtime/pgexec"
)

// blobStores says where blobs are.
type blobStores struct {
	write string
	read  []string
}

func (b *blobStores) add(flags *pflag.FlagSet) {
	flags.StringVar(&b.write, "blob-store", "",
		"where payloads go that are too large for the log: db:, file:///DIR,\ns3://BUCKET/PREFIX?region=…, gs://… or azblob://…\n(default $PGEXEC_BLOB_STORE, else db:, the database)")
	flags.StringSliceVar(&b.read, "blob-read", nil,
		"further stores that blobs are read from (default $PGEXEC_BLOB_READ)")
}

// stores are the flags' or else the environment's.
func (b blobStores) stores() (write string, read []string) {
	write, read = b.write, b.read
	if write == "" {
		write = os.Getenv("PGEXEC_BLOB_STORE")
	}
	if read == nil {
		read = strings.FieldsFunc(os.Getenv("PGEXEC_BLOB_READ"), func(r rune) bool { return r == ',' })
	}
	return write, read
}

// client is the client of the commands that may meet blobs.
func (a *app) client(pool *pgxpool.Pool) *pgexec.Client {
	write, read := a.blobs.stores()
	return pgexec.NewClient(pool, &pgexec.ClientConfig{BlobStore: write, BlobRead: read})
}

func (a *app) newBlob() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blob",
		Short: "Read and store what is too large for the log, and remove what nobody needs",
		Args:  noSuchCommand,
		RunE:  needsCommand,
	}
	a.blobs.add(cmd.PersistentFlags())
	cmd.AddCommand(a.newBlobGet(), a.newBlobPut(), a.newBlobLs(), a.newBlobGC())
	return cmd
}

func (a *app) newBlobGet() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "get URL|SHA256",
		Short: "Write the bytes of a blob",
		Long: `Write the bytes of the blob with that URL, or that SHA-256 in hex. They are compared
with what was stored: at the first byte that is missing or altered it fails.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *pgexec.Client) error { return a.blobGet(ctx, c, given[0], file) })
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this file (default standard output)")
	return cmd
}

// withClient opens the database for a command of a few statements.
func (a *app) withClient(ctx context.Context, f func(context.Context, *pgexec.Client) error) error {
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	client := a.client(pool)
	defer client.Close()
	return f(ctx, client)
}

func (a *app) blobGet(ctx context.Context, c *pgexec.Client, name, file string) error {
	ref, err := c.FindBlob(ctx, name)
	if err != nil {
		return err
	}
	r, err := c.OpenBlob(ctx, ref)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it is only read
	if file == "" {
		_, err = io.Copy(a.out, r)
		return err
	}
	return writeFile(file, r)
}

func (a *app) newBlobPut() *cobra.Command {
	var mediaType string
	cmd := &cobra.Command{
		Use:   "put FILE|-",
		Short: "Store a file, and print the value that stands for it",
		Long: `Store a file, or standard input, and print the JSON value that stands for it in the
input of a run, the payload of a signal or the output of a task. It is kept for a
day, and for as long as there is a run that has the value.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *pgexec.Client) error { return a.blobPut(ctx, c, given[0], mediaType) })
		},
	}
	cmd.Flags().StringVar(&mediaType, "media-type", "", "what the bytes are (default by the file's name, else application/octet-stream)")
	return cmd
}

func (a *app) blobPut(ctx context.Context, c *pgexec.Client, file, mediaType string) error {
	if mediaType == "" {
		mediaType = mime.TypeByExtension(filepath.Ext(file))
	}
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	from := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it is only read
		from = f
	}
	ref, err := c.PutBlob(ctx, mediaType, from)
	if err != nil {
		return err
	}
	value, err := json.Marshal(ref)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", value)
	return err
}

// writeFile makes the file what r has, or leaves it as it was.
func writeFile(file string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (a *app) newBlobLs() *cobra.Command {
	var out outputFlag
	cmd := controlCommand("ls RUN_ID", "List the blobs that a run refers to",
		func(ctx context.Context, id pgexec.RunID) error {
			return a.withClient(ctx, func(ctx context.Context, c *pgexec.Client) error { return a.blobLs(ctx, c, id, out) })
		})
	out.add(cmd)
	return cmd
}

// blobRow is a blob as `blob ls -o json` shows it.
type blobRow struct {
	URL       string `json:"url"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
	MediaType string `json:"media_type"`
}

func (a *app) blobLs(ctx context.Context, c *pgexec.Client, id pgexec.RunID, out outputFlag) error {
	refs, err := c.Blobs(ctx, id)
	if err == nil && len(refs) == 0 { // is there such a run at all?
		_, err = c.Get(ctx, id)
	}
	if err != nil {
		return unknownRun(err)
	}
	if out.json() {
		rows := make([]blobRow, len(refs))
		for i, ref := range refs {
			rows[i] = blobRow(ref)
		}
		return printJSON(a.out, rows)
	}
	t := newTable(a.out, "SIZE", "MEDIA TYPE", "URL")
	for _, ref := range refs {
		t.row(strconv.FormatInt(ref.Size, 10), orDash(ref.MediaType), ref.URL)
	}
	return t.flush()
}

func (a *app) newBlobGC() *cobra.Command {
	var grace time.Duration
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove the blobs that no run refers to",
		Long: `Remove the blobs that no run refers to and that nobody has stored again within the
grace, from the given stores. What a run refers to is never removed. Replicas do
the same by themselves, every hour with a grace of a day. One that meets another
at work gives way to it and exits with 1: run it again for what is left.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if grace < 0 {
				return usageErrorf("--grace %s is negative", grace)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *pgexec.Client) error { return a.blobGC(ctx, c, grace, out) })
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 24*time.Hour, "leave alone what was stored or referred to within this time")
	cmd.Flags().Lookup("grace").DefValue = "24h"
	out.add(cmd)
	return cmd
}

func (a *app) blobGC(ctx context.Context, c *pgexec.Client, grace time.Duration, out outputFlag) error {
	done, err := c.CollectBlobs(ctx, grace)
	gaveWay := errors.Is(err, pgexec.ErrOtherCollector)
	if err != nil && !gaveWay {
		return err
	}
	if out.json() {
		return errors.Join(printJSON(a.out, collectedJSON{done.Blobs, done.Bytes, gaveWay}), err)
	}
	_, printed := fmt.Fprintf(a.out, "removed %s of %s\n", counted(int64(done.Blobs), "blob"), counted(done.Bytes, "byte"))
	return errors.Join(printed, err)
}

// collectedJSON is what `blob gc -o json` shows.
type collectedJSON struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
	// GaveWay: another collector was at work, and blobs may be left that could go.
	GaveWay bool `json:"gave_way"`
}
