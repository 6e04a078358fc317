// Package kinds has the stock kinds of node, which need no code of the user: a
// run of kind http, sql or graph can be inserted with plain SQL. docs/kinds.md
// describes their inputs, outputs and limits.
//
// # Guarantees
//
//   - G6: an http node sends the same Idempotency-Key on every attempt
//     (TestHTTP_SameIdempotencyKeyOnEveryAttempt).
//   - An http node connects to no address that is not public and not allowed,
//     whatever a name resolves to and wherever a redirect leads
//     (TestHTTP_RefusesAddressesThatAreNotPublic).
//   - A sql node that may not write leaves nothing behind
//     (TestSQL_ReadOnlyCannotBeEscaped).
//   - A graph that makes no sense fails before any of its nodes runs
//     (TestGraph_BadInputIsNamed).
package kinds

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
)

// Config says what the stock kinds may use.
type Config struct {
	// Pool is where nodes of kind sql run, with the rights of its role; they use
	// at most half of its connections at once. Without one there is no kind sql. What writes does so in the transaction
	// of its record, on the runtime's pool: where that has another role or database, nodes can only read.
	Pool *pgxpool.Pool
	// HTTPAllow names destinations of http nodes that are not on the public
	// internet: HOST, HOST:PORT, IP, IP:PORT or CIDR, also several separated by
	// commas. Defaults to none: private, loopback, link-local and other special
	// addresses are refused.
	HTTPAllow []string
}

// Stock is the stock kinds of one process.
type Stock struct {
	http        *httpKind
	sql         *sqlKind // nil without a pool
	sqlParallel int
}

// Add adds the kinds http, graph and, if cfg has a pool, sql. It returns an
// error if cfg makes no sense. Close the result after the runtime has ended.
func Add(k *pgexec.Kinds, cfg *Config) (*Stock, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	if k == nil {
		return nil, errors.New("add stock kinds: no set of kinds to add them to")
	}
	allow, err := parseAllow(cfg.HTTPAllow)
	if err != nil {
		return nil, fmt.Errorf("add stock kinds: %w", err)
	}
	s := &Stock{http: &httpKind{client: newHTTPClient(allow)}}
	pgexec.AddKind(k, "http", s.http.handle, nil)
	pgexec.AddKind(k, "graph", handleGraph, nil)
	pgexec.AddKind(k, graphResultKind, handleGraphResult, nil)
	if cfg.Pool != nil {
		s.sql = &sqlKind{pool: cfg.Pool}
		s.sqlParallel = max(1, int(cfg.Pool.Config().MaxConns)/2)
		pgexec.AddKind(k, "sql", s.sql.handle, &pgexec.KindOpts{MaxParallel: s.sqlParallel})
	}
	return s, nil
}

// Close closes the connections that http nodes left open for others to use.
func (s *Stock) Close() { s.http.client.CloseIdleConnections() }
