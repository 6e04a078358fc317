package target

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// missed keeps what a benchmark fails with.
type missed []string

func (*missed) Helper() {}

func (m *missed) Errorf(format string, args ...any) { *m = append(*m, fmt.Sprintf(format, args...)) }

func TestTarget_OnlyWhenAsked(t *testing.T) {
	for value, want := range map[string]missed{
		"": nil,
		"1": {
			"median: 300ms, want at most 250ms",
			"ratio: NaN, want at most 1.25",
			"ratio: 0.8, want at least 0.9",
			"ratio: NaN, want at least 0.9",
		},
	} {
		t.Setenv(Env, value)
		var got missed
		AtMost(&got, "median", 250*time.Millisecond, 250*time.Millisecond)
		AtMost(&got, "median", 300*time.Millisecond, 250*time.Millisecond)
		AtMost(&got, "ratio", math.NaN(), 1.25)
		AtLeast(&got, "ratio", 0.9, 0.9)
		AtLeast(&got, "ratio", 0.8, 0.9)
		AtLeast(&got, "ratio", math.NaN(), 0.9)
		if !slices.Equal(got, want) {
			t.Errorf("with %s=%s: %q, want %q", Env, value, got, want)
		}
	}
}
