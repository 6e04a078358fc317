package throttle

import (
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ input, pointer, want string }{
		{`{"tenant": "acme"}`, "/tenant", "acme"},
		{`{"tenant": {"id": 7}}`, "/tenant/id", "7"},
		{`{"a/b": [1, "x"]}`, "/a~1b/1", "x"},
		{`{"tenant": {"id":7}}`, "/tenant", `{"id":7}`},
		{`{"tenant": null}`, "/tenant", ""},
		{`{}`, "/tenant", ""},
		{`"whole"`, "", "whole"},
		{`not json`, "/tenant", ""},
		{"{\"tenant\": \"a\\u0000\\ud800\"}", "/tenant", "a\uFFFD\uFFFD"},
	} {
		if got := Key([]byte(tc.input), tc.pointer); got != tc.want {
			t.Errorf("Key(%s, %s) = %q, want %q", tc.input, tc.pointer, got, tc.want)
		}
	}
	long := Key([]byte(`"`+strings.Repeat("x", 5000)+`"`), "")
	if len(long) > maxKey || !strings.HasPrefix(long, "sha256:") || long == Key([]byte(`"`+strings.Repeat("x", 5001)+`"`), "") {
		t.Errorf("a long key is %q", long)
	}
}
