package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
	"github.com/pgexec/runtime/sql"
)

// saved is a message of a former run, as the root of the one that continues it
// keeps it. Bytes of images are in blobs.
type saved struct {
	Role    llm.Role           `json:"role"`
	Parts   definition.Content `json:"parts,omitempty"`
	Raw     json.RawMessage    `json:"raw,omitempty"`
	CallID  string             `json:"call_id,omitempty"`
	Name    string             `json:"name,omitempty"`
	IsError bool               `json:"is_error,omitempty"`
}

// history is the conversation of a run that has ended, for an agent of maybe
// another provider.
func (a *Agents) history(ctx context.Context, n *pgexec.Node, def *definition.Definition, run string) ([]saved, error) {
	id, err := a.former(ctx, n, run)
	if err != nil {
		return nil, err
	}
	nodes, err := n.NodesOf(ctx, a.cfg.Pool, id)
	if err != nil {
		return nil, fmt.Errorf("continue run %s: %w", id, err)
	}
	s := &scene{n: n, nodes: nodes, former: true}
	turns := 0
	for nodes[turnID(turns+1)] != nil && nodes[turnID(turns+1)].Status() == pgexec.StatusSucceeded {
		turns++
	}
	if err := s.read(ctx, turns); err != nil {
		return nil, fmt.Errorf("continue run %s: %w", id, err)
	}
	var list []saved
	other := newTranslator(s.def, def)
	for _, m := range append(conversation(&s.open, s.past), s.heard...) {
		kept, err := save(ctx, n, &m)
		if err == nil {
			err = other.translate(kept)
		}
		if err != nil {
			return nil, fmt.Errorf("continue run %s: %w", id, err)
		}
		list = append(list, *kept)
	}
	return list, nil
}

// former checks that a run may be continued by this one: it has ended, and the same role made it.
func (a *Agents) former(ctx context.Context, n *pgexec.Node, run string) (id pgexec.RunID, err error) {
	var status, kind string
	err = a.cfg.Pool.QueryRow(ctx, sql.AgentFormer, run, n.RunID()).Scan(&id, &kind, &status)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = fmt.Errorf("continue: there is no run %s of this role", run)
	case err != nil:
		return id, fmt.Errorf("read run %s: %w", run, err)
	case kind != kindAgent:
		err = fmt.Errorf("continue: run %s is of kind %q, want one of kind %q", run, kind, kindAgent)
	case !pgexec.RunStatus(status).Final():
		err = fmt.Errorf("continue: run %s is %s; it must have ended", run, status)
	}
	return id, pgexec.Permanent(pgexec.WithCode(err, "bad_input"))
}

// translator writes a conversation with one server as another may be sent it, in
// the form that all of them take. What the model thought is lost, which nobody else
// can read, and so are fields of a server's own; calls get new ids, since those of
// one provider may have characters that another refuses.
type translator struct {
	from, to llm.Provider
	same     bool // nothing is to be done
	ids      map[string]string
}

func newTranslator(from, to *definition.Definition) *translator {
	return &translator{
		from: llm.Provider(from.Provider), to: llm.Provider(to.Provider),
		same: from.Provider == to.Provider && from.BaseURL == to.BaseURL, ids: make(map[string]string),
	}
}

func (t *translator) translate(m *saved) error {
	if t.same {
		return nil
	}
	if m.Role != llm.RoleAssistant {
		m.CallID = t.ids[m.CallID]
		return nil
	}
	text, calls, err := llm.ParseAssistant(t.from, m.Raw)
	if err != nil {
		return err
	}
	for i := range calls {
		id := fmt.Sprintf("call_former_%d", len(t.ids)+1)
		t.ids[calls[i].ID], calls[i].ID = id, id
	}
	m.Raw, err = llm.AssistantMessage(t.to, text, calls)
	return err
}

func save(ctx context.Context, n *pgexec.Node, m *llm.Message) (*saved, error) {
	s := &saved{Role: m.Role, Raw: m.Raw, CallID: m.CallID, Name: m.Name, IsError: m.IsError}
	for _, p := range m.Parts {
		switch image := p.Image; {
		case image == nil:
			s.Parts = append(s.Parts, definition.Part{Text: p.Text})
		case image.URL != "":
			s.Parts = append(s.Parts, definition.Part{Image: &definition.Image{URL: image.URL}})
		default:
			ref, err := n.PutBlob(ctx, image.MediaType, bytes.NewReader(image.Data))
			if err != nil {
				return nil, err
			}
			fields, err := blobFields(ref)
			if err != nil {
				return nil, err
			}
			s.Parts = append(s.Parts, definition.Part{Image: &definition.Image{Blob: fields}})
		}
	}
	return s, nil
}

// restore is the reverse of save.
func (s *scene) restore(ctx context.Context, list []saved) ([]llm.Message, error) {
	var messages []llm.Message
	for _, m := range list {
		parts, err := s.partsOf(ctx, m.Parts)
		if err != nil {
			return nil, err
		}
		messages = append(messages, llm.Message{Role: m.Role, Parts: parts, Raw: m.Raw, CallID: m.CallID, Name: m.Name, IsError: m.IsError})
	}
	return messages, nil
}
