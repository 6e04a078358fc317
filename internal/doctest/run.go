package doctest

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// patience bounds the wait for what an example gives.
const patience = 30 * time.Second

// Check runs the SQL of a document, each block changed by edit if there is one,
// and fails the test where a statement gives something else than the comments
// after it say, or where fewer than least statements say anything.
func Check(t testing.TB, pool *pgxpool.Pool, path string, least int, edit func(string) string) {
	t.Helper()
	checked := 0
	for _, block := range Blocks(t, path, "sql") {
		if edit != nil {
			block = edit(block)
		}
		for _, s := range Statements(block) {
			s.check(t, pool)
			checked += min(len(s.Want), 1)
		}
	}
	if checked < least {
		t.Errorf("%s: only %d examples say what they give", path, checked)
	}
}

// asks finds statements that are requests: they are made once.
var asks = regexp.MustCompile(`pgexec\.(signal|approve|reject|cancel|pause|resume|retry)\(`)

// check runs a statement of a document. What only looks at runs is asked again
// until it gives what the document says: the reader has taken a moment to type it.
func (s Statement) check(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		rows := rows(t, pool, s.Text)
		switch {
		case s.Want == nil && (len(rows) == 0 || !strings.HasPrefix(rows[0], "ERROR:")), s.Want != nil && s.Gives(rows):
			return
		case s.Want == nil || asks.MatchString(s.Text) || time.Now().After(deadline):
			t.Fatalf("%s\ngives %q, want %q", s.Text, rows, s.Want)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// rows runs a statement and joins each row's values, in the form psql shows, with " | ".
func rows(t testing.TB, pool *pgxpool.Pool, statement string) []string {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(t.Context(), statement).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return []string{"ERROR:  " + refused.Message}
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, statement)
	}
	var rows []string
	for _, values := range results[0].Rows {
		var texts []string
		for _, v := range values {
			if v == nil {
				v = []byte("null")
			}
			texts = append(texts, string(v))
		}
		rows = append(rows, strings.Join(texts, " | "))
	}
	return rows
}
