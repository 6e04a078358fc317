package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/pgexec/agent/tool"
)

// scene is what a node of an agent's run finds in the log.
type scene struct {
	n     *pgexec.Node
	nodes map[pgexec.NodeID]*pgexec.Ancestor
	def   *definition.Definition
	tools []tool.Spec
	open  opening
	past  []past
	// heard is what users said after the last turn of past, and ended whether one of them ended the conversation.
	heard []llm.Message
	ended bool
	// results are those that are remembered; nil of a former run.
	results *results
	// former: the run has ended, maybe in the middle of a turn.
	former bool
}

// ancestors are all nodes before a node, by id.
func ancestors(parents []*pgexec.Ancestor) map[pgexec.NodeID]*pgexec.Ancestor {
	found := make(map[pgexec.NodeID]*pgexec.Ancestor)
	for todo := parents; len(todo) > 0; {
		a := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if found[a.ID()] == nil {
			found[a.ID()] = a
			todo = append(todo, a.Parents()...)
		}
	}
	return found
}

// look reads the log for a node that comes after the given turn, 0 for none.
func (a *Agents) look(ctx context.Context, n *pgexec.Node, turns int) (*scene, error) {
	s := &scene{n: n, nodes: ancestors(n.Parents()), results: a.results}
	return s, s.read(ctx, turns)
}

// read fills a scene from the nodes of a run, this one's or a former one's.
func (s *scene) read(ctx context.Context, turns int) error {
	root := s.nodes[pgexec.RootID]
	if root == nil || root.Kind() != kindAgent {
		return pgexec.Permanent(fmt.Errorf("kind %s is for runs of kind %s only", s.n.Kind(), kindAgent))
	}
	if err := s.readRoot(ctx, root); err != nil {
		return err
	}
	for i := 1; i <= turns; i++ {
		p, err := s.readPast(ctx, i, i < turns)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i, err)
		}
		s.past = append(s.past, *p)
	}
	var err error
	s.heard, err = s.saidAfter(ctx, turns)
	return err
}

func (s *scene) readRoot(ctx context.Context, root *pgexec.Ancestor) error {
	var out rootOutput
	if err := root.Output(&out); err != nil {
		return err
	}
	input, err := root.RawInput()
	if err != nil {
		return err
	}
	// Both were checked when the run began. Another version of this program may have
	// done that, which knows other fields.
	in := new(definition.Input)
	if err := json.Unmarshal(input, in); err != nil {
		return fmt.Errorf("input of the run: %w", err)
	}
	s.def = new(definition.Definition)
	if err := json.Unmarshal(out.Definition, s.def); err != nil {
		return fmt.Errorf("definition of the run: %w", err)
	}
	s.tools = out.Tools
	if s.open.history, err = s.restore(ctx, out.History); err != nil {
		return err
	}
	s.open.prompt, err = s.prompt(ctx, in)
	return err
}

// readPast reads what turn i and its calls came to; settled says that a later turn has come after them.
func (s *scene) readPast(ctx context.Context, i int, settled bool) (*past, error) {
	p := &past{number: i}
	node := s.nodes[turnID(i)]
	if node == nil {
		return nil, pgexec.Permanent(fmt.Errorf("there is no node %s", turnID(i)))
	}
	raw, err := node.RawOutput()
	if err != nil {
		return nil, err
	}
	if p.turn, err = decodeTurn(raw); err != nil {
		return nil, err
	}
	if p.before, err = s.saidAfter(ctx, i-1); err != nil {
		return nil, err
	}
	if p.turn.Message != nil {
		if err := s.readCalls(ctx, p, settled); err != nil {
			return nil, err
		}
	}
	if c := s.nodes[compactID(i)]; c != nil && c.Status() == pgexec.StatusSucceeded {
		p.summary = new(compactOutput)
		if err := c.Output(p.summary); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (s *scene) readCalls(ctx context.Context, p *past, settled bool) (err error) {
	p.turn.text, p.calls, err = llm.ParseAssistant(llm.Provider(s.def.Provider), p.turn.Message)
	if err != nil {
		return err
	}
	for k := range p.calls {
		call := &p.calls[k]
		if p.turn.Refused != "" {
			call.Args, call.Fault = nil, p.turn.Refused
		}
		result := notRun(call, p.turn.Held)
		if p.turn.Held == "" || k < p.turn.HeldFrom {
			if result, err = s.result(ctx, p.number, k+1, call, settled); err != nil {
				return fmt.Errorf("result of call %d: %w", k+1, err)
			}
		}
		p.results = append(p.results, result)
	}
	return nil
}

func (s *scene) callsOf(turn int) *tool.Calls {
	return &tool.Calls{Node: s.n, Specs: s.tools, Turn: turn, Ancestors: s.nodes}
}

// result is what call k, from 1, of a turn gave.
func (s *scene) result(ctx context.Context, turn, k int, call *llm.Call, settled bool) (llm.Message, error) {
	key := callKey{s.n.RunID(), turn, k}
	if s.former {
		return s.formerResult(ctx, turn, k, call)
	}
	if m, ok := s.results.get(key); ok {
		return m, nil
	}
	m, err := s.callsOf(turn).Result(ctx, k, *call)
	if err == nil && settled && !m.IsError {
		s.results.put(key, m)
	}
	return m, err
}

// formerResult is the result of a call of a run that ended, maybe before the call did.
func (s *scene) formerResult(ctx context.Context, turn, k int, call *llm.Call) (llm.Message, error) {
	m, err := s.callsOf(turn).Result(ctx, k, *call)
	if err != nil && s.nodes[callID(turn, k)] == nil {
		return notRun(call, "the run ended before"), nil
	}
	return m, err
}

// notRun is the result of a call that was not made.
func notRun(call *llm.Call, why string) llm.Message {
	return llm.Message{
		Role: llm.RoleTool, CallID: call.ID, Name: call.Name, IsError: true,
		Parts: []llm.Part{{Text: "error: not run: " + why}},
	}
}

// saidAfter is what users said after turn i and before the next one.
func (s *scene) saidAfter(ctx context.Context, i int) ([]llm.Message, error) {
	var messages []llm.Message
	for _, id := range []pgexec.NodeID{inboxID(i), messageID(i)} {
		node := s.nodes[id]
		if node == nil || node.Status() != pgexec.StatusSucceeded {
			continue
		}
		payload, err := node.RawOutput()
		if err != nil {
			return nil, err
		}
		if id == inboxID(i) && string(payload) == "null" {
			continue // nobody said anything
		}
		if isEnd(payload) {
			s.ended = true
			continue
		}
		parts, err := s.partsOf(ctx, said(payload))
		if err != nil {
			return nil, err
		}
		messages = append(messages, llm.Message{Role: llm.RoleUser, Parts: parts})
	}
	return messages, nil
}

// prompt is what the run was asked.
func (s *scene) prompt(ctx context.Context, in *definition.Input) ([]llm.Message, error) {
	if in.Messages == nil {
		return []llm.Message{userText(in.Prompt)}, nil
	}
	var messages []llm.Message
	for _, m := range in.Messages {
		message := llm.Message{Role: llm.Role(m.Role)}
		var err error
		if message.Role == llm.RoleAssistant {
			message.Raw, err = llm.AssistantMessage(llm.Provider(s.def.Provider), plainText(m.Content), nil)
		} else {
			message.Parts, err = s.partsOf(ctx, m.Content)
		}
		if err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}
