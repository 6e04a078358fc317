// Package target has benchmarks fail that miss what they are to reach, where somebody asks for that.
//
// # Guarantees
//
//   - Without the variable nothing fails; with it whatever misses its target does: TestTarget_OnlyWhenAsked.
package target

import (
	"cmp"
	"os"
)

// Env is the variable that asks for it, by the value 1.
const Env = "PGEXEC_BENCH_ENFORCE"

// Benchmark is what a [testing.B] is here.
type Benchmark interface {
	Helper()
	Errorf(format string, args ...any)
}

// AtMost fails the benchmark if what was measured is more, or no number.
func AtMost[T cmp.Ordered](b Benchmark, what string, got, most T) {
	b.Helper()
	if enforced() && !(got <= most) {
		b.Errorf("%s: %v, want at most %v", what, got, most)
	}
}

// AtLeast fails the benchmark if what was measured is less, or no number.
func AtLeast[T cmp.Ordered](b Benchmark, what string, got, least T) {
	b.Helper()
	if enforced() && !(got >= least) {
		b.Errorf("%s: %v, want at least %v", what, got, least)
	}
}

func enforced() bool { return os.Getenv(Env) == "1" }
