// Package pgserver runs private, throw-away PostgreSQL servers from the server
// programs installed on this machine: for tests, and for the demo.
//
// A server lives in one directory that holds its data, its unix socket and its
// log. It is not safe against a power failure (fsync is off) unless asked.
//
// # Guarantees
//
//   - A server never outlives its starter: TestStart_KilledStarterLeavesNothing.
//   - Stop leaves no process and no directory: TestStop_RemovesEverything.
//   - Restart keeps data, socket and port: TestRestart_KeepsDataAndAddress.
//   - A standby follows its primary and can be promoted: TestStandby_FollowsAndIsPromoted.
//
// The package is internal to this module and follows its needs.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mode is how a server is shut down.
type Mode string

const (
	// Fast ends all sessions and writes a checkpoint.
	Fast Mode = "fast"
	// Immediate drops everything at once; the next start recovers from the WAL.
	Immediate Mode = "immediate"
)

// Config says how a server is set up. The zero value is a server that only its
// unix socket reaches.
type Config struct {
	// Dir is made if it does not exist and must be empty. It is removed by Stop.
	// Defaults to a new directory for temporary files.
	Dir string
	// Settings are lines of postgresql.conf, over the package's own.
	Settings map[string]string
	// TCP makes the server listen on a free port of 127.0.0.1 as well.
	TCP bool
	// BinDir holds initdb, pg_ctl and postgres. Defaults to what FindBinDir finds.
	BinDir string
}

// Server is a running server. Its methods may be called by several goroutines,
// except that those which start and stop it wait for each other.
type Server struct {
	dir     string
	binDir  string
	account *account
	port    int
	tcp     bool

	mu     sync.Mutex // orders starts and stops
	tether *tether
}

// defaults make a server for tests: small, careless of power failures, able to
// replicate and to decode its WAL.
func defaults() map[string]string {
	return map[string]string{
		"fsync":                 "off",
		"full_page_writes":      "off",
		"max_connections":       "400",
		"wal_level":             "logical",
		"max_wal_senders":       "20",
		"max_replication_slots": "20",
		"log_line_prefix":       "%m [%p] %d %a ",
	}
}

// Start makes a cluster and starts its server. Without installed server
// programs the error is a *NotFoundError. As root the server runs as the user
// postgres, else nobody. Superuser is "postgres", without a password.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	err = s.run(ctx, "initdb", "-D", s.dataDir(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	if err == nil {
		err = s.configureAndStart(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Standby starts a hot standby that streams from s. Its cluster_name is the
// application_name under which the primary sees it.
func (s *Server) Standby(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.BinDir == "" {
		cfg.BinDir = s.binDir
	}
	standby, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	err = standby.run(ctx, "pg_basebackup", "-D", standby.dataDir(), "-d", s.URL("postgres"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if err == nil {
		err = standby.configureAndStart(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, standby.Stop())
	}
	return standby, nil
}

// Promote makes a standby a primary.
func (s *Server) Promote(ctx context.Context) error {
	return s.run(ctx, "pg_ctl", "-D", s.dataDir(), "-w", "promote")
}

// prepare makes the directory and the tether that removes it again.
func prepare(cfg Config) (*Server, error) {
	s := &Server{dir: cfg.Dir, binDir: cfg.BinDir, tcp: cfg.TCP, port: 5432}
	var err error
	if s.binDir == "" {
		if s.binDir, err = FindBinDir(); err != nil {
			return nil, err
		}
	}
	if s.account, err = serverAccount(); err != nil {
		return nil, err
	}
	if s.dir, err = makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("make server directory: %w", err)
	}
	if err = s.account.own(s.dir); err == nil {
		s.tether, err = s.startTether()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare server directory: %w", err), os.RemoveAll(s.dir))
	}
	return s, nil
}

// maxSocketDir leaves room for the socket's name in the 104 bytes that the
// narrowest system has for a socket's path.
const maxSocketDir = 80

func makeDir(dir string) (string, error) {
	if dir == "" {
		parent := os.TempDir()
		if len(parent) > maxSocketDir-len("/pgexec-pg-0123456789") {
			parent = "/tmp"
		}
		return os.MkdirTemp(parent, "pgexec-pg-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("%s is not empty", dir)
	}
	if len(dir) > maxSocketDir {
		return "", fmt.Errorf("%s is too long for the path of a unix socket: at most %d bytes", dir, maxSocketDir)
	}
	return dir, nil
}

// configureAndStart tries again with another port when one that was free a
// moment ago is taken.
func (s *Server) configureAndStart(ctx context.Context, cfg Config) error {
	const tries = 5
	for try := 1; ; try++ {
		if err := s.configure(cfg); err != nil {
			return fmt.Errorf("configure server: %w", err)
		}
		err := s.Resume(ctx)
		if err == nil || !s.tcp || try == tries || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Server) configure(cfg Config) error {
	settings := defaults()
	maps.Copy(settings, cfg.Settings)
	settings["unix_socket_directories"] = s.dir
	settings["listen_addresses"] = ""
	if s.tcp {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		settings["listen_addresses"] = "127.0.0.1"
	}
	settings["port"] = strconv.Itoa(s.port)

	conf, err := os.OpenFile(filepath.Join(s.dataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if _, err := fmt.Fprintf(conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''")); err != nil {
			return errors.Join(err, conf.Close())
		}
	}
	return conf.Close()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// Resume starts the server again after a Shutdown.
func (s *Server) Resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.run(ctx, "pg_ctl", "-D", s.dataDir(), "-l", s.LogFile(), "-w", "-t", "60", "start")
	if err != nil {
		return fmt.Errorf("start server: %w\n%s", err, s.logTail())
	}
	return nil
}

// Shutdown stops the server and keeps its data.
func (s *Server) Shutdown(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shutdown(ctx, mode)
}

func (s *Server) shutdown(ctx context.Context, mode Mode) error {
	pid, err := s.PID()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return nil
	}
	if err = s.run(ctx, "pg_ctl", "-D", s.dataDir(), "-m", string(mode), "-w", "-t", "60", "stop"); err != nil {
		return fmt.Errorf("stop server: %w", err)
	}
	return nil
}

// Restart is Shutdown and Resume: the same data, socket and port.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	if err := s.Shutdown(ctx, mode); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Stop ends the server and removes its directory. Calling it again does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tether == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	err := s.shutdown(ctx, Immediate)
	err = errors.Join(err, os.RemoveAll(s.dir), s.tether.release())
	s.tether = nil
	return err
}

// Keep lets server and directory outlive this process; a later Stop does nothing.
func (s *Server) Keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tether == nil {
		return nil
	}
	err := s.tether.release()
	s.tether = nil
	return err
}

// URL addresses a database through the unix socket, as the superuser.
func (s *Server) URL(dbname string) string {
	query := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + dbname, RawQuery: query.Encode()}
	return u.String()
}

// TCPURL addresses a database through loopback TCP, as the superuser; it is
// empty unless Config.TCP was set.
func (s *Server) TCPURL(dbname string) string {
	if !s.tcp {
		return ""
	}
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/" + dbname,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// BinDir is where the server's programs are, among them psql if it is installed.
func (s *Server) BinDir() string { return s.binDir }

// Dir is the server's directory; the unix socket is in it.
func (s *Server) Dir() string { return s.dir }

// Port is the port of the socket, and of TCP if that was asked for.
func (s *Server) Port() int { return s.port }

// LogFile is where the server writes its log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "server.log") }

// PID is the process id of the server's first process.
func (s *Server) PID() (int, error) {
	b, err := os.ReadFile(filepath.Join(s.dataDir(), "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("read server's process id: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

// logTail is the end of the log, for an error's text.
func (s *Server) logTail() string {
	const tail = 2000
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b[max(0, len(b)-tail):]))
}
