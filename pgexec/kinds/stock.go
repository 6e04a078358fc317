package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

// ErrAddressRefused is a destination that an HTTP client may not connect to: it
// is not public, and nothing allows it.
var ErrAddressRefused = errors.New("address refused")

// Client returns the client of http nodes: it connects to public addresses and to
// what [Config.HTTPAllow] names, and else fails with [ErrAddressRefused]. Redirects
// leave the headers of their origin behind. It is not to be changed.
func (s *Stock) Client() *http.Client { return s.http.client }

// HTTP makes the exchange that the input of a node of kind http describes, and
// returns the output of that node. The client is [Stock.Client] or one made of it. An
// error says by [pgexec.Permanent] whether another attempt is of use.
func (s *Stock) HTTP(ctx context.Context, client *http.Client, input json.RawMessage, idempotencyKey string) (json.RawMessage, error) {
	return (&httpKind{client: client}).exchange(ctx, input, idempotencyKey)
}

// SQL runs the statement that the input of a node of kind sql describes, with the
// rights of a role, and returns the output of that node. What it writes
// commits with the record of n (G6). The role is for the statement and for the
// constraints and triggers that it sets off, deferred ones included; a
// statement that itself sets another role is refused if that is seen, so it must not come from whom the role is to hold.
func (s *Stock) SQL(ctx context.Context, n *pgexec.Node, input json.RawMessage, role string) (json.RawMessage, error) {
	if s.sql == nil {
		return nil, permanent(codeNoSQL, "sql: this replica has no kind sql")
	}
	if role == "" {
		return nil, permanent(codeNoSQL, "sql: no role")
	}
	return s.sql.node(ctx, n, input, role)
}

// SQLSTATEs with which a role is refused.
const (
	invalidParameterValue = "22023"
	insufficientPrivilege = "42501"
)

// CheckRole returns an error if [Stock.SQL] could run no statement with the rights of
// that role: there is none of that name, or the login may not take it on.
func (s *Stock) CheckRole(ctx context.Context, role string) error {
	if s.sql == nil {
		return errors.New("this replica has no kind sql")
	}
	if role == "none" { // which would take on the rights of the login
		return errors.New("role none: there can be no role of this name")
	}
	_, err := s.sql.pool.Exec(ctx, sql.KindsSQLRole, role)
	var fault *pgconn.PgError
	if !errors.As(err, &fault) {
		return err
	}
	login := s.sql.pool.Config().ConnConfig.User
	switch fault.Code {
	case invalidParameterValue:
		return fmt.Errorf("role %s does not exist: create it, and GRANT %[1]s TO %s", pgx.Identifier{role}.Sanitize(), pgx.Identifier{login}.Sanitize())
	case insufficientPrivilege:
		return fmt.Errorf("%s may not take on role %s: GRANT %[2]s TO %[1]s", pgx.Identifier{login}.Sanitize(), pgx.Identifier{role}.Sanitize())
	}
	return fmt.Errorf("look for role %q: %w", role, err)
}

// SQLParallel is how many nodes of kind sql run at once; 0 if there is no such kind.
func (s *Stock) SQLParallel() int { return s.sqlParallel }
