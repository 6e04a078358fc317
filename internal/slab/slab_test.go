package slab_test

import (
	"testing"

	"github.com/pgexec/runtime/internal/slab"
)

func TestTake_ValuesAreNobodyElses(t *testing.T) {
	t.Parallel()
	var s slab.Slab[int]
	var all [][]int
	for n := range 200 {
		values := s.Take(n % 70)
		if len(values) != n%70 || cap(values) != n%70 {
			t.Fatalf("%d values with room for %d instead of %d", len(values), cap(values), n%70)
		}
		for i := range values {
			if values[i] != 0 {
				t.Fatalf("value %d of piece %d is %d already", i, n, values[i])
			}
			values[i] = n
		}
		all = append(all, values)
	}
	for n, values := range all {
		for i := range values {
			if values[i] != n {
				t.Fatalf("value %d of piece %d became %d", i, n, values[i])
			}
		}
	}
}

func TestTake_AllocatesSeldom(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	allocs := testing.AllocsPerRun(10, func() {
		var s slab.Slab[[4]int]
		for range 640 {
			s.Take(1)
		}
	})
	if allocs > 20 {
		t.Errorf("640 values took %v allocations", allocs)
	}
}
