// Package slab hands out values from pieces of many at once, for values that are kept about equally long: allocating and
// marking them one by one is most of what building a large structure costs.
package slab

// maxPiece is the most values of a piece that nobody asked for at once.
const maxPiece = 64

// Slab hands out values. The zero value is ready. Not safe for concurrent use.
type Slab[T any] struct {
	free []T
	size int
}

// Take returns n zero values, which nobody else has. While one value of a piece is reachable its whole piece is: the first
// piece is of one value, the later ones of up to 64.
func (s *Slab[T]) Take(n int) []T {
	if len(s.free) < n {
		s.size = min(max(2*s.size, 1), maxPiece)
		s.free = make([]T, max(s.size, n))
	}
	taken := s.free[:n:n]
	s.free = s.free[n:]
	return taken
}
