package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
)

// httpAddress returns where a replica answers, from its log.
func httpAddress(p *process) string {
	p.t.Helper()
	line := p.line("msg=listening")
	_, address, _ := strings.Cut(line, "http=")
	return "http://" + address
}

// probe returns status and body of one request; status 0 if there is no answer.
func probe(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// gate is a service whose calls wait until it is opened.
type gate struct {
	*httptest.Server
	called chan string // the Idempotency-Key of each call
	open   chan struct{}
	body   string
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{called: make(chan string, 10), open: make(chan struct{}), body: "done"}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.called <- r.Header.Get("Idempotency-Key")
		select {
		case <-g.open:
			fmt.Fprint(w, g.body)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// inFlight starts a replica and a run whose second node waits for the gate.
func inFlight(t *testing.T, more ...string) (*process, *gate, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.DB(t)
	g := newGate(t)
	env := []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t), "PGEXEC_HTTP_ALLOW=127.0.0.1"}
	p := start(t, env, append([]string{"serve", "--http", "127.0.0.1:0"}, more...)...)
	p.line("replica is ready")
	insert := `insert into pgexec.runs (kind, input) values ('graph', jsonb_build_object('nodes', jsonb_build_array(
		jsonb_build_object('id', 'slow', 'kind', 'http', 'input', jsonb_build_object('url', $1::text)),
		jsonb_build_object('id', 'last', 'kind', 'sql', 'after', '["slow"]'::jsonb, 'input', '{"sql": "select 1"}'::jsonb))))`
	if _, err := pool.Exec(t.Context(), insert, g.URL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.called:
	case <-time.After(patience):
		t.Fatal("the node did not start")
	}
	return p, g, pool
}

// recorded returns the ids of the nodes in the log, and the run's status.
func recorded(t *testing.T, pool *pgxpool.Pool) (nodes, status string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `select string_agg(n.node_id, ' ' order by n.seq), min(r.status)
		from pgexec.runs r join pgexec.nodes n using (run_id)`).Scan(&nodes, &status)
	if err != nil {
		t.Fatal(err)
	}
	return nodes, status
}

func TestServe_SignalInStartUpExitsZero(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			address, taken := silent(t)
			p := start(t, []string{"PGEXEC_DATABASE_URL=postgres://app:" + secret + "@" + address + "/x"}, "serve", "--http", "127.0.0.1:0")
			url := httpAddress(p)
			<-taken
			if code, body := probe(t, url+"/readyz"); code != 503 || !strings.Contains(body, "starting") {
				t.Errorf("readyz in start-up: %d %s", code, body)
			}
			if code, body := probe(t, url+"/healthz"); code != 200 {
				t.Errorf("healthz in start-up: %d %s", code, body)
			}
			p.signal(sig)
			if code := p.exit(promptly); code != exitOK {
				t.Errorf("exit code %d, want 0", code)
			}
			if strings.Contains(p.text(), secret) {
				t.Error("the password is in the log")
			}
		})
	}
}

func TestServe_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p, _, pool := inFlight(t)
			p.signal(syscall.SIGTERM)
			p.line("msg=draining")
			p.signal(sig)
			if code := p.exit(promptly); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			if nodes, _ := recorded(t, pool); nodes != "root" {
				t.Errorf("recorded: %s", nodes)
			}
		})
	}
}

// Readiness fails with the signal, not with the end; health lasts; and both are
// answered for as long as the drain takes.
func TestServe_NotReadyFromTheFirstMomentOfADrain(t *testing.T) {
	t.Parallel()
	p, g, _ := inFlight(t)
	url := httpAddress(p)
	if code, body := probe(t, url+"/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("readyz: %d %s", code, body)
	}
	p.signal(syscall.SIGTERM)
	p.line("msg=draining")
	for range 3 {
		if code, body := probe(t, url+"/readyz"); code != 503 || !strings.Contains(body, "draining") {
			t.Errorf("readyz in a drain: %d %s", code, body)
		}
		if code, _ := probe(t, url+"/healthz"); code != 200 {
			t.Errorf("healthz in a drain: %d", code)
		}
	}
	close(g.open)
	if code := p.exit(patience); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

// C20: what is in flight at a SIGTERM is recorded before the pool closes, and
// the run is free for others at once.
func TestServe_DrainRecordsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	p, g, pool := inFlight(t)
	p.signal(syscall.SIGTERM)
	p.line("msg=draining")
	close(g.open)
	if code := p.exit(patience); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
	if nodes, status := recorded(t, pool); nodes != "root slow" || status != "queued" {
		t.Errorf("recorded: %s, the run is %s; want root and slow, and the run queued", nodes, status)
	}
	next := start(t, []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t)}, "serve", "--http", "off")
	within(t, "the run succeeds", func() bool {
		nodes, status := recorded(t, pool)
		return nodes == "root slow last" && status == "succeeded"
	})
	next.signal(syscall.SIGTERM)
	if code := next.exit(patience); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
	if calls := len(g.called); calls != 0 {
		t.Errorf("the recorded node ran %d more times", calls)
	}
}

// C20, of what needs the pool until the last moment: the effect of a node that is in the transaction of its record, the blob
// of another one, and the release of their runs, which are not left to the end of the session.
func TestServe_DrainRecordsWhatNeedsThePool_C20(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	g := newGate(t)
	g.body = strings.Repeat("x", 100_000)
	if _, err := pool.Exec(t.Context(), `
		create table public.effects (n int);
		create table public.released (run_id uuid, by text default current_setting('application_name'));
		create function public.note_release() returns trigger language plpgsql as
			$$ begin insert into public.released (run_id) values (new.run_id); return null; end $$;
		create trigger note_release after update on pgexec.runs
			for each row when (old.owner is not null and new.owner is null) execute function public.note_release()`); err != nil {
		t.Fatal(err)
	}
	held, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context()) //nolint:errcheck // it has ended, if all is well
	if _, err := held.Exec(t.Context(), "lock table public.effects in share mode"); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t), "PGEXEC_HTTP_ALLOW=127.0.0.1"}, "serve", "--http", "off")
	p.line("replica is ready")
	for id, node := range map[string]string{
		"effect": `"kind": "sql", "input": {"sql": "insert into public.effects values (1)", "write": true}`,
		"slow":   `"kind": "http", "input": {"url": "` + g.URL + `"}`,
	} {
		graph := fmt.Sprintf(`{"nodes": [{"id": %[1]q, %[2]s}, {"id": "last", "kind": "sql", "after": [%[1]q], "input": {"sql": "select 1"}}]}`, id, node)
		if _, err := pool.Exec(t.Context(), "insert into pgexec.runs (kind, input) values ('graph', $1)", graph); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-g.called:
	case <-time.After(patience):
		t.Fatal("the node did not start")
	}
	ask := func(query string) string {
		t.Helper()
		var text string
		if err := pool.QueryRow(t.Context(), query).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	within(t, "the statement waits", func() bool {
		return ask("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~ '^insert into public.effects'") == "1"
	})

	p.signal(syscall.SIGTERM)
	p.line("msg=draining")
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(g.open)
	if code := p.exit(patience); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
	for query, want := range map[string]string{
		"select string_agg(n.node_id || ' ' || n.status, ', ' order by n.node_id) from pgexec.nodes n where n.node_id <> 'root'": "effect succeeded, slow succeeded",
		"select count(*) from public.effects":              "1",
		"select string_agg(status, ', ') from pgexec.runs": "queued, queued",
		"select count(distinct run_id) || ' ' || string_agg(distinct split_part(by, ' ', 2), ', ') from public.released": "2 pool",
		"select count(*) from pgexec.blobs where stored and size > 100000":                                               "1",
	} {
		if got := ask(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// After the grace time a drain ends although a node is still in flight.
func TestServe_GraceBoundsTheDrain(t *testing.T) {
	t.Parallel()
	p, _, pool := inFlight(t, "--grace", "200ms", "--log-format", "json")
	p.signal(syscall.SIGINT)
	if code := p.exit(patience); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
	if nodes, status := recorded(t, pool); nodes != "root" || status != "queued" {
		t.Errorf("recorded: %s, the run is %s; want only root, and the run queued", nodes, status)
	}
	if !strings.Contains(p.text(), `"msg":"drained"`) {
		t.Error("the log is not JSON, or lacks the drain")
	}
}

// A replica with a lifeline does not outlive who holds the other end.
func TestServe_EndsWithItsLifeline(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	p := start(t, []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t)}, "serve", "--http", "off", "--lifeline")
	p.line("replica is ready")
	p.stdin.Close()
	if code := p.exit(promptly); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
}

func TestServe_AddressInUse(t *testing.T) {
	t.Parallel()
	pgtest.DB(t)
	address, _ := silent(t)
	got := invoke(t, "serve", "--http", address, "--database-url", pgtest.URL(t))
	if got.code != exitFailure || !strings.Contains(got.err, address) || !strings.Contains(got.err, "--http off") {
		t.Errorf("got %+v", got)
	}
}

// The replica's connections are bounded by --pool-size and four more, however much there is to do: fifty runs of twenty
// statements at once, counted for as long as they take (G8).
func TestServe_ConnectionsAreBounded_G8(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	start(t, []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t)}, "serve", "--http", "off", "--pool-size", "4").line("replica is ready")
	_, err := pool.Exec(t.Context(), `insert into pgexec.runs (kind, input) select 'graph', jsonb_build_object('nodes',
			jsonb_agg(jsonb_build_object('id', 'node ' || n, 'kind', 'sql', 'input', '{"sql": "select 1 from pg_sleep(0.01)"}'::jsonb))
			|| jsonb_build_object('id', 'last', 'kind', 'sql', 'after', jsonb_agg('node ' || n), 'input', '{"sql": "select 1"}'::jsonb))
		from generate_series(1, 50) run cross join generate_series(1, 20) n group by run`)
	if err != nil {
		t.Fatal(err)
	}
	samples, busiest, most := 0, 0, 0
	within(t, "all runs succeed", func() bool {
		var n, working, succeeded int
		err := pool.QueryRow(t.Context(), `select count(*), count(*) filter (where query ~ 'pg_sleep' and state = 'active'),
				(select count(*) from pgexec.runs where status = 'succeeded')
			from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name <> ''`).Scan(&n, &working, &succeeded)
		if err != nil {
			t.Fatal(err)
		}
		samples, busiest, most = samples+1, max(busiest, working), max(most, n)
		return succeeded == 50
	})
	t.Logf("at most %d connections, %d of them with a node's statement, in %d samples", most, busiest, samples)
	if most > 8 {
		t.Errorf("%d connections, want at most 8", most)
	}
	if most < 7 || busiest == 0 {
		t.Errorf("%d connections, %d of them with a node's statement: this was no load", most, busiest)
	}
}

// pg_stat_activity tells what each connection is for and whose it is; a name that the address gives stays.
func TestServe_ConnectionsAreNamed(t *testing.T) {
	t.Parallel()
	for _, given := range []string{"", "shop"} {
		t.Run("given "+given, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.DB(t)
			url, session, log, own := pgtest.URL(t), "pgexec session ", "pgexec log ", "pgexec pool "
			if given != "" {
				url += "&application_name=" + given
				session, log, own = given+": "+session, given+": "+log, given
			}
			p := start(t, []string{"PGEXEC_DATABASE_URL=" + url}, "serve", "--http", "off")
			p.line("replica is ready")
			if given == "" {
				own += fmt.Sprint(p.cmd.Process.Pid, "@")
			}
			if _, err := pool.Exec(t.Context(), `insert into pgexec.runs (kind, input) values ('sql', '{"sql": "select 1"}')`); err != nil {
				t.Fatal(err)
			}
			within(t, "connections are named", func() bool {
				var all bool
				err := pool.QueryRow(t.Context(), `select count(*) filter (where application_name = $1 || replica_id) = 1
						and count(*) filter (where application_name = $2 || replica_id) between 1 and 2
						and count(*) filter (where starts_with(application_name, $3) and not application_name like '%: pgexec%') > 0
						and bool_and(starts_with(application_name, $1) or starts_with(application_name, $2) or starts_with(application_name, $3))
					from pg_stat_activity cross join pgexec.replicas
					where datname = current_database() and pg_stat_activity.pid <> pg_backend_pid() and backend_type = 'client backend' and application_name <> ''`,
					session, log, own).Scan(&all)
				if err != nil {
					t.Fatal(err)
				}
				return all
			})
		})
	}
}

// A replica shares a database with applications that have set it up for themselves.
// Idle connections may be ended: a pool looks after a second whether its own still live.
func TestServe_SettingsOfTheDatabaseDoNotMatter_G8(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, setting := range []string{
		"standard_conforming_strings = off", "datestyle = 'German, DMY'", "intervalstyle = 'sql_standard'", "timezone = 'Asia/Kathmandu'",
		"bytea_output = 'escape'", "extra_float_digits = -10", "search_path = 'nowhere'", "client_encoding = 'LATIN1'",
		"default_transaction_isolation = 'serializable'", "statement_timeout = '10s'", "lock_timeout = '50ms'",
		"idle_in_transaction_session_timeout = '1s'", "idle_session_timeout = '1500ms'",
	} {
		name := pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()
		if _, err := pool.Exec(t.Context(), "alter database "+name+" set "+setting); err != nil {
			t.Fatal(err)
		}
	}
	var id string
	err := pool.QueryRow(t.Context(), `insert into pgexec.runs (kind, input) values ('graph', '{"nodes": [
		{"id": "child", "kind": "run", "input": {"kind": "sql", "input": {"sql": "select $1::text as word", "params": ["naïve"]}}},
		{"id": "rest", "kind": "sleep", "after": ["child"], "input": {"for": "2500ms"}},
		{"id": "out", "kind": "sql", "after": ["rest"], "input": {"sql": "select $1::text as word", "params": [{"$ref": "child#/rows/0/word"}]}}]}')
		returning run_id`).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PGEXEC_DATABASE_URL=" + pgtest.URL(t)}
	start(t, env, "serve", "--http", "off").line("replica is ready")
	wait := start(t, env, "run", "wait", id)
	if code := wait.exit(patience); code != 0 || !strings.Contains(wait.text(), `"rows":[{"word":"naïve"}]`) {
		t.Errorf("exit code %d: %s", code, wait.text())
	}
}
