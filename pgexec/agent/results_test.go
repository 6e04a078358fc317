package agent

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

func TestResults_TheLongestUnusedOnesGo(t *testing.T) {
	t.Parallel()
	r := newResults()
	big := llm.Message{Parts: []llm.Part{{Text: strings.Repeat("x", maxRemembered/4)}}}
	for k := range 3 {
		r.put(callKey{k: k}, big)
	}
	r.get(callKey{k: 0})
	r.put(callKey{k: 3}, big) // with what is around, a fourth does not fit
	for k, want := range []bool{true, false, true, true} {
		if _, ok := r.get(callKey{k: k}); ok != want {
			t.Errorf("result %d is there: %v, want %v", k, ok, want)
		}
	}
	r.put(callKey{k: 9}, llm.Message{Parts: []llm.Part{{Image: &llm.Image{Data: make([]byte, maxRemembered)}}}})
	if _, ok := r.get(callKey{k: 9}); ok || r.bytes > maxRemembered || len(r.byCall) != 3 || r.used.Len() != 3 {
		t.Errorf("%d bytes in %d results", r.bytes, len(r.byCall))
	}
}
