package demo

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/agent/definition"
)

// A result looks as psql prints it.
func TestResult_PrintsAsPsqlDoes(t *testing.T) {
	t.Parallel()
	fields := []pgconn.FieldDescription{{Name: "name", DataTypeOID: pgtype.TextOID}, {Name: "n", DataTypeOID: pgtype.Int8OID}}
	r := newResult(fields, [][][]byte{{[]byte("häuser"), []byte("12")}, {nil, []byte("7")}})
	var out strings.Builder
	r.print(&out)
	want := `  name  | n
--------+----
 häuser | 12
        |  7
(2 rows)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if r.value(1, "n") != "7" || r.value(2, "n") != "" || r.value(0, "none") != "" {
		t.Error("a value is not found, or found where there is none")
	}
	one := newResult(fields[:1], [][][]byte{{[]byte("x")}})
	out.Reset()
	one.print(&out)
	if !strings.HasSuffix(out.String(), "(1 row)\n") {
		t.Errorf("got %s", out.String())
	}
}

func TestWithDatabase_BothFormsOfAddress(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"postgres://u:p@h:5432/x?sslmode=disable":    "h 5432 new",
		"postgresql://u@/x?host=/tmp&dbname=y":       "/tmp 5432 new",
		"host=h port=1 dbname=x user=u password='p'": "h 1 new",
		"postgres://h": "h 5432 new",
	} {
		address, err := withDatabase(server, "new")
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := pgconn.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join([]string{cfg.Host, strconv.Itoa(int(cfg.Port)), cfg.Database}, " "); got != want {
			t.Errorf("%s: got %s, want %s", server, got, want)
		}
	}
}

// What is set up for the user's own replicas is not for the demo's.
func TestWithoutOurs_NoVariableOfOursIsLeft(t *testing.T) {
	t.Parallel()
	got := withoutOurs([]string{"PATH=/bin", "PGEXEC_DATABASE_URL=x", "PGEXEC_BLOB_STORE=s3://b", "PGEXEC_AGENT_SQL_ROLE=r", "PGEXEC_MCP_CONFIG=/c", "PGHOST=h", "X=PGEXEC_"})
	if want := []string{"PATH=/bin", "PGHOST=h", "X=PGEXEC_"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

// An interruption while the database is being made does not leave it behind: it is made to its end, and known to be there.
func TestMakeDatabase_InterruptedInBetween(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{})
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	held, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), "comment on database template0 is 'locked for a while'"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	type answer struct {
		db  *database
		err error
	}
	made := make(chan answer, 1)
	go func() {
		db, err := makeDatabase(ctx, server.URL("postgres"))
		made <- answer{db, err}
	}()
	ask := func(query string) bool {
		t.Helper()
		var yes bool
		if err := pool.QueryRow(t.Context(), query).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !ask("select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query ~ '^create database')") {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the statement does not wait for the lock")
		}
	}
	cancel()
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-made
	if got.err != nil || !ask("select exists (select from pg_database where datname like 'pgexec\\_demo\\_%')") {
		t.Fatalf("no database was made: %v", got.err)
	}
	if err := got.db.removeFunc(); err != nil {
		t.Fatal(err)
	}
	if ask("select exists (select from pg_database where datname like 'pgexec\\_demo\\_%')") {
		t.Error("the database is still there")
	}
}

// The service gives a repeated call the same answer, and counts it.
func TestService_CountsRepeatedCalls(t *testing.T) {
	t.Parallel()
	s, err := startService()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	call := func(key string) (r reply) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/tools/search", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, again, other := call("run/a"), call("run/a"), call("run/b")
	if first != again || first == other || !strings.HasPrefix(first.Answer, "search ") {
		t.Errorf("answers %v, %v, %v", first, again, other)
	}
	if keys, calls := s.counts(); keys != 2 || calls != 3 {
		t.Errorf("%d keys, %d calls, want 2 and 3", keys, calls)
	}
}

// The agents of the demo are good ones, and its models have something to say.
func TestAgents_AreDefinedWell(t *testing.T) {
	t.Parallel()
	for name, definitionOf := range agents("http://127.0.0.1:1") {
		raw, err := json.Marshal(definitionOf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := definition.Parse(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := loadModel(); err != nil {
		t.Error(err)
	}
}

func TestNoServerError_SaysWhatToInstall(t *testing.T) {
	t.Parallel()
	err := &NoServerError{Local: errors.New("none"), Docker: errors.New("there is no docker command")}
	for _, words := range []string{"apt-get install postgresql", "brew install", "Docker (there is no docker command)", "--database-url"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q lacks %q", err, words)
		}
	}
}

// A verdict is only good if the queries say so.
func TestVerdict_JudgesByTheQueries(t *testing.T) {
	t.Parallel()
	answer := func(columns string, rows ...string) *result {
		r := &result{columns: strings.Fields(columns)}
		for _, row := range rows {
			r.rows = append(r.rows, strings.Fields(row))
		}
		return r
	}
	s := newTestStory()
	s.actors[0].fate, s.actors[1].fate = fateKilled, fateDrained
	const runs, sums = "status runs", "nodes duplicates gaps"
	for _, c := range []struct {
		runs, sums *result
		fault      string
	}{
		{answer(runs, "succeeded 1", "succeeded 1"), answer(sums, "8 0 0"), ""},
		{answer(runs, "failed 1", "succeeded 1"), answer(sums, "8 0 0"), "succeeded"},
		{answer(runs, "succeeded 1"), answer(sums, "8 0 0"), "succeeded"},
		{answer(runs, "succeeded 1", "succeeded 1"), answer(sums, "8 1 0"), "recorded twice"},
		{answer(runs, "succeeded 1", "succeeded 1"), answer(sums, "8 0 1"), "gaps"},
		{answer(runs, "succeeded 1", "succeeded 1"), answer(sums, "7 0 0"), "want 8"},
	} {
		d := &demo{cfg: Config{Out: t.Output()}, story: s, service: &service{}}
		err := d.verdict(c.runs, answer("run"), c.sums)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%v %v: %v, want %q", c.runs.rows, c.sums.rows, err, c.fault)
		}
	}
}
