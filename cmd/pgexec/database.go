package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/schema"
	"github.com/pgexec/runtime/sql"
)

// commandName is the application_name of who gives none.
const commandName = "pgexec"

// connectTimeout bounds a connection attempt for who sets no connect_timeout.
const connectTimeout = 10 * time.Second

// poolConfig reads the database's address: the flag, else the variable, else
// what libpq's own variables and defaults say.
func (a *app) poolConfig() (*pgxpool.Config, error) {
	url, from := a.urlFlag, "--database-url"
	if url == "" {
		url, from = os.Getenv("PGEXEC_DATABASE_URL"), "PGEXEC_DATABASE_URL"
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, addressError(from, err)
	}
	withDefaults(cfg.ConnConfig)
	a.conn = cfg.ConnConfig
	return cfg, nil
}

func withDefaults(conn *pgx.ConnConfig) {
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	for name, value := range map[string]string{
		"application_name": commandName,
		"client_encoding":  "UTF8", // also on a database that has no encoding, whose default is none
		// Statements are written for it. An old application's database may have it off.
		"standard_conforming_strings": "on",
	} {
		if conn.RuntimeParams[name] == "" {
			conn.RuntimeParams[name] = value
		}
	}
}

// addressError says what is wrong with an address without repeating any of it:
// a malformed one does not tell where its password ends.
func addressError(from string, err error) error {
	reason := "it is malformed"
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		text := parse.Error()
		if i := strings.LastIndex(text, "`: "); i >= 0 {
			reason, _, _ = strings.Cut(text[i+len("`: "):], " (")
		}
	}
	return usageErrorf("read %s: %s; want postgres://user:password@host:port/database, with %%-escapes for special characters of the password",
		from, reason)
}

// openPool returns a pool for a command of a few statements. Nothing is connected yet.
func (a *app) openPool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := a.poolConfig()
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = min(cfg.MaxConns, 4)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// databaseNow reads the clock that times are told by: this machine's may be wrong.
func databaseNow(ctx context.Context, pool *pgxpool.Pool) (now time.Time, err error) {
	if err = pool.QueryRow(ctx, sql.CliNow).Scan(&now); err != nil {
		return now, fmt.Errorf("read database's clock: %w", err)
	}
	return now, nil
}

// openMigrated is openPool on a database whose schema fits this program.
func (a *app) openMigrated(ctx context.Context) (*pgxpool.Pool, error) {
	pool, err := a.openPool(ctx)
	if err != nil {
		return nil, err
	}
	if err := schema.Check(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
