package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/internal/pgserver"
)

// databaseName is the demo's database on a server of its own.
const databaseName = "demo"

// database is where the demo keeps its runs.
type database struct {
	url string
	// where says in words what server it is on.
	where string
	// removeFunc takes away all that was made for it.
	removeFunc func() error
	// keepFunc lets it outlive the demo and returns the command that removes it.
	keepFunc func() (string, error)
	// binDir has the server's programs, psql perhaps among them; empty if unknown.
	binDir string
}

// NoServerError says that there is no PostgreSQL to be had, and what to do.
type NoServerError struct {
	Local, Docker error
}

func (e *NoServerError) Error() string {
	return fmt.Sprintf(`the demo needs a PostgreSQL server and found none; any one of these will do:
  - install PostgreSQL 14 or newer; the demo starts a private server from its programs
    Debian, Ubuntu:  apt-get install postgresql
    Fedora:          dnf install postgresql-server
    macOS:           brew install postgresql@17
  - start Docker (%v)
  - name a server, on which the demo makes a database of its own:
    pgexec demo --database-url postgres://user:password@host:5432/postgres`, e.Docker)
}

func (e *NoServerError) Unwrap() []error { return []error{e.Local, e.Docker} }

// findDatabase takes the first of: the server that was named, a private server
// from programs installed here, a container.
func (d *demo) findDatabase(ctx context.Context) (*database, error) {
	if d.cfg.DatabaseURL != "" {
		return makeDatabase(ctx, d.cfg.DatabaseURL)
	}
	db, err := startServer(ctx)
	var missing *pgserver.NotFoundError
	if !errors.As(err, &missing) {
		return db, err
	}
	if refusal := dockerAnswers(ctx); refusal != nil {
		return nil, &NoServerError{Local: missing, Docker: refusal}
	}
	d.display.step("database", "starting %s in Docker, which may have to fetch it", d.cfg.Image)
	return startContainer(ctx, d.cfg.Image)
}

// makeDatabase makes a database on a server that is somebody's.
func makeDatabase(ctx context.Context, server string) (*database, error) {
	suffix := make([]byte, 4)
	if _, err := rand.Read(suffix); err != nil {
		return nil, fmt.Errorf("name database: %w", err)
	}
	name := "pgexec_demo_" + hex.EncodeToString(suffix)
	address, err := withDatabase(server, name)
	if err != nil {
		return nil, err
	}
	remove := func() error {
		if err := administer(context.Background(), server, "database_drop", name); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	}
	if err := administer(ctx, server, "database_create", name); err != nil {
		var refused *pgconn.PgError
		var unreachable *pgconn.ConnectError
		if !errors.As(err, &refused) && !errors.As(err, &unreachable) { // nobody knows whether it was made
			err = errors.Join(err, remove())
		}
		return nil, fmt.Errorf("create database %s: %w", name, err)
	}
	return &database{
		url:        address,
		where:      "database " + name + " on the server you named",
		removeFunc: remove,
		keepFunc: func() (string, error) {
			return fmt.Sprintf("drop database %s with (force);   -- in psql, on another database of that server", name), nil
		},
	}, nil
}

// administer runs a statement about a whole database, from another one. Once it has begun, an end of ctx does not cut it
// short: the server might do it all the same.
func administer(ctx context.Context, server, name, database string) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	connecting, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	conn, err := pgx.Connect(connecting, server)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(bounded, fmt.Sprintf(statement(name), pgx.Identifier{database}.Sanitize()))
	return err
}

// withDatabase names another database in a connection string of either form.
func withDatabase(server, name string) (string, error) {
	if !strings.HasPrefix(server, "postgres://") && !strings.HasPrefix(server, "postgresql://") {
		return server + " dbname=" + name, nil
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the database URL has special characters that are not %-escaped")
	}
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.Path, u.RawQuery = "/"+name, query.Encode()
	return u.String(), nil
}

// startServer starts a private server. An interruption does not cut it short: a
// second later it can be stopped in order.
func startServer(ctx context.Context) (*database, error) {
	startCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	server, err := pgserver.Start(startCtx, pgserver.Config{})
	if err != nil {
		return nil, err
	}
	db := &database{
		url:        server.URL(databaseName),
		where:      "a private throw-away server",
		binDir:     server.BinDir(),
		removeFunc: server.Stop,
		keepFunc: func() (string, error) {
			data := filepath.Join(server.Dir(), "data", "postmaster.pid")
			return fmt.Sprintf("kill -INT $(head -1 %s); sleep 2; rm -rf %s", data, server.Dir()), server.Keep()
		},
	}
	if err := administer(startCtx, server.URL("postgres"), "database_create", databaseName); err != nil {
		return nil, errors.Join(fmt.Errorf("create database: %w", err), server.Stop())
	}
	return db, nil
}

// psql is the command that opens the database.
func (db *database) psql() string {
	program := "psql"
	if _, err := exec.LookPath(program); err != nil && db.binDir != "" {
		if full := filepath.Join(db.binDir, "psql"); isFile(full) {
			program = full
		}
	}
	return program + " '" + db.url + "'"
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
