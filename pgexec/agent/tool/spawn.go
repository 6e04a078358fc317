package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// SignalAnswer is the name of the signal that answers a question to a person, or an
// MCP server's request for input. It is addressed to the node that waits.
const SignalAnswer = "answer"

// maxSleep bounds a wait that a model asks for.
const maxSleep = 30 * 24 * time.Hour

// callID is the node of a call, the kth (from 1) of a turn.
func callID(turn, k int) pgexec.NodeID { return id("call", turn, k) }

// approvalID is the node in which a person decides about it.
func approvalID(turn, k int) pgexec.NodeID { return id("approval", turn, k) }

func id(what string, turn, k int) pgexec.NodeID {
	return pgexec.NodeID(fmt.Sprintf("%s-%d-%d", what, turn, k))
}

// About says to people what a node waits for.
type About struct {
	Tool string `json:"tool"`
	// Question is what a model asks.
	Question string `json:"question,omitempty"`
	// Requests are what an MCP server asks.
	Requests json.RawMessage `json:"requests,omitempty"`
}

// Calls are the calls of one turn of a run.
type Calls struct {
	// Node is what spawns them, or looks at what came of them.
	Node *pgexec.Node
	// Specs are the run's pinned tools.
	Specs []Spec
	Turn  int
	// Ancestors are those of Node; read by Result only.
	Ancestors map[pgexec.NodeID]*pgexec.Ancestor
}

// Spawn makes a node of a call, the kth (from 1) of the turn, and returns it. A call that
// cannot be made gets none; what the model sees of it is [Calls.Result] all the same.
func (c *Calls) Spawn(k int, call llm.Call) (pgexec.NodeRef, bool) {
	if refusal(c.Specs, &call) != "" {
		return pgexec.NodeRef{}, false
	}
	spec := find(c.Specs, call.Name)
	if !spec.Approval {
		kind, input := spec.node(call.Args)
		return c.Node.Spawn(kind, input, spec.options(callID(c.Turn, k))), true
	}
	approval := c.Node.Spawn(pgexec.KindApproval, pgexec.ApprovalInput{About: About{Tool: spec.Name}, Args: call.Args},
		&pgexec.SpawnOpts{ID: approvalID(c.Turn, k)})
	kind, input := spec.approvedNode(approvalID(c.Turn, k))
	opts := spec.options(callID(c.Turn, k))
	opts.After, opts.InputRefs = []pgexec.NodeRef{approval}, true
	return c.Node.Spawn(kind, input, opts), true
}

// refusal says to the model why a call cannot be made, "" if it can. It depends on
// nothing but the call and the pinned tools.
func refusal(specs []Spec, call *llm.Call) string {
	if call.Fault != "" {
		return call.Fault
	}
	spec := find(specs, call.Name)
	if spec == nil {
		return fmt.Sprintf("there is no tool %q; %s", call.Name, known(specs))
	}
	args, err := arguments(call.Args)
	if err != nil {
		return err.Error()
	}
	switch spec.Type {
	case definition.TypeAgent:
		return textProblem(args, "prompt")
	case definition.TypeSignal:
		return textProblem(args, "question")
	case definition.TypeSleep:
		_, problem := sleepFor(args)
		return problem
	}
	return ""
}

func known(specs []Spec) string {
	if len(specs) == 0 {
		return "there are none"
	}
	list := make([]string, len(specs))
	for i, s := range specs {
		list[i] = s.Name
	}
	return "the tools are " + strings.Join(list, ", ")
}

// textProblem says what is wrong with an argument that must be a text.
func textProblem(args map[string]json.RawMessage, name string) string {
	if strings.TrimSpace(text(args[name])) == "" {
		return fmt.Sprintf("the argument %s is missing: a text that is not empty", name)
	}
	return ""
}

// text is the text of a JSON string, "" of anything else.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func sleepFor(args map[string]json.RawMessage) (time.Duration, string) {
	var s float64
	if err := json.Unmarshal(args["seconds"], &s); err != nil || !(s > 0) || s > maxSleep.Seconds() {
		return 0, fmt.Sprintf("the argument seconds must be a number above 0, at most %.0f", maxSleep.Seconds())
	}
	return time.Duration(s * float64(time.Second)), ""
}

// node is the node of a call with these arguments.
func (s *Spec) node(args json.RawMessage) (kind string, input any) {
	switch s.Type {
	case definition.TypeKind:
		return s.Kind, args
	case definition.TypeSignal, definition.TypeSleep, definition.TypeAgent:
		by, _ := arguments(args) // they were read before
		switch s.Type {
		case definition.TypeSignal:
			return pgexec.KindSignal, s.question(text(by["question"]))
		case definition.TypeSleep:
			d, _ := sleepFor(by)
			return pgexec.KindSleep, pgexec.SleepInput{For: d.String()}
		}
		return pgexec.KindRun, s.run(by["prompt"])
	default:
		return s.ownKind(), callInput{Tool: s.Name, Args: args}
	}
}

// approvedNode is the node of a call whose arguments are what a person approved.
func (s *Spec) approvedNode(approval pgexec.NodeID) (kind string, input any) {
	ref := func(pointer string) json.RawMessage { return fmt.Appendf(nil, `{"$ref":"%s#%s"}`, approval, pointer) }
	switch s.Type {
	case definition.TypeKind:
		return s.Kind, ref("/args")
	case definition.TypeAgent:
		return pgexec.KindRun, s.run(ref("/args/prompt"))
	default:
		return s.ownKind(), callInput{Tool: s.Name, Args: ref("/args")}
	}
}

func (s *Spec) ownKind() string {
	switch s.Type {
	case definition.TypeHTTP:
		return kindHTTP
	case definition.TypeSQL:
		return kindSQL
	default:
		return kindMCP
	}
}

func (s *Spec) question(question string) pgexec.SignalInput {
	in := pgexec.SignalInput{Name: SignalAnswer, About: About{Tool: s.Name, Question: question}}
	if s.Timeout > 0 {
		in.Timeout = time.Duration(s.Timeout).String()
	}
	return in
}

// run is the input of a sub-agent's node.
func (s *Spec) run(prompt json.RawMessage) pgexec.RunInput {
	in := pgexec.RunInput{Kind: "agent", Input: map[string]any{"agent": s.Agent, "prompt": prompt}}
	if l := s.Limits; l != nil {
		in.MaxTokens, in.MaxCostUSD, in.MaxWallMs = l.MaxTokens, l.MaxCostUSD, time.Duration(l.MaxWall).Milliseconds()
	}
	return in
}

// options are those of a call's node.
func (s *Spec) options(id pgexec.NodeID) *pgexec.SpawnOpts {
	opts := &pgexec.SpawnOpts{ID: id}
	opts.Retry.MaxAttempts = s.MaxAttempts
	if s.Type == definition.TypeMCP || s.Type == definition.TypeKind { // others bound themselves
		opts.Timeout = time.Duration(s.Timeout)
	}
	switch s.AtMostOnce {
	case "fail":
		opts.AtMostOnce = pgexec.UnknownFails
	case "ask":
		opts.AtMostOnce = pgexec.UnknownAsks
	}
	return opts
}
