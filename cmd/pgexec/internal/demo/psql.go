package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// result is what a query gave: text, as psql gets it.
type result struct {
	columns []string
	right   []bool
	rows    [][]string
}

// query runs a statement as psql would, text in and text out. runID stands for :'run_id'.
func query(ctx context.Context, conn *pgx.Conn, text, runID string) (*result, error) {
	text = strings.ReplaceAll(text, ":'run_id'", "'"+runID+"'")
	results, err := conn.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("%d results, want 1", len(results))
	}
	return newResult(results[0].FieldDescriptions, results[0].Rows), nil
}

// numbers are the types that psql aligns to the right.
var numbers = []uint32{
	pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID,
}

func newResult(fields []pgconn.FieldDescription, rows [][][]byte) *result {
	r := &result{}
	for _, f := range fields {
		r.columns = append(r.columns, f.Name)
		r.right = append(r.right, slices.Contains(numbers, f.DataTypeOID))
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = string(cell)
		}
		r.rows = append(r.rows, cells)
	}
	return r
}

// value returns a cell by its column's name; nothing if there is no such cell.
func (r *result) value(row int, column string) string {
	i := slices.Index(r.columns, column)
	if i < 0 || row >= len(r.rows) {
		return ""
	}
	return r.rows[row][i]
}

// print writes the result as psql does.
func (r *result) print(w io.Writer) {
	widths := make([]int, len(r.columns))
	for i, c := range r.columns {
		widths[i] = utf8.RuneCountInString(c)
	}
	for _, row := range r.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	header, rule := make([]string, len(widths)), make([]string, len(widths))
	for i, c := range r.columns {
		header[i] = center(c, widths[i])
		rule[i] = strings.Repeat("-", widths[i]+2)
	}
	writeRow(w, header)
	fmt.Fprintln(w, strings.Join(rule, "+"))
	for _, row := range r.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			fill := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if r.right[i] {
				cells[i] = fill + cell
			} else {
				cells[i] = cell + fill
			}
		}
		writeRow(w, cells)
	}
	unit := "rows"
	if len(r.rows) == 1 {
		unit = "row"
	}
	fmt.Fprintf(w, "(%d %s)\n", len(r.rows), unit)
}

func writeRow(w io.Writer, cells []string) {
	fmt.Fprintln(w, strings.TrimRight(" "+strings.Join(cells, " | "), " "))
}

func center(text string, width int) string {
	free := width - utf8.RuneCountInString(text)
	return strings.Repeat(" ", free/2) + text + strings.Repeat(" ", free-free/2)
}
