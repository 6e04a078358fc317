package graph

// edges are what a node knows of its parents and its children. They are only for
// the goroutine that owns the graph.
type edges struct {
	// children lists the nodes to tell when this one is done; released then.
	children   []*Node
	firstChild [1]*Node // backs children while there is one
	// unsettled counts the parents that are not done.
	unsettled int32
	// troubled: some parent is done and did not succeed.
	troubled bool
	// handled: an all-done node sees this failure, directly or through skipped nodes.
	handled bool
	parent  bool // some node has this one as a parent
}

// addChild registers c to be told when the node is done.
func (e *edges) addChild(c *Node) {
	if e.children == nil {
		e.children = e.firstChild[:0]
	}
	e.children = append(e.children, c)
}

// parentDone is told by a parent that is done.
func (e *edges) parentDone(succeeded bool) {
	e.unsettled--
	e.troubled = e.troubled || !succeeded
}

// dropChildren releases those that have been told.
func (e *edges) dropChildren() { e.children, e.firstChild[0] = nil, nil }

// unlink forgets the parents, which are linked again.
func (e *edges) unlink() { e.unsettled, e.troubled = 0, false }
