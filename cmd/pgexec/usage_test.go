package main

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is typed wrongly exits with 2 and names the fault, without asking any database.
func TestUsage_ExitsWithTwo(t *testing.T) {
	t.Parallel()
	const id = "01a227c9-321b-7171-a88e-87ed0cc80761"
	for _, c := range []struct {
		args string
		want string
	}{
		{"migarte", `no command "migarte", did you mean "migrate"?`},
		{"run", "pgexec run needs a command"},
		{"run shw", `no command "shw"`},
		{"migrate", "pgexec migrate needs a command"},
		{"--nope", "unknown flag: --nope"},
		{"migrate up now", `unknown command "now"`},
		{"migrate down --to 99", "--to 99"},
		{"migrate status -o xml", `--output "xml"`},
		{"version --output yaml", `--output "yaml"`},
		{"run start", "accepts 1 arg(s), received 0; usage: pgexec run start KIND"},
		{"run start k --input {", "not JSON"},
		{"run start k --label x", `--label "x": want NAME=VALUE`},
		{"run start k --priority 5", "--priority 5"},
		{"run start k --run-at tomorrow", `--run-at "tomorrow"`},
		{"run ls --status done", `--status "done"`},
		{"run ls --limit 0", "--limit 0"},
		{"run show 17", `"17" is not a run's id`},
		{"run wait 17", `"17" is not a run's id`},
		{"run wait " + id + " --timeout soon", "--timeout"},
		{"run wait " + id + " --timeout -1s", "--timeout -1s must not be negative"},
		{"run start k --wait --timeout -1s", "--timeout -1s must not be negative"},
		{"run start k --timeout 5s", "--timeout 5s bounds what --wait does"},
		{"run start k --max-nodes 3000000000", "--max-nodes 3000000000: a limit is at most 2147483647"},
		{"run start k --max-turns 3000000000", "--max-turns 3000000000: a limit is at most"},
		{"run start k --max-tool-calls 3000000000", "--max-tool-calls 3000000000: a limit is at most"},
		{"run start k --max-parallel 3000000000", "--max-parallel 3000000000: a limit is at most"},
		{"run start k --max-parallel -1", "--max-parallel -1 is negative"},
		{"run start k --max-tokens -1", "--max-tokens -1"},
		{"run start k --max-cost-usd NaN", "--max-cost-usd NaN is not an amount"},
		{"run start k --max-cost-usd Inf", "--max-cost-usd +Inf is not an amount"},
		{"run start k --max-cost-usd -Inf", "--max-cost-usd -Inf is negative"},
		{"run start k --deadline soon", `--deadline "soon"`},
		{"run signal " + id, "usage: pgexec run signal RUN_ID NAME"},
		{"run signal 17 x", `"17" is not a run's id`},
		{"run signal " + id + " x --payload {", "--payload"},
		{"run cancel", "accepts 1 arg(s), received 0; usage: pgexec run cancel RUN_ID"},
		{"run pause 17", `"17" is not a run's id`},
		{"run resume " + id + " --add-tokens -5", "--add-tokens -5 is negative: limits are raised"},
		{"run resume " + id + " --add-nodes 3000000000", "--add-nodes 3000000000: a limit is at most 2147483647"},
		{"run resume " + id + " --add-turns 3000000000", "--add-turns 3000000000: a limit is at most"},
		{"run resume " + id + " --add-tool-calls -3", "--add-tool-calls -3 is negative: limits are raised"},
		{"run resume " + id + " --add-cost-usd NaN", "--add-cost-usd NaN is not an amount"},
		{"run resume " + id + " --add-cost-usd Inf", "--add-cost-usd +Inf is not an amount"},
		{"run resume " + id + " --add-wall 1us", "--add-wall 1µs"},
		{"run resume " + id + " --deadline soon", `--deadline "soon"`},
		{"run fork " + id + " --at-seq -1", "--at-seq -1"},
		{"run fork " + id + " --at-seq 0", "--at-seq 0: a seq is positive"},
		{"help frok", `pgexec has no command "frok"`},
		{"help run frok", `pgexec run has no command "frok"`},
		{"help run ls x", `pgexec run ls has no command "x"`},
		{"run fork " + id + " --replace-output node", "want NODE_ID=JSON"},
		{"run fork " + id + " --replace-output node={", "--replace-output"},
		{"run retry " + id + " -o xml", `--output "xml"`},
		{"blob", "pgexec blob needs a command"},
		{"blob get", "usage: pgexec blob get URL|SHA256"},
		{"blob ls 17", `"17" is not a run's id`},
		{"blob gc --grace -1s", "--grace -1s"},
		{"task", "pgexec task needs a command"},
		{"task ls --limit 0", "--limit 0"},
		{"serve --http 0.0.0.0:0", "PGEXEC_HTTP_TOKEN"},
		{"serve --http :0", "PGEXEC_HTTP_TOKEN"},
		{"serve --http 8080", "want ADDRESS:PORT or off"},
		{"serve --log-level loud", `--log-level "loud"`},
		{"serve --log-format xml", `--log-format "xml"`},
		{"serve --max-hot-runs 0", "--max-hot-runs 0"},
		{"run start x --queue Bad", `--queue: queue "Bad": want lower-case words`},
		{"serve --queues default,Bad", `--queues: queue "Bad": want lower-case words`},
		{"serve --pool-size 1", "--pool-size 1"},
		{"serve --grace -1s", "--grace -1s"},
		{"serve --http off --http-allow 10.0.0.0/99", "10.0.0.0/99"},
		{"serve --database-url postgres://host/x?pool_max_conns=2", "pool_max_conns=2"},
	} {
		got := invoke(t, strings.Fields(c.args)...)
		if got.code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", c.args, got.code, exitUsage)
		}
		if !strings.HasPrefix(got.err, "pgexec: ") || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: want the words %q in: %s", c.args, c.want, got.err)
		}
	}
}

func TestHelp_NamesEveryCommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		out := mustInvoke(t, args...)
		for _, name := range []string{"blob", "demo", "fake-model", "migrate", "run", "serve", "task", "version"} {
			if !strings.Contains(out, "\n  "+name) {
				t.Errorf("help lacks %s: %s", name, out)
			}
		}
		if strings.Contains(out, "lifeline") || strings.Contains(out, "completion") {
			t.Errorf("help shows what is not for users: %s", out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if out := mustInvoke(t, "version"); !strings.HasPrefix(out, "pgexec ") || !strings.Contains(out, "go1.") {
		t.Errorf("got %s", out)
	}
	var v versionInfo
	if err := json.Unmarshal([]byte(mustInvoke(t, "version", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || v.Schema < 1 || v.RiverSchema < 1 {
		t.Errorf("got %+v", v)
	}
}

func TestCheckHTTPAddress_OnlyLoopbackWithoutToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, token string
		ok             bool
	}{
		{"127.0.0.1:8080", "", true},
		{"localhost:8080", "", true},
		{"[::1]:8080", "", true},
		{"0.0.0.0:8080", "", false},
		{":8080", "", false},
		{"10.1.2.3:8080", "", false},
		{"example.com:8080", "", false},
		{"0.0.0.0:8080", "token", true},
		{"8080", "token", false},
	} {
		if err := checkHTTPAddress(c.address, c.token); (err == nil) != c.ok {
			t.Errorf("%s with token %q: %v", c.address, c.token, err)
		}
	}
}

// The first signal ends the context, the second one the process, unless the
// command has asked for patience.
func TestInterrupt_SecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{false, true} {
		i := newInterrupt(context.Background())
		i.patient.Store(patient)
		var codes []int
		exit := func(code int) { codes = append(codes, code) }
		i.signal(syscall.SIGTERM, exit)
		if sig, ok := caughtSignal(i.ctx); !ok || sig.exitCode() != 143 || len(codes) != 0 {
			t.Errorf("first signal: %v, exits %v", sig, codes)
		}
		i.signal(syscall.SIGINT, exit)
		if want := map[bool]int{false: 1, true: 0}[patient]; len(codes) != want {
			t.Errorf("patient %t: second signal: exits %v", patient, codes)
		}
	}
}

func TestSpanAndAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 42 * time.Millisecond: "42 ms", 1500 * time.Millisecond: "1.5 s",
		125 * time.Second: "2 m 05 s", 3*time.Hour + 4*time.Minute: "3 h 04 m", 72 * time.Hour: "3 days",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
	now := time.Now()
	if got := ago(now, now.Add(-2*time.Second)); got != "2.0 s ago" {
		t.Errorf("got %s", got)
	}
	if got := ago(now, now.Add(2*time.Second)); got != "in 2.0 s" {
		t.Errorf("got %s", got)
	}
	if got := ago(now, time.Time{}); got != "-" {
		t.Errorf("got %s", got)
	}
}

// A cell never breaks its table, whatever a run's output holds.
func TestTable_OneLineForEachRow(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	table := newTable(&b, "A", "B")
	table.row("x\ny\tz", "q\x1b[31m\u009bred")
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "A      B\nx y z  q [31m red\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"añb…c", 3, "añ…"}, {"añb", 3, "añb"}, {"añb", 1, "…"}, {"", 3, ""}, {strings.Repeat("é", 1000), 4, "ééé…"}} {
		if got := clip(c.text, c.n); got != c.want {
			t.Errorf("clip gives %q, want %q", got, c.want)
		}
		if got := clipJSON([]byte(c.text), c.n); got != c.want {
			t.Errorf("clipJSON gives %q, want %q", got, c.want)
		}
	}
}
