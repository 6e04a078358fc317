package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "gocloud.dev/blob/s3blob" // s3://

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

const (
	gateway     = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
	s3AccessKey = "access"
	s3SecretKey = "secret-of-the-test"
)

// s3Server is a real S3 server on a folder: each bucket is a directory in it, each object a file.
type s3Server struct {
	t      *testing.T
	binary string
	addr   string
	dir    string
	cmd    *exec.Cmd
}

// startS3 starts a server with one bucket, "blobs". It builds the server once for this machine.
func startS3(t *testing.T) *s3Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &s3Server{t: t, binary: buildGateway(t), addr: l.Addr().String(), dir: t.TempDir()}
	l.Close()
	if err := os.Mkdir(filepath.Join(s.dir, "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s3AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3SecretKey)
	s.start()
	t.Cleanup(s.stop)
	return s
}

// buildGateway returns the server's program, or skips the test where it cannot be built.
func buildGateway(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "pgexec-test", strings.ReplaceAll(filepath.Base(gateway), "@", "-"))
	binary := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	cmd := exec.CommandContext(t.Context(), "go", "install", gateway)
	cmd.Dir = t.TempDir() // outside of any module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("build %s: %v: %s", gateway, err, out)
		}
		t.Skipf("no S3 server to test with: build %s: %v: %s", gateway, err, out)
	}
	return binary
}

func (s *s3Server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.binary, "--port", s.addr, "posix", s.dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s3AccessKey, "ROOT_SECRET_KEY="+s3SecretKey)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		r, err := http.Get("http://" + s.addr)
		if err == nil {
			r.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the S3 server does not answer: %v", err)
		}
		pause(s.t.Context(), s.t)
	}
}

func (s *s3Server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *s3Server) url() string {
	return fmt.Sprintf("s3://blobs/some/prefix?endpoint=http://%s&use_path_style=true&region=us-east-1", s.addr)
}

// files are the objects there are.
func (s *s3Server) files() []string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "blobs", "some", "prefix", "*", "*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

// Large payloads go to a real S3 server and come back; equal ones are one object; a server that is down is waited for, and what
// it had done so far is not done again; an object that is gone fails the node that needs it, by name; what nobody refers to
// is removed.
func TestBlobs_OnS3(t *testing.T) {
	server := startS3(t)
	pool := pgtest.DB(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const size = 5 << 20
	called := make(chan int, 10)
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "make", func(_ context.Context, n *pgexec.Node, letter string) (string, error) {
		n.Spawn("length", nil, nil)
		called <- n.Attempt()
		return strings.Repeat(letter, size), nil
	}, nil)
	pgexec.AddKind(kinds, "length", func(_ context.Context, n *pgexec.Node, _ any) (int, error) {
		raw, err := n.Parents()[0].RawOutput()
		return len(raw), err
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 1}})
	pgexec.AddKind(kinds, "read", func(ctx context.Context, n *pgexec.Node, ref pgexec.BlobRef) (int64, error) {
		r, err := n.OpenBlob(ctx, ref)
		if err != nil {
			return 0, err
		}
		defer r.Close() //nolint:errcheck // it is only read
		return io.Copy(io.Discard, r)
	}, &pgexec.KindOpts{Retry: pgexec.RetryPolicy{MaxAttempts: 1}})
	serve(t, pool, pgexec.Config{Kinds: kinds, BlobStore: server.url()})
	client := pgexec.NewClient(pool, &pgexec.ClientConfig{BlobStore: server.url(), Logger: testLogger(t)})
	t.Cleanup(client.Close)

	for range 2 {
		if run := succeed(ctx, t, client, start(ctx, t, client, "make", "a")); string(run.Result) != fmt.Sprint(size+2) {
			t.Errorf("the output has %s bytes", run.Result)
		}
		<-called
	}
	if files := server.files(); len(files) != 1 {
		t.Errorf("one content is in %d objects", len(files))
	}

	server.stop()
	id := start(ctx, t, client, "make", "b")
	<-called
	server.start()
	succeed(ctx, t, client, id)
	if len(called) != 0 {
		t.Error("the handler was called again because the store was down")
	}

	ref, err := client.PutBlob(ctx, "text/plain", strings.NewReader("a file"))
	if err != nil {
		t.Fatal(err)
	}
	if run := succeed(ctx, t, client, start(ctx, t, client, "read", ref)); string(run.Result) != "6" {
		t.Errorf("read %s bytes", run.Result)
	}
	if err := os.Remove(filepath.Join(server.dir, strings.TrimPrefix(ref.URL, "s3://"))); err != nil {
		t.Fatal(err)
	}
	run, err := client.Wait(ctx, start(ctx, t, client, "read", ref))
	if err != nil || run.Status != pgexec.RunFailed || !strings.Contains(run.Error, ref.URL+" is missing") {
		t.Errorf("run %+v, %v", run, err)
	}
	r, err := client.OpenBlob(ctx, ref)
	if !errors.Is(err, pgexec.ErrBlobFault) {
		t.Errorf("%v, %v", r, err)
	}

	if _, err := client.PutBlob(ctx, "text/plain", strings.NewReader("nobody's")); err != nil {
		t.Fatal(err)
	}
	before := len(server.files())
	done, err := client.CollectBlobs(ctx, 0)
	if after := len(server.files()); err != nil || done.Blobs != 1 || before-after != 1 {
		t.Errorf("%+v, %v: of %d objects %d are left", done, err, before, after)
	}
}
