// Package agent has the stock agent: kinds of nodes that make a run of kind
// agent out of a definition in pgexec.agents, without any code of the user.
//
// A run is a graph of model turns and tool calls. Node root pins the definition
// and the tools; turn-1, turn-2 … ask the model once each; the calls of turn N are
// call-N-1, call-N-2 …, all at once, and turn N+1 starts when all of them are
// done. A turn records its own assistant message and nothing else: what the model
// is sent is put together from the log each time. docs/agents.md has the rest.
package agent
