package graph

// frontier is the list of ready nodes in the order they became ready.
type frontier struct {
	first, last *Node
	len         int
}

func (f *frontier) push(n *Node) {
	n.prev = f.last
	if f.last == nil {
		f.first = n
	} else {
		f.last.next = n
	}
	f.last = n
	f.len++
}

func (f *frontier) remove(n *Node) {
	if n.prev == nil {
		f.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		f.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
	f.len--
}
