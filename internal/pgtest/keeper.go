package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pgexec/runtime/internal/pgserver"
)

const (
	keeperEnv       = "PGEXEC_PGTEST_KEEPER"
	keeperBinDirEnv = "PGEXEC_PGTEST_KEEPER_BINDIR"

	// idleEnv is how long an unused server stays; idleLimit, its default, outlasts
	// the pauses in which a test run compiles.
	idleEnv   = "PGEXEC_TEST_IDLE"
	idleLimit = time.Minute
	// keptLimit leaves time to look into the database of a failed test.
	keptLimit = 10 * time.Minute
)

// init turns a test program that was started as a keeper into one, before any
// of its tests could run.
func init() {
	dir := os.Getenv(keeperEnv)
	if dir == "" {
		return
	}
	if err := keep(dir, os.Getenv(keeperBinDirEnv)); err != nil {
		fmt.Fprintln(os.Stderr, "keep test server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keep runs the shared server until nobody has used it for a while. SIGTERM
// ends it as soon as nobody uses it.
func keep(dir, binDir string) error {
	start, ready := os.NewFile(3, "start"), os.NewFile(4, "ready")
	// The server would inherit them, and hold the lock as long as it lives.
	syscall.CloseOnExec(int(start.Fd()))
	syscall.CloseOnExec(int(ready.Fd()))
	hurry := make(chan os.Signal, 1)
	signal.Notify(hurry, syscall.SIGTERM)
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)

	s, err := pgserver.Start(context.Background(), pgserver.Config{BinDir: binDir, TCP: true, Settings: serverSettings})
	if err == nil {
		err = writeAddress(dir, s)
	}
	if err != nil {
		fmt.Fprintln(ready, err)
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
		return err
	}
	fmt.Fprintln(ready, "ready")
	if err := errors.Join(ready.Close(), start.Close()); err != nil {
		return errors.Join(err, s.Stop())
	}
	lease, err := waitIdle(dir, hurry)
	return errors.Join(err, os.Remove(filepath.Join(dir, "server.json")), s.Stop(), lease.Close())
}

func writeAddress(dir string, s *pgserver.Server) error {
	b, err := json.Marshal(address{URL: s.URL("postgres"), TCPURL: s.TCPURL("postgres"), BinDir: s.BinDir(), PID: os.Getpid()})
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "kept")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "server.json"), b, 0o600)
}

// waitIdle returns the lease, exclusively locked: who wants the server now waits
// until it is closed, and then starts another.
func waitIdle(dir string, hurry <-chan os.Signal) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lease"), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open lease: %w", err)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	lastUse, hurried := time.Now(), false
	for {
		select {
		case <-tick.C:
		case <-hurry:
			hurried = true
		}
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			lastUse = time.Now()
			continue
		}
		if err != nil {
			return f, fmt.Errorf("lock lease: %w", err)
		}
		if hurried || time.Since(latest(lastUse, f)) > limit(dir) {
			return f, nil
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
			return f, fmt.Errorf("unlock lease: %w", err)
		}
	}
}

func latest(lastUse time.Time, lease *os.File) time.Time {
	if info, err := lease.Stat(); err == nil && info.ModTime().After(lastUse) {
		return info.ModTime()
	}
	return lastUse
}

func limit(dir string) time.Duration {
	if _, err := os.Stat(filepath.Join(dir, "kept")); err == nil {
		return keptLimit
	}
	if d, err := time.ParseDuration(os.Getenv(idleEnv)); err == nil {
		return d
	}
	return idleLimit
}
