// Package tool does the tools of an agent's definition: it pins what the model may
// call, makes a node of each call, and says what the model sees of what came of it.
//
// A call of turn N, the kth of that turn, is the node call-N-k; where a person has to
// approve it, approval-N-k comes before. What the model sees is a function of
// these nodes alone, so it is the same on every replica.
package tool
