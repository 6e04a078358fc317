package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecrets_OnlyWhatTheReplicaGives(t *testing.T) {
	t.Setenv("EXAMPLE_API_KEY", " key \n")
	t.Setenv("EXAMPLE_TOKEN", "token")
	t.Setenv("EMPTY_TOKEN", "")
	t.Setenv("MAIL_PASSWORD", "listed")
	t.Setenv("PGPASSWORD", "hidden")
	t.Setenv("PGEXEC_HTTP_TOKEN", "hidden")
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	write(t, outside, "hidden")
	write(t, filepath.Join(dir, "key"), "from file\n")
	write(t, filepath.Join(dir, "empty"), "\n")
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", maxSecret+1))
	// As Kubernetes mounts them: by way of a link.
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "..data", "token"), "linked")
	for link, target := range map[string]string{"token": "..data/token", "escape": outside} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	secrets := &Secrets{Env: []string{"MAIL_PASSWORD"}, Dir: dir}
	for _, tc := range []struct {
		ref         Secret
		value, fail string
	}{
		{Secret{Env: "EXAMPLE_API_KEY"}, "key", ""},
		{Secret{Env: "EXAMPLE_TOKEN"}, "token", ""},
		{Secret{Env: "MAIL_PASSWORD"}, "listed", ""},
		{Secret{Env: "PGPASSWORD"}, "", "variable PGPASSWORD may not be used"},
		{Secret{Env: "PGEXEC_HTTP_TOKEN"}, "", "variable PGEXEC_HTTP_TOKEN may not be used"},
		{Secret{Env: "EMPTY_TOKEN"}, "", "variable EMPTY_TOKEN is not set"},
		{Secret{File: filepath.Join(dir, "key")}, "from file", ""},
		{Secret{File: filepath.Join(dir, "token")}, "linked", ""},
		{Secret{File: filepath.Join(dir, "escape")}, "", "path escapes"},
		{Secret{File: outside}, "", "it is not below " + dir},
		{Secret{File: dir + "/../outside"}, "", "it is not below " + dir},
		{Secret{File: filepath.Join(dir, "none")}, "", "does not exist on this replica"},
		{Secret{File: filepath.Join(dir, "empty")}, "", "is empty"},
		{Secret{File: filepath.Join(dir, "large")}, "", "over the limit of 65536 bytes"},
	} {
		value, err := secrets.Resolve(&tc.ref)
		if value != tc.value || (tc.fail == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.fail) {
			t.Errorf("%v: %q, %v; want %q, %q", tc.ref, value, err, tc.value, tc.fail)
		}
	}
	headers, err := secrets.Headers(map[string]Header{"A": {Text: "b"}, "Authorization": {Secret: &Secret{Env: "EXAMPLE_TOKEN"}, Prefix: "Bearer "}})
	if err != nil || headers["A"] != "b" || headers["Authorization"] != "Bearer token" {
		t.Errorf("headers %v, %v", headers, err)
	}
	if _, err := secrets.Headers(map[string]Header{"X": {Secret: &Secret{Env: "NONE_TOKEN"}}}); err == nil || !strings.HasPrefix(err.Error(), "header X: ") {
		t.Error(err)
	}
	if _, err := secrets.Headers(map[string]Header{"X": {Text: "a\nb"}}); err == nil || !strings.Contains(err.Error(), "header X: its value has a line break") {
		t.Error(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
