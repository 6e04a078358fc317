package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// databaseError says what is wrong with the database and what to do about it.
type databaseError struct {
	what, do string
	err      error
}

func (e *databaseError) Error() string { return e.what + "\n  " + e.do }
func (e *databaseError) Unwrap() error { return e.err }

// explain puts what a database or the way to it refused into words that say what
// to do. It is the only place where that is decided; all other errors, and
// those that say it already, pass unchanged.
func (a *app) explain(err error) error {
	var exit *exitError
	if errors.As(err, &exit) {
		return err
	}
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server):
		place := a.place(connectConfig(err))
		if what, do := explainServer(server, place); do != "" {
			return &databaseError{what, do, err}
		}
		return err
	case errors.As(err, &connect):
		what, do := explainConnect(err, placeOf(connect.Config))
		return &databaseError{what, do, err}
	}
	return err
}

func connectConfig(err error) *pgconn.Config {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return connect.Config
	}
	return nil
}

// place is where a command talks to, in words. It never holds a password.
type place struct {
	user, database, address string
}

func (a *app) place(cfg *pgconn.Config) place {
	if cfg == nil && a.conn != nil {
		cfg = &a.conn.Config
	}
	if cfg == nil {
		return place{user: "?", database: "?", address: "?"}
	}
	return placeOf(cfg)
}

func placeOf(cfg *pgconn.Config) place {
	addresses := []string{address(cfg.Host, cfg.Port)}
	for _, f := range cfg.Fallbacks {
		if at := address(f.Host, f.Port); !slices.Contains(addresses, at) {
			addresses = append(addresses, at)
		}
	}
	p := place{user: cfg.User, database: cfg.Database, address: strings.Join(addresses, " or ")}
	if p.database == "" {
		p.database = p.user // as the server does
	}
	return p
}

// address is a TCP address, or the path of a unix socket.
func address(host string, port uint16) string {
	_, at := pgconn.NetworkAddress(host, port)
	return at
}

// explainServer is about errors that a server sent.
func explainServer(e *pgconn.PgError, at place) (what, do string) {
	said := "the server at " + at.address + " says: " + e.Message
	switch e.Code {
	case "28P01":
		return fmt.Sprintf("the server at %s does not accept the password of role %q", at.address, at.user),
			"correct the password in the database URL, or in PGPASSWORD"
	case "28000":
		return said, fmt.Sprintf("name a role that may log in, or let %q in (create role, pg_hba.conf)", at.user)
	case "3D000":
		return fmt.Sprintf("the server at %s has no database %q", at.address, at.database),
			fmt.Sprintf("create it (createdb %s), or name another one in the database URL", at.database)
	case "42501":
		return fmt.Sprintf("role %q may not do this in database %q: %s", at.user, at.database, e.Message),
			privilegeAdvice(e, at)
	case "53300":
		return said, "close other connections, use a smaller --pool-size, or raise max_connections"
	case "57P03":
		return said, "try again in a moment"
	case "25006":
		return said, "this is a standby or set to read-only: name the primary in the database URL"
	case "3F000", "42P01", "42883":
		if strings.Contains(e.Message, "pgexec") {
			return fmt.Sprintf("database %q lacks a part of the pgexec schema (%s)", at.database, e.Message),
				"run `pgexec migrate up`"
		}
	}
	return "", ""
}

func privilegeAdvice(e *pgconn.PgError, at place) string {
	role := quoteName(at.user)
	switch {
	case strings.Contains(e.Message, "create database"):
		return fmt.Sprintf("allow it (alter role %s createdb), or leave the database URL out: the demo then brings its own server", role)
	case strings.Contains(e.Message, "for database"):
		return fmt.Sprintf("its owner can allow it: grant connect, create on database %s to %s", quoteName(at.database), role)
	case strings.Contains(e.Message, "for schema pgexec"):
		return fmt.Sprintf("the schema's owner can allow it: grant usage on schema pgexec to %s, and rights on the tables it needs", role)
	default:
		return "use the role that owns the schema pgexec (the one that ran `pgexec migrate up`), or let it grant the right"
	}
}

// quoteName writes a name as SQL wants it, with quotes only where they are needed.
func quoteName(name string) string {
	plain := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_0123456789") == "" && name[0] > '9'
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// explainConnect is about connections that no server answered.
func explainConnect(err error, at place) (what, do string) {
	const elsewhere = "start PostgreSQL there, or name another address with --database-url or PGEXEC_DATABASE_URL"
	what = "no database at " + at.address
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("%s: there is no host %q", what, dns.Name), "correct the name in the database URL"
	case errors.As(err, &authority), errors.As(err, &host):
		return fmt.Sprintf("the certificate of the server at %s is not trusted", at.address),
			"name the authority with sslrootcert= in the database URL, or relax sslmode="
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return fmt.Sprintf("the server at %s does not offer TLS", at.address),
			"add sslmode=disable (or prefer) to the database URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		return what + " (connection refused)", elsewhere
	case errors.Is(err, os.ErrNotExist):
		return what + " (there is no such socket)", elsewhere
	case errors.Is(err, syscall.EACCES):
		return what + " (this user may not open the socket)", "ask for the right, or connect over TCP: --database-url postgres://…@127.0.0.1:5432/…"
	case errors.Is(err, context.DeadlineExceeded):
		return what + " (no answer in time)", "is the address right, and does a firewall let it through?"
	}
	return what + " (" + innermost(err).Error() + ")", elsewhere
}

// innermost is the first of the deepest errors: what the system itself said.
func innermost(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // walks the chain itself
		case interface{ Unwrap() []error }:
			if len(e.Unwrap()) == 0 {
				return err
			}
			err = e.Unwrap()[0]
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		default:
			return err
		}
	}
}
