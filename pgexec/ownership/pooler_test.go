package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/ownership"
)

// startPgbouncer starts a real pgbouncer in front of the test's database and
// returns its URL.
func (b *bundle) startPgbouncer(settings ...string) string {
	b.t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			const missing = "pgbouncer is not installed (Debian: apt-get install pgbouncer)"
			if os.Getenv("CI") == "true" {
				b.t.Fatal(missing)
			}
			b.t.Skip(missing)
		}
	}
	target, err := url.Parse(pgtest.TCPURL(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	config := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\n%s\n", target.Hostname(), target.Port(), port, strings.Join(settings, "\n"))
	dir, err := os.MkdirTemp("", "pgexec-pgbouncer-") // readable by the user it runs as
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte(config), 0o644)); err != nil {
		b.t.Fatal(err)
	}
	args := []string{"-q", file}
	if os.Geteuid() == 0 {
		args = []string{"-q", "-u", "postgres", file}
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = b.t.Output()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // and says so
		os.RemoveAll(dir)
	})
	pooled := fmt.Sprintf("postgres://postgres@127.0.0.1:%d%s", port, target.Path)
	b.eventually("pgbouncer answers", func() bool {
		conn, err := pgx.Connect(b.ctx, pooled)
		if err != nil {
			return false
		}
		return conn.Close(b.ctx) == nil
	})
	return pooled
}

func (b *bundle) openThrough(pooled string) (*ownership.Session, error) {
	b.t.Helper()
	cfg, err := pgx.ParseConfig(pooled)
	if err != nil {
		b.t.Fatal(err)
	}
	return ownership.Open(b.ctx, ownership.SessionConfig{ConnConfig: cfg, Info: b.info(), Logger: b.log()})
}

// C05: a pooler in transaction mode is refused at the start, also when nobody
// else uses it yet, with words that say which URL to set.
func TestOpen_TransactionPooler(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"idle":         {"pool_mode = transaction"},
		"one backend":  {"pool_mode = transaction", "default_pool_size = 1"},
		"round robin":  {"pool_mode = transaction", "server_round_robin = 1"},
		"resets often": {"pool_mode = transaction", "server_reset_query_always = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			pooled := b.startPgbouncer(settings...)
			s, err := b.openThrough(pooled)
			var refused *ownership.PoolerError
			if !errors.As(err, &refused) {
				if s != nil {
					_ = s.Close(context.Background())
				}
				t.Fatalf("error %v, want a PoolerError", err)
			}
			t.Log(err)
			for _, want := range []string{"--session-database-url", "PGEXEC_SESSION_DATABASE_URL", strings.Split(pooled, "@")[1][:len("127.0.0.1:")]} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %s", err, want)
				}
			}
			if n := value[int](b, `select count(*) from pgexec.replicas`); n != 0 {
				t.Error("the refused replica is listed")
			}
		})
	}
}

// A pooler in session mode keeps a backend for each connection, and is fine.
func TestOpen_SessionPooler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, err := b.openThrough(b.startPgbouncer("pool_mode = session"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	w := b.start()
	b.claim(b.claimer(s), w, "claimed")
	if buried, err := b.finder().Pass(b.ctx); err != nil || len(buried) != 0 {
		t.Errorf("buried %v, error %v", buried, err)
	}
	b.terminate(s)
	b.waitLost(s)
}

// C25: everything but the session works through a real pgbouncer in transaction mode.
func TestPool_ThroughPgbouncer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg, err := pgxpool.ParseConfig(b.startPgbouncer("pool_mode = transaction"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b.checkPool(pool)
}

// checkPool claims, releases, claims again and buries through the given pool.
func (b *bundle) checkPool(pool *pgxpool.Pool) {
	b.t.Helper()
	s := b.open()
	c := ownership.NewClaimer(ownership.ClaimerConfig{Pool: pool, ReplicaID: s.ID(), Info: b.info(), Logger: b.log()})
	got := b.claim(c, b.start(), "claimed")
	owned, err := ownership.Owned(b.ctx, pool, s.ID())
	if err != nil || len(owned) != 1 {
		b.t.Fatalf("owned %v, error %v", owned, err)
	}
	if _, err := ownership.Release(b.ctx, pool, s.ID(), heldOf(got), nil); err != nil {
		b.t.Fatal(err)
	}
	b.claim(c, b.wakeOf(got.RunID), "claimed")
	b.terminate(s)
	finder := ownership.NewFinder(ownership.FinderConfig{Pool: pool, Logger: b.log()})
	if buried := b.buryOne(finder); len(buried.Runs) != 1 {
		b.t.Errorf("buried %+v", buried)
	}
}
