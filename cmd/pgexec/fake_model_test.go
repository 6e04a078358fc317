package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func scriptFile(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// SIGTERM ends it after the replies in flight, with 0.
func TestFakeModel_AnswersUntilItIsTold(t *testing.T) {
	t.Parallel()
	path := scriptFile(t, "rules: [{reply: {text: Good morning, chunk: 1, pause: 30ms}}]")
	p := start(t, nil, "fake-model", path)
	url := p.line("http://127.0.0.1:")
	body := `{"model":"x","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p.line("status=200")
	if code, listed := probe(t, url+"/requests"); code != 200 || !strings.Contains(listed, `"turn":0`) {
		t.Errorf("requests: %d %s", code, listed)
	}
	p.signal(syscall.SIGTERM)
	answer, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(answer), "data: [DONE]\n\n") {
		t.Errorf("the reply in flight: %v, %s", err, answer)
	}
	if code := p.exit(patience); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestFakeModel_RefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	good := scriptFile(t, "rules: [{reply: {text: x}}]")
	address, _ := silent(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"fake-model"}, exitUsage, "usage: pgexec fake-model SCRIPT"},
		{[]string{"fake-model", good, "--listen", "8080"}, exitUsage, `--listen "8080"`},
		{[]string{"fake-model", good, "--listen", address}, exitFailure, "choose another address with --listen"},
		{[]string{"fake-model", good + ".not"}, exitFailure, "no such file"},
		{[]string{"fake-model", scriptFile(t, "rules:\n- reply: {txt: x}")}, exitFailure, "script.yaml: script: line 2: unknown field txt"},
	} {
		if got := invoke(t, c.args...); got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("%v: %d %s; want %d %s", c.args, got.code, got.err, c.code, c.want)
		}
	}
}
