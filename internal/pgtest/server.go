package pgtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgserver"
)

// serverSettings go beyond what pgserver sets by itself.
var serverSettings = map[string]string{
	"max_connections":    "400",
	"max_wal_size":       "4GB",
	"checkpoint_timeout": "30min",
}

// address of the server that the tests of this process use.
type address struct {
	URL    string `json:"url"`     // of the database postgres
	TCPURL string `json:"tcp_url"` // the same over TCP
	BinDir string `json:"bin_dir"`
	PID    int    `json:"pid"` // of the keeper; 0 for a server that was given
}

// server finds or starts the server once for each process. The lease is held
// until the process ends, however it ends.
var server = sync.OnceValues(func() (*address, error) {
	if url := os.Getenv("PGEXEC_TEST_DATABASE_URL"); url != "" {
		return &address{URL: url, TCPURL: url}, nil
	}
	return lease()
})

// serverFor skips the test when there is no server and cannot be one, and fails it in CI.
func serverFor(t testing.TB) *address {
	t.Helper()
	a, err := server()
	var missing *pgserver.NotFoundError
	switch {
	case err == nil:
		return a
	case errors.As(err, &missing) && os.Getenv("CI") != "true":
		t.Skipf("no PostgreSQL: %v; or set PGEXEC_TEST_DATABASE_URL", err)
	default:
		t.Fatalf("no PostgreSQL: %v; or set PGEXEC_TEST_DATABASE_URL", err)
	}
	return nil
}

// leaseFile is never closed: the kernel gives the shared lock back when the process ends.
var leaseFile *os.File

// lease joins the users of the shared server and starts it if it does not run.
//
// Two locks in a directory of this user's: "lease" is held shared by every user
// of the server, and exclusively by the keeper while it stops the server, so a
// server that was found stays. "start" is held by whoever looks for the server
// and by the keeper until its server answers, so only one is started.
func lease() (*address, error) {
	binDir, err := pgserver.FindBinDir()
	if err != nil {
		return nil, err
	}
	dir, err := stateDir(binDir)
	if err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if leaseFile, err = lockFile(filepath.Join(dir, "lease"), syscall.LOCK_SH); err != nil {
		return nil, err
	}
	start, err := lockFile(filepath.Join(dir, "start"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer start.Close()
	// A short-lived user between two looks of the keeper counts as use.
	now := time.Now()
	if err := os.Chtimes(leaseFile.Name(), now, now); err != nil {
		return nil, err
	}
	if a, err := readAddress(dir); err == nil && answers(a) {
		return a, nil
	}
	if err := startKeeper(dir, binDir, start); err != nil {
		return nil, err
	}
	return readAddress(dir)
}

// stateDir is where the shared server is registered: one for each user, set of
// server programs and settings.
func stateDir(binDir string) (string, error) {
	settings, err := json.Marshal(serverSettings)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(binDir), settings...))
	parent := stateParent()
	if err := os.Mkdir(parent, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	// The name can be guessed: take it only if it is ours alone.
	info, err := os.Lstat(parent)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s is not a directory of this user's alone", parent)
	}
	dir := filepath.Join(parent, hex.EncodeToString(sum[:6]))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

func stateParent() string {
	if dir := os.Getenv("PGEXEC_TEST_STATE_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "pgexec-test-"+strconv.Itoa(os.Geteuid()))
}

// lockFile polls, so that a holder that hangs becomes an error that names the lock.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	deadline := time.Now().Add(setupLimit)
	for {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		busy := errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		if !busy || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

func readAddress(dir string) (*address, error) {
	b, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if err != nil {
		return nil, fmt.Errorf("read server address: %w", err)
	}
	a := &address{}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, fmt.Errorf("read server address: %w", err)
	}
	return a, nil
}

func answers(a *address) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, a.URL)
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// startKeeper starts this very program again as the server's keeper and waits
// until the server answers. The keeper inherits the start lock, so that nobody
// starts a second one even if this process is killed now.
func startKeeper(dir, binDir string, start *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start server keeper: %w", err)
	}
	ready, readyKeeper, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start server keeper: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(self)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), keeperEnv+"="+dir, keeperBinDirEnv+"="+binDir)
	cmd.ExtraFiles = []*os.File{start, readyKeeper}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err = errors.Join(err, readyKeeper.Close()); err != nil {
		return fmt.Errorf("start server keeper: %w", err)
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil || line != "ready\n" {
		return fmt.Errorf("start server keeper: %s (%w)", line, errors.Join(err, cmd.Wait()))
	}
	return cmd.Process.Release()
}
