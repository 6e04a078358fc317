package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestCall_ADeadProcessIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sdk", "legacy"} {
		b := stdioBundle(t, mode, nil)
		file := tempFile(t)
		pid := b.text(t, "pid", toolArgs{})
		kill(t, pid)
		b.text(t, "count", toolArgs{File: file})
		if again := b.text(t, "pid", toolArgs{}); again == pid || len(marks(file)) != 1 {
			t.Errorf("%s: process %s came after %s, the call ran %d times", mode, again, pid, len(marks(file)))
		}
	}
}

func kill(t *testing.T, pid string) {
	t.Helper()
	var n int
	if err := json.Unmarshal([]byte(pid), &n); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Its first thread is a zombie before the others have let go of its files.
	eventually(t, "the killed process is reaped", func() bool { return syscall.Kill(n, 0) != nil })
}

func TestCall_AProcessKilledInACallMayHaveRun(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "sdk", nil)
	file := tempFile(t)
	pid := b.text(t, "pid", toolArgs{})
	done := blocked(t, b, tempFile(t))
	e := b.failure(t, "exit", toolArgs{File: file})
	if !e.MayHaveRun || e.Permanent || len(marks(file)) != 1 {
		t.Errorf("got %+v after %d runs (%v)", e, len(marks(file)), e)
	}
	if !strings.Contains(e.Error(), "the process ended: exit status 3; the process said last: out of luck") {
		t.Errorf("the call failed with %v", e)
	}
	// It shared the process.
	if err := <-done; err == nil || !asError(t, nil, err).MayHaveRun {
		t.Errorf("the other call: %v", err)
	}
	if again := b.text(t, "pid", toolArgs{}); again == pid {
		t.Errorf("process %s answers after its end", pid)
	}
}

func TestCall_AProcessThatReadsNothingDoesNotHoldTheCaller(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "deaf", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 2)
	for range 2 {
		go func() {
			// More than a pipe holds.
			_, err := b.Call(ctx, b.server, "echo", toolArgs{Text: strings.Repeat("x", 1<<20)}.json(), nil)
			done <- err
		}()
	}
	eventually(t, "both calls are under way", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		s := b.sessions["stdio local"]
		return s != nil && s.calls == 2
	})
	cancel(errGone)
	for range 2 {
		if err := <-done; !errors.Is(err, errGone) {
			t.Errorf("the call returned %v", err)
		}
	}
}

func TestConnect_ProcessesOfAllKinds(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"plain", "dies", "silent", "chatty"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := stdioBundle(t, mode, func(p *Pool) {
				if mode == "silent" {
					p.limits.probe = time.Second
				}
			})
			if got := b.text(t, "any", toolArgs{}); got != "by hand" {
				t.Errorf("got %q", got)
			}
			if mode == "chatty" {
				eventually(t, "the log has what was said", func() bool { return strings.Contains(b.log.String(), "Loading model…") })
			}
		})
	}
}

func TestConnect_AProcessThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "broken", nil)
	e := b.failure(t, "any", toolArgs{})
	if e.MayHaveRun || e.Permanent || !strings.Contains(e.Error(), "cannot read /etc/x.conf, key (hidden)") || strings.Contains(e.Error(), "sesame") {
		t.Errorf("got %v", e)
	}
	b = newBundle(t, Server{Name: "none", Command: []string{"/no/such/program"}}, nil)
	if e := b.failure(t, "any", toolArgs{}); e.MayHaveRun || !strings.Contains(e.Error(), "/no/such/program") {
		t.Errorf("got %v", e)
	}
}

func TestCall_ACommandComesOnlyFromTheConfiguration(t *testing.T) {
	t.Parallel()
	file := tempFile(t)
	evil := Server{Name: "evil", Command: []string{"/bin/sh", "-c", "echo ran >" + file}}
	b := stdioBundle(t, "sdk", nil)
	res, err := b.Call(t.Context(), evil, "x", nil, nil)
	if e := asError(t, res, err); !errors.Is(e, ErrUnknownServer) || !e.Permanent || e.MayHaveRun {
		t.Errorf("got %v", e)
	}
	evil.Name = b.server.Name
	if _, err := b.Call(t.Context(), evil, "pid", nil, nil); err != nil {
		t.Errorf("the configured server of that name: %v", err)
	}
	if len(marks(file)) != 0 {
		t.Error("the command ran")
	}
	for _, url := range []string{"file:///etc/passwd", "no url", "http://"} {
		res, err := b.Call(t.Context(), Server{Name: "x", URL: url}, "x", nil, nil)
		if e := asError(t, res, err); !e.Permanent {
			t.Errorf("%q: %v", url, e)
		}
	}
}

func TestClose_EndsProcessesAndTheirChildren(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "sdk", nil)
	pids := strings.Fields(b.text(t, "child", toolArgs{}))
	call := blocked(t, b, tempFile(t))
	b.Close()
	if err := <-call; !errors.Is(err, ErrClosed) {
		t.Errorf("the call ended with %v", err)
	}
	for _, pid := range pids {
		eventually(t, "process "+pid+" is gone", func() bool { return !alive(pid) })
	}
	if e := b.failure(t, "pid", toolArgs{}); !errors.Is(e, ErrClosed) || e.MayHaveRun {
		t.Errorf("a call after Close: %v", e)
	}
}

func TestClose_TakesLeaveOfHTTPSessions(t *testing.T) {
	t.Parallel()
	b, r := httpBundle(t, variants["sessions"](), nil)
	b.text(t, "echo", toolArgs{})
	b.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleted != 1 {
		t.Errorf("the server was told %d times that its session is over", r.deleted)
	}
}

func TestClose_KillsAProcessThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "stubborn", func(p *Pool) {
		p.limits.grace, p.limits.probe, p.limits.connect = 10*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	})
	if e := b.failure(t, "any", toolArgs{}); !strings.Contains(e.Error(), "no session within 50ms") {
		t.Errorf("got %v", e)
	}
	// The pool's end, and goleak, see to it that nothing is left.
}

func TestProcess_DiesWithAKilledReplica(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the kernel ends a dead process's children on Linux only")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	replica := exec.CommandContext(t.Context(), exe)
	replica.Env = append(os.Environ(), modeVar+"=replica")
	out, err := replica.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(line)
	if err := replica.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = replica.Wait()
	eventually(t, "the server is gone", func() bool { return !alive(pid) })
}

func TestSecrets_AreInNoErrorAndNoLog(t *testing.T) {
	t.Parallel()
	const token = "tok-8f3a91"
	b, r := httpBundle(t, variants["stateless"](), nil)
	b.server.URL += "?key=urlkey-77"
	b.server.Headers = map[string]string{"Authorization": "Bearer " + token, "X-Key": "xkey-99887"}
	e := b.failure(t, "refuse", toolArgs{Text: "bad token " + token + " or xkey-99887"})
	if want := "not today, bad token (hidden) or (hidden)"; !strings.Contains(e.Error(), want) {
		t.Errorf("the error is %v", e)
	}
	b.cfg.HTTPClient.CloseIdleConnections()
	r.Close()
	if e := b.failure(t, "echo", toolArgs{}); strings.Contains(e.Error(), "urlkey") || strings.Contains(e.Error(), token) {
		t.Errorf("the error is %v", e)
	}
}

func TestStderr_IsLoggedWithoutSecretsAndBounded(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "sdk", nil)
	env := b.text(t, "mutter", toolArgs{Text: "short"})
	if env != `HOME=true DATABASE=""` {
		t.Errorf("the process sees %s", env)
	}
	eventually(t, "the log has what was said", func() bool { return strings.Contains(b.log.String(), "short") })
	b.text(t, "mutter", toolArgs{Bytes: 1 << 20, Text: "end"})
	b.Close()
	got := b.log.String()
	if strings.Contains(got, "sesame") || !strings.Contains(got, "the key is (hidden)") {
		t.Errorf("the log has %s", clip(got))
	}
	if len(got) > 4*maxTalk {
		t.Errorf("the log has %d bytes", len(got))
	}
}

func TestHTTP_HeadersStayWithTheirHost(t *testing.T) {
	t.Parallel()
	other := &remote{handler: variants["stateless"]()}
	other.Server = httptest.NewServer(other)
	t.Cleanup(other.Close)
	b, r := httpBundle(t, http.RedirectHandler(other.URL, http.StatusTemporaryRedirect), nil)
	b.server.Headers = map[string]string{"X-Key": "xkey-99887"}
	b.text(t, "echo", toolArgs{})
	for name, server := range map[string]*remote{"its host": r, "another host": other} {
		server.mu.Lock()
		for _, h := range server.headers {
			if got, want := h.Get("X-Key") != "", server == r; got != want {
				t.Errorf("%s got the header: %t", name, got)
			}
		}
		server.mu.Unlock()
	}
}

func TestCall_InputIsGivenLaterByAnotherPool(t *testing.T) {
	t.Parallel()
	handler := variants["stateless"]()
	check := func(t *testing.T, first, second *bundle) {
		args := toolArgs{Text: "v7"}.json()
		res, err := first.Call(t.Context(), first.server, "ask", args, nil)
		if err != nil || res.Needs == nil || res.Needs.State != "state of v7" {
			t.Fatalf("got %+v, %v", res, err)
		}
		var requests map[string]struct {
			Method string
			Params struct{ Message string }
		}
		if err := json.Unmarshal(res.Needs.Requests, &requests); err != nil || requests["confirm"].Params.Message != "Deploy v7?" || requests["confirm"].Method != "elicitation/create" {
			t.Fatalf("the requests are %s", res.Needs.Requests)
		}
		first.Close()
		answer := &Answer{State: res.Needs.State, Responses: json.RawMessage(`{"confirm":{"action":"accept","content":{"ok":true}}}`)}
		res, err = second.Call(t.Context(), second.server, "ask", args, answer)
		if err != nil || res.Needs != nil || res.Parts[0].Text != "accept true with state of v7" {
			t.Errorf("got %+v, %v", res, err)
		}
		answer.Responses = json.RawMessage(`{"confirm":{"yes":1}}`)
		res, err = second.Call(t.Context(), second.server, "ask", args, answer)
		if e := asError(t, res, err); !e.Permanent || e.MayHaveRun || !strings.Contains(e.Error(), "confirm") {
			t.Errorf("a senseless answer: %v", e)
		}
	}
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		first, _ := httpBundle(t, handler, nil)
		second, _ := httpBundle(t, handler, nil)
		check(t, first, second)
	})
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		check(t, stdioBundle(t, "sdk", nil), stdioBundle(t, "sdk", nil))
	})
}

func TestCall_AServerThatOnlyPutsOffIsBusy(t *testing.T) {
	t.Parallel()
	b, _ := httpBundle(t, variants["stateless"](), nil)
	if e := b.failure(t, "shed", toolArgs{}); !errors.Is(e, errBusy) || e.Permanent || e.MayHaveRun {
		t.Errorf("got %v", e)
	}
}

func TestCall_OldServersAskInVainOrForAVisit(t *testing.T) {
	t.Parallel()
	b := stdioBundle(t, "legacy", nil)
	res, err := b.call(t, "elicit", toolArgs{})
	if err != nil || !res.IsError || !strings.Contains(res.Parts[0].Text, "nobody to ask") {
		t.Errorf("a question in mid-call: %+v, %v", res, err)
	}
	res, err = b.call(t, "visit", toolArgs{})
	if err != nil || res.Needs == nil || !strings.Contains(string(res.Needs.Requests), "https://example.com/in") {
		t.Fatalf("a demand to visit a URL: %+v, %v", res, err)
	}
	answer := &Answer{Responses: json.RawMessage(`{"url-1":{"action":"accept"}}`)}
	if res, err = b.Call(t.Context(), b.server, "visit", nil, answer); err != nil && strings.Contains(err.Error(), "answer") {
		t.Errorf("after the visit: %+v, %v", res, err)
	}
}

func TestTools_AreAllPagesInOneForm(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, b *bundle, restart func()) {
		tools, err := b.Tools(t.Context(), b.server)
		if err != nil || len(tools) != len(testTools) {
			t.Fatalf("got %d tools, %v", len(tools), err)
		}
		for i, tool := range tools {
			if i > 0 && tools[i-1].Name >= tool.Name {
				t.Errorf("%s comes before %s", tools[i-1].Name, tool.Name)
			}
			const schema = `{"properties":{"file":{"type":"string"},"text":{"description":"<b>","type":"string"}},"type":"object"}`
			if string(tool.Schema) != schema || tool.Description != "does "+tool.Name {
				t.Errorf("%s is %q with %s", tool.Name, tool.Description, tool.Schema)
			}
			if tool.Name == "echo" && (!*tool.ReadOnly || !*tool.Destructive || *tool.Idempotent) || tool.Name != "echo" && tool.ReadOnly != nil {
				t.Errorf("%s has hints %v", tool.Name, tool.ReadOnly)
			}
		}
		restart()
		if again, err := b.Tools(t.Context(), b.server); err != nil || len(again) != len(tools) {
			t.Errorf("after a restart: %d tools, %v", len(again), err)
		}
	}
	forEachVariant(t, func(t *testing.T, b *bundle, _ *remote, restart func()) { check(t, b, restart) })
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		b := stdioBundle(t, "sdk", nil)
		check(t, b, func() { kill(t, b.text(t, "pid", toolArgs{})) })
	})
}

func TestCall_ArgumentsInHeadersAreSent(t *testing.T) {
	t.Parallel()
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "region", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","x-mcp-header":"Region"}}}`)},
		func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if req.Extra.Header.Get("Mcp-Param-Region") == "" {
				return nil, &jsonrpc.Error{Code: sdk.CodeHeaderMismatch, Message: "no header"}
			}
			return textResult("in %s", req.Extra.Header.Get("Mcp-Param-Region"))
		})
	b, _ := httpBundle(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true}), nil)
	if got := b.text(t, "region", toolArgs{Text: "eu"}); got != "in eu" {
		t.Errorf("got %q", got)
	}
}
