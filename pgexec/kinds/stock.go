package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/pgexec/runtime/pgexec"
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

// SQLParallel is how many nodes of kind sql run at once; 0 if there is no such kind.
func (s *Stock) SQLParallel() int { return s.sqlParallel }
