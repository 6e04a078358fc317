package tool

import (
	"encoding/json"
	"testing"
)

func TestHider_LeavesJSONAndNoSecret(t *testing.T) {
	t.Parallel()
	h := hider{secrets: []string{`se"cret`, "123456"}}
	for raw, want := range map[string]string{
		`{"a": "x se\"cret y", "n": 123456789}`:  `{"a": "x (hidden) y", "n": 123456789}`,
		`["\u0073e\u0022cret", "123456", "<\\"]`: `["(hidden)", "(hidden)", "<\\"]`,
		`{"123456": [true, null]}`:               `{"(hidden)": [true, null]}`,
		`""`:                                     `""`,
		`12345678`:                               `12345678`,
	} {
		if got := string(h.json(json.RawMessage(raw))); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
}
