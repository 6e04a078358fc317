package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// Result is what the model sees of a call, the kth (from 1) of the turn. There is one for
// every call (C46): of one that could not be made, was rejected, or failed it says so.
// An error is not about the call but about reading the log, or a mistake of the caller.
func (c *Calls) Result(ctx context.Context, k int, call llm.Call) (llm.Message, error) {
	node, err := last(c.Ancestors, c.Turn, k)
	if err != nil {
		return llm.Message{}, err
	}
	spec := find(c.Specs, call.Name)
	if node == nil || spec == nil {
		words := refusal(c.Specs, &call)
		if words == "" {
			return llm.Message{}, pgexec.Permanent(fmt.Errorf("there is no node %s", callID(c.Turn, k)))
		}
		return failure(&call, words, nil), nil
	}
	approval := c.Ancestors[approvalID(c.Turn, k)]
	switch node.Status() {
	case pgexec.StatusSkipped:
		return failure(&call, notApproved(approval), spec), nil
	case pgexec.StatusFailed:
		return failure(&call, node.Err().Error(), spec), nil
	}
	raw, err := node.RawOutput()
	if err != nil {
		return llm.Message{}, err
	}
	s := &shown{n: c.Node, node: node.ID(), left: maxOutput(spec)}
	if err := s.edited(approval, &call); err != nil {
		return llm.Message{}, err
	}
	isError, err := s.show(ctx, spec, raw)
	if err != nil {
		return llm.Message{}, err
	}
	return llm.Message{Role: llm.RoleTool, CallID: call.ID, Name: call.Name, IsError: isError, Parts: s.end()}, nil
}

// Open returns the nodes that calls of a turn still wait for, of k calls: those in
// which an MCP server's request for input is answered and the call goes on. A turn
// that comes after them sees results; before, [Calls.Result] says that there is none.
func Open(ancestors map[pgexec.NodeID]*pgexec.Ancestor, turn, calls int) ([]pgexec.NodeRef, error) {
	var open []pgexec.NodeRef
	for k := 1; k <= calls; k++ {
		node, err := last(ancestors, turn, k)
		if err != nil {
			return nil, err
		}
		next, err := goesOn(node)
		if err != nil {
			return nil, err
		}
		if next != "" {
			open = append(open, pgexec.Ref(next))
		}
	}
	return open, nil
}

// last is the node that ends a call as far as it has come; nil if it has none.
func last(ancestors map[pgexec.NodeID]*pgexec.Ancestor, turn, k int) (*pgexec.Ancestor, error) {
	node := ancestors[callID(turn, k)]
	for {
		next, err := goesOn(node)
		if err != nil || next == "" || ancestors[next] == nil {
			return node, err
		}
		node = ancestors[next]
	}
}

// goesOn is the node in which a call goes on when its input is there, "" if it has ended.
func goesOn(node *pgexec.Ancestor) (pgexec.NodeID, error) {
	if node == nil || node.Kind() != kindMCP || node.Status() != pgexec.StatusSucceeded {
		return "", nil
	}
	raw, err := node.RawOutput()
	if err != nil {
		return "", err
	}
	var out mcpOutput
	if json.Unmarshal(raw, &out) != nil || out.Needs == nil {
		return "", nil // a person said what it is
	}
	return out.Needs.Call, nil
}

// notApproved says why a call was skipped.
func notApproved(approval *pgexec.Ancestor) string {
	if approval == nil || approval.Err() == nil {
		return "not run: a node before it did not succeed"
	}
	words := approval.Err().Error()
	if reason, ok := strings.CutPrefix(words, "rejected"); ok {
		return "not run: a person rejected this call" + reason
	}
	return "not run: it was not approved: " + words
}

// failure is the result of a call that was not made or brought nothing.
func failure(call *llm.Call, words string, spec *Spec) llm.Message {
	return llm.Message{
		Role: llm.RoleTool, CallID: call.ID, Name: call.Name, IsError: true,
		Parts: []llm.Part{{Text: "error: " + clip(words, maxOutput(spec))}},
	}
}

// defaultMaxOutput is that of tools whose definition cannot say it, in bytes.
const defaultMaxOutput = 16 << 10

func maxOutput(spec *Spec) int {
	if spec == nil || spec.MaxOutput == 0 {
		return defaultMaxOutput
	}
	return spec.MaxOutput
}
