package main

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
)

const secret = "s3cr3t-w0rd"

// strict returns a server that asks its role "app" for the password over TCP,
// and a pool of its superuser on a migrated database.
func strict(t *testing.T) (*pgserver.Server, *pgxpool.Pool) {
	t.Helper()
	server := pgtest.Server(t, pgserver.Config{TCP: true})
	pool := pgtest.DBOn(t, server)
	hba := filepath.Join(server.Dir(), "data", "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"create role app login password '" + secret + "'",
		"create role crowded login connection limit 0",
		"select pg_reload_conf()",
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return server, pool
}

// as changes role, password and database in an address.
func as(t *testing.T, address, user, password, database string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// silent is an address that takes connections and never answers, and a channel
// that tells of each connection.
func silent(t *testing.T) (string, <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan struct{}, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			taken <- struct{}{}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), taken
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Each thing that can be wrong with a database is said with its address, what to
// do, and without the password.
func TestExplain(t *testing.T) {
	t.Parallel()
	server, pool := strict(t)
	database := pool.Config().ConnConfig.Database
	tcp, socket := server.TCPURL(database), server.URL(database)
	address := strings.SplitN(strings.TrimPrefix(tcp, "postgres://postgres@"), "/", 2)[0]
	mute, _ := silent(t)
	nobody := closedPort(t)
	userinfo := "postgres://app:" + secret + "@"

	for name, c := range map[string]struct {
		url  string
		args []string
		code int
		want []string
	}{
		"no server": {
			url:  userinfo + nobody + "/x",
			want: []string{"no database at " + nobody, "refused", "start PostgreSQL", "--database-url"},
		},
		"no socket": {
			url:  "host=/nowhere port=5432 user=app dbname=x password=" + secret,
			want: []string{"/nowhere/.s.PGSQL.5432", "no such socket", "--database-url"},
		},
		"no answer": {
			url:  userinfo + mute + "/x?connect_timeout=1",
			want: []string{mute, "no answer in time", "firewall"},
		},
		"no host": {
			url:  userinfo + "nowhere.invalid:5432/x",
			want: []string{`no host "nowhere.invalid"`, "correct the name"},
		},
		"no TLS": {
			url:  userinfo + address + "/" + database + "?sslmode=require",
			want: []string{address, "TLS", "sslmode=disable"},
		},
		"wrong password": {
			url:  as(t, tcp, "app", secret+"x", ""),
			want: []string{address, `password of role "app"`, "correct the password", "PGPASSWORD"},
		},
		"no such role": {
			url:  as(t, socket, "stranger", "", ""),
			want: []string{`role "stranger" does not exist`, "may log in"},
		},
		"not let in": {
			url:  as(t, tcp, "stranger", secret, ""),
			want: []string{"pg_hba.conf", "may log in"},
		},
		"no such database": {
			url:  as(t, tcp, "app", secret, "elsewhere"),
			want: []string{address, `no database "elsewhere"`, "createdb elsewhere"},
		},
		"too many connections": {
			url:  as(t, socket, "crowded", "", ""),
			want: []string{"too many connections", "max_connections"},
		},
		"no right to use the schema": {
			url:  as(t, tcp, "app", secret, ""),
			want: []string{`role "app"`, database, "schema pgexec", "grant usage on schema pgexec to app"},
		},
		"no right to make the schema": {
			url: as(t, tcp, "app", secret, "postgres"), args: []string{"migrate", "up"},
			want: []string{`role "app"`, `"postgres"`, "grant connect, create on database postgres to app"},
		},
		"no schema": {
			url:  as(t, socket, "postgres", "", "postgres"),
			want: []string{`"postgres" has no pgexec schema`, "pgexec migrate up"},
		},
		"read-only server": {
			url: socket + "&options=-c%20default_transaction_read_only%3Don", args: []string{"run", "start", "graph"},
			want: []string{"read-only", "name the primary"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands := [][]string{{"run", "ls"}, {"serve", "--http", "off", "--log-level", "error"}}
			if c.args != nil {
				commands = [][]string{c.args}
			}
			for _, args := range commands {
				got := invoke(t, append([]string{"--database-url", c.url}, args...)...)
				if got.code != exitFailure {
					t.Errorf("%v: exit code %d, want %d", args, got.code, exitFailure)
				}
				checkWords(t, got, c.want...)
			}
		})
	}
}

func checkWords(t *testing.T, got outcomeOf, want ...string) {
	t.Helper()
	t.Log(strings.TrimSpace(got.err))
	for _, words := range want {
		if !strings.Contains(got.err, words) {
			t.Errorf("want the words %q in: %s", words, got.err)
		}
	}
	if strings.Contains(got.out+got.err, secret) {
		t.Errorf("the password is in: %s", got.err)
	}
	if n := strings.Count(got.err, "\n"); n > 3 {
		t.Errorf("%d lines are too many: %s", n, got.err)
	}
}

// A schema of another version says which of schema and program is behind.
func TestExplain_SchemaOfAnotherVersion(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, c := range []struct {
		statement string
		want      []string
	}{
		{"insert into pgexec.schema_migration (version, name) values (9999, 'later')", []string{"9999", "upgrade the pgexec binary"}},
		{"delete from pgexec.schema_migration where version > 1", []string{"version 1", "pgexec migrate up"}},
	} {
		if _, err := pool.Exec(t.Context(), c.statement); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"run", "ls"}, {"serve", "--http", "off"}, {"migrate", "status"}} {
			got := invoke(t, append([]string{"--database-url", pgtest.URL(t)}, args...)...)
			if got.code != exitFailure {
				t.Errorf("%v: exit code %d, want %d", args, got.code, exitFailure)
			}
			checkWords(t, got, c.want...)
		}
	}
}

// A malformed address is not repeated: it does not tell where its password ends.
func TestExplain_MalformedAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"postgres://app:" + secret + "@host:notaport/x",
		"postgres://app:s3cr3t/" + secret + "@host:5432/x",
		"postgres://app:" + secret + "@host/x?sslmode=what",
		"postgres://app:%zz" + secret + "@host/x",
		"host=x password='" + secret,
		secret,
	} {
		for _, args := range [][]string{
			{"--database-url", address, "run", "ls"},
			{"--database-url", "postgres://host/x", "serve", "--http", "off", "--session-database-url", address},
		} {
			got := invoke(t, args...)
			if got.code != exitUsage {
				t.Errorf("%s: exit code %d, want %d", address, got.code, exitUsage)
			}
			checkWords(t, got, "database-url", "postgres://user:password@host:port/database")
			if strings.Contains(got.err, "s3cr3t") {
				t.Errorf("a part of the password is in: %s", got.err)
			}
		}
	}
}

func TestQuoteName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"app": "app", "my app": `"my app"`, `a"b`: `"a""b"`, "App": `"App"`, "1st": `"1st"`, "": `""`} {
		if got := quoteName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
