package kinds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// maxServerMessage bounds what is taken into memory of one row. No row that is
	// longer could be part of an output.
	maxServerMessage = 2 << 20
	// noMessageLimit is what a connection is opened with: the protocol's own limit.
	noMessageLimit = 1<<30 - 1
)

// sqlResult gathers the rows of one statement as JSON.
type sqlResult struct {
	columns []string
	types   typeTable
	maxRows int

	rows  bytes.Buffer
	count int
	tag   pgconn.CommandTag
}

// read runs the statement. A result over a limit ends it at once, together with its connection.
func (r *sqlResult) read(ctx context.Context, pc *pgconn.PgConn, statement string, params [][]byte, oids []uint32) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pc.Frontend().SetMaxBodyLen(maxServerMessage)
	defer pc.Frontend().SetMaxBodyLen(noMessageLimit)
	reader := pc.ExecParams(ctx, statement, params, oids, nil, nil)
	for reader.NextRow() {
		if err := r.add(reader); err != nil {
			stop() // else Close would read all the rows to come
			_, _ = reader.Close()
			return err
		}
	}
	var err error
	r.tag, err = reader.Close()
	return err
}

func (r *sqlResult) add(reader *pgconn.ResultReader) error {
	if r.count == r.maxRows {
		return permanent(codeTooManyRows, "sql: more than %d rows; narrow the statement, end it with LIMIT, or raise max_rows (up to %d)",
			r.maxRows, maxMaxRows)
	}
	if r.count > 0 {
		r.rows.WriteByte(',')
	}
	r.count++
	r.rows.WriteByte('{')
	fields := reader.FieldDescriptions()
	for i, value := range reader.Values() {
		if i > 0 {
			r.rows.WriteByte(',')
		}
		appendJSONString(&r.rows, r.columns[i])
		r.rows.WriteByte(':')
		if value == nil {
			r.rows.WriteString("null")
			continue
		}
		if err := r.types.appendValue(&r.rows, fields[i].DataTypeOID, value); err != nil {
			return fmt.Errorf("read column %q: %w", r.columns[i], err)
		}
	}
	r.rows.WriteByte('}')
	// The envelope around the rows takes less than this: a name has at most 63 bytes.
	envelope := 200 + len(r.columns)*(63*6+3)
	if size := r.rows.Len() + envelope; size > maxOutput {
		return permanent(codeTooLarge, "sql: the first %d rows take %d bytes as JSON, over the limit of %d", r.count, size, maxOutput)
	}
	return nil
}

// output is {"command", "row_count", "columns", "rows"}.
func (r *sqlResult) output() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"command":`)
	appendJSONString(&b, strings.TrimRight(r.tag.String(), " 0123456789"))
	b.WriteString(`,"row_count":`)
	b.WriteString(strconv.FormatInt(max(r.tag.RowsAffected(), int64(r.count)), 10))
	b.WriteString(`,"columns":[`)
	for i, name := range r.columns {
		if i > 0 {
			b.WriteByte(',')
		}
		appendJSONString(&b, name)
	}
	b.WriteString(`],"rows":[`)
	b.Write(r.rows.Bytes())
	b.WriteString(`]}`)
	return b.Bytes()
}
