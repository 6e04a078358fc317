// Package graph is the node graph of one run: records in, frontier out.
//
// It is pure. It knows no clock, no database and no goroutine of its own, and
// Apply is the only way a graph changes, so a graph that is being executed and
// one that is rebuilt from its log are the same graph.
//
// # Concurrency
//
// One goroutine owns a Graph and makes all calls but NewID. Handlers that run
// in other goroutines may call NewID, may read the fixed fields of any node they
// reach by walking Parents upward from their own, and may read how such a node
// ended once its Status says that it is done.
//
// # Compatibility
//
// The package is not covered by the compatibility promise of package pgexec.
package graph
