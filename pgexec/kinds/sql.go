package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/sql"
)

// sqlKind makes one SQL statement a node.
type sqlKind struct {
	pool  *pgxpool.Pool
	types typeCache
	// rights are those of the pool's connections, once they have been read.
	rights atomic.Pointer[sqlRights]
}

const (
	// sqlGrace is how much longer than the server the client waits for a statement to end.
	sqlGrace = 5 * time.Second
	// idleInTransaction ends the transaction of a replica that froze in the middle of a node, and idleBeforeRecord that
	// of one that froze between the statement and the node's record: an output may take a minute to be stored.
	idleInTransaction = 10 * time.Second
	idleBeforeRecord  = 2 * time.Minute
	// cleanupTakes bounds what is done for a connection after a node was cut off.
	cleanupTakes = 5 * time.Second

	codeTooManyRows = "too_many_rows"
)

var (
	// errNoConnection ends a node that got no connection in time.
	errNoConnection = errors.New("timeout of the wait for a connection")
	// errPrepared ends a connection on which a node has prepared statements with SQL.
	errPrepared = errors.New("the node has prepared statements")
	// errStatementTimeout ends a node whose server did not end it in time.
	errStatementTimeout = errors.New("timeout of the statement")
)

func (k *sqlKind) handle(ctx context.Context, n *pgexec.Node, input json.RawMessage) (json.RawMessage, error) {
	return k.node(ctx, n, input, "")
}

// node runs the statement of a node, with the rights of a role if it is not empty.
func (k *sqlKind) node(ctx context.Context, n *pgexec.Node, input json.RawMessage, role string) (json.RawMessage, error) {
	return k.run(ctx, input, n.IdempotencyKey(), func(ctx context.Context, in *sqlInput) (*sqlTx, error) {
		in.role = role
		if !in.write {
			return k.begin(ctx, in)
		}
		return k.beginWrite(ctx, n, in)
	})
}

// beginWrite begins the transaction of the node's record: what a node writes commits with it. Unless a role says what the
// statement may do, the rights are those of the kind's own pool, or none.
func (k *sqlKind) beginWrite(ctx context.Context, n *pgexec.Node, in *sqlInput) (*sqlTx, error) {
	rights, err := k.own(ctx) // before a connection is held
	if err != nil {
		return nil, err
	}
	tx, err := n.TxThen(ctx, in.tidy)
	if err == nil && in.role == "" {
		err = rights.check(ctx, tx)
	}
	if err != nil {
		return nil, err
	}
	return &sqlTx{Tx: tx, commit: func(context.Context) error { return nil }, end: func() {}}, nil
}

// sqlRights say what statements of a connection may do.
type sqlRights struct{ user, database string }

func readRights(row pgx.Row) (r sqlRights, err error) {
	err = row.Scan(&r.user, &r.database)
	return r, err
}

// own returns the rights of the kind's pool.
func (k *sqlKind) own(ctx context.Context) (*sqlRights, error) {
	if known := k.rights.Load(); known != nil {
		return known, nil
	}
	own, err := readRights(k.pool.QueryRow(ctx, sql.KindsSQLRights))
	if err != nil {
		return nil, fmt.Errorf("read rights of the pool: %w", err)
	}
	k.rights.Store(&own)
	return &own, nil
}

// check refuses the runtime's own connection for a write that would have other rights there.
func (r sqlRights) check(ctx context.Context, tx pgx.Tx) error {
	here, err := readRights(tx.QueryRow(ctx, sql.KindsSQLRights))
	if err != nil {
		return fmt.Errorf("read rights of the transaction: %w", err)
	}
	if here != r {
		return permanent(insufficientPrivilege, "sql: nodes of kind sql are role %s on database %s here, and a write, which commits with the node's record, would be role %s on %s: they can only read",
			r.user, r.database, here.user, here.database)
	}
	return nil
}

// sqlTx is a transaction for one statement.
type sqlTx struct {
	pgx.Tx
	commit func(context.Context) error
	// end rolls back what did not commit, and tidies up.
	end func()
}

type beginFunc func(ctx context.Context, in *sqlInput) (*sqlTx, error)

// run runs the statement that input describes and returns the node's output.
func (k *sqlKind) run(ctx context.Context, input json.RawMessage, idempotencyKey string, begin beginFunc) (json.RawMessage, error) {
	in, err := parseSQLInput(input)
	if err != nil {
		return nil, err
	}
	out, err := k.bounded(ctx, in, idempotencyKey, begin)
	if err == nil {
		return out, nil
	}
	if cause := cutOff(ctx); cause != nil {
		return nil, cause
	}
	return nil, sqlFault(in, err)
}

// bounded runs the statement within its time, which begins when there is a connection for it.
func (k *sqlKind) bounded(ctx context.Context, in *sqlInput, idempotencyKey string, begin beginFunc) (json.RawMessage, error) {
	limit := in.timeout + sqlGrace
	waiting, stop := context.WithTimeoutCause(ctx, limit, errNoConnection)
	defer stop()
	tx, err := begin(waiting, in)
	if err != nil {
		if errors.Is(context.Cause(waiting), errNoConnection) {
			err = retryable(codeTimeout, "sql: no connection of the pool was free within %s", limit)
		}
		return nil, err
	}
	defer tx.end()
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errStatementTimeout)
	defer cancel()
	out, err := k.transact(bounded, tx, in, idempotencyKey)
	if err != nil && errors.Is(context.Cause(bounded), errStatementTimeout) {
		err = retryable(codeTimeout, "sql: no answer within %s", limit)
	}
	return out, err
}

// begin begins a transaction of its own, read-only unless the node may write.
func (k *sqlKind) begin(ctx context.Context, in *sqlInput) (*sqlTx, error) {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	mode := pgx.ReadOnly
	if in.write {
		mode = pgx.ReadWrite
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: mode})
	if err != nil {
		conn.Release()
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	return &sqlTx{Tx: tx, commit: tx.Commit, end: func() {
		defer conn.Release()
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTakes)
		defer cancel()
		// A rollback that fails closes the connection, which rolls back as well.
		_ = tx.Rollback(cleanup)
		in.tidy(cleanup, conn.Conn())
	}}, nil
}

// transact runs the statement in a transaction that is read-only, and rolled
// back in any case, unless the node may write.
func (k *sqlKind) transact(ctx context.Context, tx *sqlTx, in *sqlInput, idempotencyKey string) (json.RawMessage, error) {
	// The first statement takes the snapshot; after it no statement can make a read-only transaction writable.
	var former string
	err := tx.QueryRow(ctx, sql.KindsSQLSettings, milliseconds(in.timeout), milliseconds(idleInTransaction), idempotencyKey).
		Scan(&former, nil, nil, nil, nil, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("set up transaction: %w", err)
	}
	out, err := k.executeAs(ctx, tx, in)
	if err != nil || !in.write {
		return out, err
	}
	if _, err := tx.Exec(ctx, sql.KindsSQLRecord, former, milliseconds(idleBeforeRecord)); err != nil {
		return nil, fmt.Errorf("hand over the transaction: %w", err)
	}
	if err := tx.commit(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return out, nil
}

// executeAs runs the statement as the input's role. Afterwards the transaction is
// the runtime's own again, since the node's record is still to be written in it.
func (k *sqlKind) executeAs(ctx context.Context, tx *sqlTx, in *sqlInput) (json.RawMessage, error) {
	if in.role == "" {
		return k.execute(ctx, tx.Conn(), in)
	}
	former, err := setRole(ctx, tx, in.role)
	if err != nil {
		return nil, err
	}
	out, err := k.execute(ctx, tx.Conn(), in)
	if err != nil {
		return nil, err
	}
	if in.write {
		// What is deferred to the commit would run with the runtime's rights.
		if _, err := tx.Exec(ctx, sql.KindsSQLConstraints); err != nil {
			return nil, err
		}
	}
	left, err := setRole(ctx, tx, former)
	if err == nil && left != in.role {
		err = badInput("sql: the statement changed its role from %s to %s; it may not", in.role, left)
	}
	return out, err
}

// setRole sets the role until the transaction ends, and returns the one before.
func setRole(ctx context.Context, tx pgx.Tx, role string) (former string, err error) {
	err = tx.QueryRow(ctx, sql.KindsSQLRole, role).Scan(&former, nil)
	return former, err
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// execute runs the statement itself, by the extended protocol, which takes one statement only.
func (k *sqlKind) execute(ctx context.Context, conn *pgx.Conn, in *sqlInput) (json.RawMessage, error) {
	pc := conn.PgConn()
	statement, err := pc.Prepare(ctx, "", in.statement, nil)
	if err != nil {
		return nil, err
	}
	if want, got := len(statement.ParamOIDs), len(in.params); want != got {
		return nil, badInput("params: the statement takes %d, the input has %d", want, got)
	}
	columns, err := columnNames(statement.Fields)
	if err != nil {
		return nil, err
	}
	oids := slices.Clone(statement.ParamOIDs)
	for _, f := range statement.Fields {
		oids = append(oids, f.DataTypeOID)
	}
	types, err := k.types.lookup(ctx, conn, oids)
	if err != nil {
		return nil, err
	}
	params, err := types.sqlParams(in.params, statement.ParamOIDs)
	if err != nil {
		return nil, err
	}
	result := &sqlResult{columns: columns, types: types, maxRows: in.maxRows}
	if err := result.read(ctx, pc, in.statement, params, statement.ParamOIDs); err != nil {
		return nil, err
	}
	if status := pc.TxStatus(); status != 'T' {
		return nil, badInput("sql: the statement ended its transaction; a node cannot do that")
	}
	return result.output(), nil
}

// columnNames refuses names that are there twice: as members of an object one would hide the other.
func columnNames(fields []pgconn.FieldDescription) ([]string, error) {
	names := make([]string, 0, len(fields))
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		if seen[f.Name] {
			return nil, badInput("sql: two columns of the result are named %q; give each a name of its own with AS", f.Name)
		}
		seen[f.Name] = true
		names = append(names, f.Name)
	}
	return names, nil
}

// tidy leaves nothing of the node on the connection that ran it.
func (in *sqlInput) tidy(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && !in.endsConnection() && in.wipe(ctx, conn) == nil {
		return
	}
	// The pool makes another one. What it says about a connection that is ended makes no difference.
	_ = conn.Close(ctx)
}

// wipe takes off the session what the node may have left on it.
func (in *sqlInput) wipe(ctx context.Context, conn *pgx.Conn) error {
	if !in.write {
		var prepared bool
		err := conn.QueryRow(ctx, sql.KindsSQLUnlock).Scan(nil, &prepared) // the rollback took back all else
		if prepared {
			err = errPrepared
		}
		return err
	}
	if _, err := conn.Exec(ctx, sql.KindsSQLDiscard); err != nil {
		return err
	}
	return conn.DeallocateAll(ctx) // for the client's side: the server has forgotten already
}

// sqlFault decides whether a statement that failed is worth another attempt, and
// says what the server said.
func sqlFault(in *sqlInput, err error) error {
	var pg *pgconn.PgError
	var tooLong *pgproto3.ExceededMaxBodyLenErr
	switch {
	case isFault(err):
		return err
	case errors.As(err, &tooLong):
		return permanent(codeTooLarge, "sql: a row of %d bytes is over the limit of %d for a node's output", tooLong.ActualBodyLen, maxOutput)
	case !errors.As(err, &pg):
		return retryable(codeConnection, "sql: %w", err)
	}
	text := pg.Message
	for _, more := range []struct{ name, text string }{{"detail", pg.Detail}, {"hint", pg.Hint}, {"context", pg.Where}} {
		if more.text != "" {
			text += "; " + more.name + ": " + clip(more.text, 500)
		}
	}
	if pg.Code == readOnlyTransaction && !in.write {
		text += `; hint: a node that writes needs "write": true in its input`
	}
	text = strings.ReplaceAll(text, "\n", " ")
	if isRetryable(pg.Code) || pg.Code == readOnlyTransaction && in.write {
		return retryable(pg.Code, "sql: %s (SQLSTATE %s)", text, pg.Code)
	}
	return permanent(pg.Code, "sql: %s (SQLSTATE %s)", text, pg.Code)
}

// readOnlyTransaction is the SQLSTATE of a write in a read-only transaction. For
// a node that may write it means that the server is a standby, for as long as a
// failover takes.
const readOnlyTransaction = "25006"

// isRetryable reports whether the same statement may succeed later.
func isRetryable(code string) bool {
	switch code {
	case "40001", "40P01", // serialization failure, deadlock
		"55P03",                   // lock not available
		"57014",                   // statement timeout, or cancelled by an administrator
		"25P03", "25P04", "57P05", // timeouts of idle or long transactions and sessions
		"26000",                   // a function has deallocated what the pool had prepared
		"57P01", "57P02", "57P03": // the server shuts down or starts up
		return true
	}
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53") // connection, resources
}
