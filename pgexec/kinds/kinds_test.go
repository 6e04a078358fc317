package kinds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/kinds"
)

// bundle is a database with a running replica of the stock kinds, and a service
// for its http nodes.
type bundle struct {
	t      *testing.T
	ctx    context.Context
	pool   *pgxpool.Pool
	client *pgexec.Client
	shop   *shop
}

// shop is a local service that fails when told to and remembers who asked.
type shop struct {
	*httptest.Server
	mu    sync.Mutex
	fails int
	keys  []string
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	body, _ := io.ReadAll(r.Body)
	switch {
	case s.fails > 0:
		s.fails--
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/missing":
		http.Error(w, "no such order", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		// 2^53 + 1 is what a detour through floating point would change.
		fmt.Fprintf(w, `{"id": 9007199254740993, "path": %q, "order": %q, "got": %s}`,
			r.URL.Path, r.Header.Get("X-Order"), orNull(body))
	}
}

func orNull(body []byte) []byte {
	if len(body) == 0 {
		return []byte("null")
	}
	return body
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	return setupOn(t, pgtest.DB(t))
}

func setupOn(t *testing.T, pool *pgxpool.Pool) *bundle {
	t.Helper()
	return setupWith(t, pool, pool)
}

// setupWith has the nodes of kind sql on a pool of their own.
func setupWith(t *testing.T, pool, nodes *pgxpool.Pool) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b := &bundle{t: t, ctx: ctx, pool: pool, shop: &shop{}}
	b.shop.Server = httptest.NewServer(b.shop)
	t.Cleanup(b.shop.Close)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	b.client = pgexec.NewClient(b.pool, &pgexec.ClientConfig{Logger: logger})
	t.Cleanup(b.client.Close)

	set := pgexec.NewKinds()
	stock, err := kinds.Add(set, &kinds.Config{Pool: nodes, HTTPAllow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stock.Close)
	replica, err := pgexec.New(b.pool, &pgexec.Config{Kinds: set, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	runCtx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- replica.Run(runCtx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("replica: %v", err)
		}
	})
	return b
}

// insert starts a run as psql would. SHOP in the input is the service's address.
func (b *bundle) insert(kind, input string) pgexec.RunID {
	b.t.Helper()
	var id pgexec.RunID
	err := b.pool.QueryRow(b.ctx, `insert into pgexec.runs (kind, input) values ($1, $2) returning run_id`,
		kind, strings.ReplaceAll(input, "SHOP", b.shop.URL)).Scan(&id)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *bundle) wait(id pgexec.RunID, want pgexec.RunStatus) *pgexec.Run {
	b.t.Helper()
	run, err := b.client.Wait(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	if run.Status != want {
		b.t.Fatalf("run is %s, want %s: %s", run.Status, want, run.Error)
	}
	return run
}

func (b *bundle) count(table string) (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.ctx, `select count(*) from `+table).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// output returns the output of a node as it stands in the log.
func (b *bundle) output(id pgexec.RunID, node string) map[string]any {
	b.t.Helper()
	var out map[string]any
	if err := b.pool.QueryRow(b.ctx, `select output from pgexec.nodes where run_id = $1 and node_id = $2`, id, node).Scan(&out); err != nil {
		b.t.Fatalf("output of %s: %v", node, err)
	}
	return out
}

func TestGraph_InsertedBySQLRunsToItsResult(t *testing.T) {
	b := setup(t)
	if _, err := b.pool.Exec(b.ctx, `create table orders (id bigint primary key, note jsonb)`); err != nil {
		t.Fatal(err)
	}
	id := b.insert("graph", `{
		"result": "report",
		"nodes": [
			{"id":"after","kind":"http","after":["report"],"input":{"url":"SHOP/after"}},
			{"id":"report","kind":"sql","after":["store","check"],"input":{"sql":"select id, note from orders where id = $1","params":[{"$ref":"make#/body/id"}]}},
			{"id":"check","kind":"http","after":["make"],"input":{"url":"SHOP/check","headers":{"X-Order":{"$ref":"make#/body/id"}}}},
			{"id":"store","kind":"sql","after":["make"],"input":{"sql":"insert into orders values ($1, $2)","write":true,
				"params":[{"$ref":"make#/body/id"},{"$ref":"make#/body/got"}]}},
			{"id":"make","kind":"http","input":{"url":"SHOP/make","body":{"item":"tea","n":[1,2]}}}
		]}`)
	run := b.wait(id, pgexec.RunSucceeded)
	if want := `{"command":"SELECT","row_count":1,"columns":["id","note"],"rows":[{"id":9007199254740993,"note":{"n": [1, 2], "item": "tea"}}]}`; string(run.Result) != want {
		t.Errorf("result %s\nwant %s", run.Result, want)
	}
	check := b.output(id, "check")["body"].(map[string]any)
	if check["order"] != "9007199254740993" {
		t.Errorf("the service saw order %q", check["order"])
	}
	var nodes string
	err := b.pool.QueryRow(b.ctx, `select string_agg(node_id || ' ' || status, ', ' order by node_id) from pgexec.nodes where run_id = $1`, id).Scan(&nodes)
	if want := "after succeeded, check succeeded, graph_result-1 succeeded, make succeeded, report succeeded, root succeeded, store succeeded"; err != nil || nodes != want {
		t.Errorf("nodes %s, %v\nwant  %s", nodes, err, want)
	}
}

func TestGraph_MayHoldGraphs(t *testing.T) {
	b := setup(t)
	id := b.insert("graph", `{"nodes":[
		{"id":"outer","kind":"http","input":{"url":"SHOP/outer"}},
		{"id":"inner","kind":"graph","after":["outer"],"refs":false,"input":{"nodes":[
			{"id":"leaf","kind":"http","input":{"url":"SHOP/leaf","body":{"id":{"$ref":"outer#/body/id"},"n":{"$ref":"inner#/nodes"}}}}
		]}}]}`)
	var result struct {
		Body struct{ Got json.RawMessage } `json:"body"`
	}
	if err := b.wait(id, pgexec.RunSucceeded).Output(&result); err != nil {
		t.Fatal(err)
	}
	if want := `{"n": 1, "id": 9007199254740993}`; string(result.Body.Got) != want {
		t.Errorf("the leaf sent %s, want %s", result.Body.Got, want)
	}
}

func TestGraph_BadInputFailsTheRunBeforeAnyNode(t *testing.T) {
	b := setup(t)
	run := b.wait(b.insert("graph", `{"nodes":[{"id":"a","kind":"http","input":{"url":"SHOP/"}},{"id":"b","kind":"teleport","after":["a"]}]}`), pgexec.RunFailed)
	if !strings.Contains(run.Error, `nodes[1] ("b"): unknown kind "teleport"`) {
		t.Errorf("error %q", run.Error)
	}
	if len(b.shop.keys) != 0 {
		t.Errorf("%d requests were sent", len(b.shop.keys))
	}
}

func TestGraph_AllDoneNodeSeesAFailure(t *testing.T) {
	b := setup(t)
	id := b.insert("graph", `{"nodes":[
		{"id":"a","kind":"http","input":{"url":"SHOP/missing"}},
		{"id":"b","kind":"http","after":["a"],"input":{"url":"SHOP/skipped"}},
		{"id":"c","kind":"sql","after":["b"],"join":"all_done","input":{"sql":"select 'cleaned up' as done"}}]}`)
	run := b.wait(id, pgexec.RunSucceeded)
	if !strings.Contains(string(run.Result), `"rows":[{"done":"cleaned up"}]`) {
		t.Errorf("result %s", run.Result)
	}
}

// A run whose graph names a result has that one or none: an all-done node that sees a failure does not put its own output in its place.
func TestGraph_NamedResultThatFailedFailsTheRun(t *testing.T) {
	b := setup(t)
	for name, result := range map[string]string{"failed": "a", "skipped": "b"} {
		id := b.insert("graph", `{"result": "`+result+`", "nodes":[
			{"id":"a","kind":"http","input":{"url":"SHOP/missing"}},
			{"id":"b","kind":"http","after":["a"],"input":{"url":"SHOP/skipped"}},
			{"id":"c","kind":"sql","after":["b"],"join":"all_done","input":{"sql":"select 'cleaned up' as done"}}]}`)
		run := b.wait(id, pgexec.RunFailed)
		if want := "the result is that of node " + result + ", which did not succeed: "; !strings.Contains(run.Error, want) || run.Result != nil {
			t.Errorf("%s: error %q, want %q; result %s", name, run.Error, want, run.Result)
		}
		if done := b.output(id, "c"); done["row_count"] != 1.0 {
			t.Errorf("%s: the node that cleans up: %v", name, done)
		}
	}
	id := b.insert("graph", `{"result": "b", "nodes":[
		{"id":"a","kind":"http","input":{"url":"SHOP/missing"}}, {"id":"b","kind":"http","after":["a"],"input":{"url":"SHOP/skipped"}}]}`)
	if run := b.wait(id, pgexec.RunFailed); !strings.HasPrefix(run.Error, "node a: ") {
		t.Errorf("error %q is not that of the node that caused it", run.Error)
	}
}

// What a program has set on its pool's connections is not a node's to lose, nor is anything of a node left there.
func TestSQL_SettingsOfThePoolOutlastWrites(t *testing.T) {
	t.Parallel()
	cfg := pgtest.DB(t).Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `set app.tenant = 'ours'`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := setupOn(t, pool)
	var ids []pgexec.RunID
	for range 10 {
		ids = append(ids, b.insert("sql", `{"write":true,"sql":"with x as (select current_setting('app.tenant') as was, set_config('app.tenant', 'other', false)) select was from x"}`))
	}
	for _, id := range ids {
		if run := b.wait(id, pgexec.RunSucceeded); !strings.Contains(string(run.Result), `{"was":"ours"}`) {
			t.Errorf("result %s", run.Result)
		}
	}
}

// Rights that the kind's pool lacks no node has: what writes does so on the runtime's own connection, with its rights.
func TestSQL_WritesHaveNoMoreRightsThanThePool(t *testing.T) {
	t.Parallel()
	runtimes := pgtest.DB(t)
	if _, err := runtimes.Exec(t.Context(), `create table secrets (word text)`); err != nil {
		t.Fatal(err)
	}
	cfg := runtimes.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `set role pg_read_all_data`) // a weaker role that every server has
		return err
	}
	weaker, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(weaker.Close)
	b := setupWith(t, runtimes, weaker)
	if run := b.wait(b.insert("sql", `{"sql":"insert into secrets values ('x')","write":true}`), pgexec.RunFailed); !strings.Contains(run.Error, "can only read") {
		t.Errorf("error %q", run.Error)
	}
	b.wait(b.insert("sql", `{"sql":"select * from secrets"}`), pgexec.RunSucceeded)
	if n := b.count("secrets"); n != 0 {
		t.Errorf("%d rows are written", n)
	}
}

// G6, C43: three attempts, one key, one record.
func TestHTTP_AttemptsOfARunShareOneKey(t *testing.T) {
	b := setup(t)
	b.shop.fails = 2
	id := b.insert("http", `{"url":"SHOP/refund","body":{"amount":5}}`)
	b.wait(id, pgexec.RunSucceeded)
	key := id.String() + "/root"
	if got := strings.Join(b.shop.keys, " "); got != strings.Join([]string{key, key, key}, " ") {
		t.Errorf("keys %s, want %s three times", got, key)
	}
}

func TestHTTP_FailureOfARunSaysWhatHappened(t *testing.T) {
	b := setup(t)
	for input, words := range map[string]string{
		`{"url":"SHOP/missing"}`:                      "answered 404 Not Found: no such order",
		`{"url":"http://169.254.169.254/latest/"}`:    "refused to connect to 169.254.169.254:80: the cloud metadata service",
		`{"url":"SHOP/","body":1,"header":{"a":"b"}}`: `unknown field "header"`,
	} {
		if run := b.wait(b.insert("http", input), pgexec.RunFailed); !strings.Contains(run.Error, words) {
			t.Errorf("%s: error %q does not say %q", input, run.Error, words)
		}
	}
}

// C29: what no jsonb can hold is recorded, reaches the next node unharmed, and does not fail the run.
func TestGraph_OutputsThatJSONBCannotHoldAreFine(t *testing.T) {
	b := setup(t)
	var sent []byte
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			sent, _ = io.ReadAll(r.Body)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"a":"\u0000\ud800", "n": 1e400}`)
	}))
	t.Cleanup(odd.Close)
	b.wait(b.insert("graph", strings.ReplaceAll(`{"nodes":[
		{"id":"a","kind":"http","input":{"url":"ODD"}},
		{"id":"b","kind":"http","after":["a"],"input":{"url":"ODD","body":{"$ref":"a#/body"}}}]}`, "ODD", odd.URL)), pgexec.RunSucceeded)
	if want := `{"a":"\u0000\ud800", "n": 1e400}`; string(sent) != want {
		t.Errorf("sent %s, want %s", sent, want)
	}
}

func TestAdd_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for words, add := range map[string]func() error{
		`"*.internal"`: func() error {
			_, err := kinds.Add(pgexec.NewKinds(), &kinds.Config{HTTPAllow: []string{"*.internal"}})
			return err
		},
		"no set of kinds": func() error { _, err := kinds.Add(nil, nil); return err },
	} {
		if err := add(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %s", err, words)
		}
	}
	set := pgexec.NewKinds()
	stock, err := kinds.Add(set, nil)
	if err != nil {
		t.Fatal(err)
	}
	stock.Close()
	if got := strings.Join(set.Names(), " "); got != "graph graph_result http" {
		t.Errorf("kinds without a pool: %s", got)
	}
}
