package pgexec

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// checkEncoding refuses a connection on which the server takes text for other text than it is. The server has said so
// when it was connected, so that this costs nothing.
func checkEncoding(conn *pgx.Conn) error {
	if conn == nil {
		return nil
	}
	encoding := conn.PgConn().ParameterStatus("client_encoding")
	if encoding == "" || encoding == "UTF8" { // a pooler may not say
		return nil
	}
	return fmt.Errorf("the connection's client_encoding is %s, and must be UTF8: add client_encoding=UTF8 to the database's address, or to RuntimeParams of the pool's ConnConfig", encoding)
}

func checkPoolEncoding(ctx context.Context, pool *pgxpool.Pool) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return checkEncoding(conn.Conn()) })
}
