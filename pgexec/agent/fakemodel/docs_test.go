package fakemodel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/doctest"
)

// The scripts of docs/testing.md are what a reader copies first; the first one is the tour.
func TestDocs_ScriptsLoad(t *testing.T) {
	t.Parallel()
	blocks := doctest.Blocks(t, "../../../docs/testing.md", "yaml")
	for _, block := range blocks[1:] {
		m := start(t, block)
		if status, answer := post(t, m.URL+"/v1/chat/completions", ask("hello"), nil); status == 400 {
			t.Errorf("%s answers %s", block, answer)
		}
	}
	m := start(t, blocks[0])
	_, first := post(t, m.URL+"/v1/chat/completions", ask("weather, please"), nil)
	if strings.Count(first, `"forecast"`) != 2 {
		t.Errorf("got %s", first)
	}
	status, answer := post(t, m.URL+"/v1/chat/completions", ask("news?"), nil)
	if status != 400 || !strings.Contains(strings.ReplaceAll(answer, `\"`, `"`), `rule 1 "look it up" (line 2): prompt has no "weather"; rule 2 "answer" (line 9): turn is 0, not 1.`) {
		t.Errorf("got %s", answer)
	}
	if !slices.ContainsFunc(blocks, func(b string) bool { return strings.Contains(b, "break:") }) {
		t.Error("no script breaks a stream")
	}
}
