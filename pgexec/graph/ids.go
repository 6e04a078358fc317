package graph

import "strconv"

// NewID returns an id "<kind>-<n>" that no node of this graph has and that it
// does not return again. Numbers that no record uses are given out again after
// rehydration. Safe for concurrent use.
func (g *Graph) NewID(kind string) NodeID {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := g.lastID[kind] + 1; ; n++ {
		id := NodeID(kind + "-" + strconv.FormatUint(n, 10))
		if g.nodes[id] == nil && g.reserved[id] == nil {
			g.lastID[kind] = n
			return id
		}
	}
}

// noteID keeps NewID ahead of the ids in the log. mu must be held.
func (g *Graph) noteID(id NodeID, kind string) {
	if n, ok := idNumber(string(id), kind); ok && n > g.lastID[kind] {
		g.lastID[kind] = n
	}
}

// idNumber returns n if id is what NewID makes of kind and n. Numbers beyond
// 15 digits are no concern: NewID steps over ids that are taken.
func idNumber(id, kind string) (uint64, bool) {
	if len(id) < len(kind)+2 || id[len(kind)] != '-' || id[:len(kind)] != kind {
		return 0, false
	}
	digits := id[len(kind)+1:]
	if len(digits) > 15 || digits[0] == '0' {
		return 0, false
	}
	var n uint64
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(digits[i]-'0')
	}
	return n, true
}
