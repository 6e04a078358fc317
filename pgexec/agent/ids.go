package agent

import (
	"fmt"

	"github.com/pgexec/runtime/pgexec"
)

// Kinds of the nodes of an agent's run, beside those of its tools.
const (
	kindAgent   = "agent"
	kindTurn    = "turn"
	kindCompact = "compact"
	kindAnswer  = "answer"
)

// messageSignal is the name of the signal that brings an interactive agent what a user says.
const messageSignal = "message"

func turnID(n int) pgexec.NodeID    { return numbered("turn", n) }
func compactID(n int) pgexec.NodeID { return numbered("compact", n) }

// messageID is the node that waits for a user's next message after turn n.
func messageID(n int) pgexec.NodeID { return numbered("message", n) }

// inboxID is the node that takes up what a user said while the calls of turn n ran.
func inboxID(n int) pgexec.NodeID { return numbered("inbox", n) }

// callID is the node of a call, the kth (from 1) of a turn, as package tool names it.
func callID(turn, k int) pgexec.NodeID { return numbered(fmt.Sprintf("call-%d", turn), k) }

func numbered(kind string, n int) pgexec.NodeID {
	return pgexec.NodeID(fmt.Sprintf("%s-%d", kind, n))
}
