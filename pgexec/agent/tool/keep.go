package tool

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/pgexec/runtime/pgexec"
)

// maxPlain is the size, in bytes, of an output that is recorded as it is.
const maxPlain = 32 << 10

// kept is the output of a call whose result is large. Each later turn reads what
// calls came to, so the record has what the model sees; the whole is beside it.
type kept struct {
	Content []json.RawMessage `json:"content"`
	IsError bool              `json:"is_error,omitempty"`
	Whole   *pgexec.BlobRef   `json:"whole"`
}

// textPart is a text in the content of an output.
type textPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// keep returns the output to record for one that a tool gave.
func keep(ctx context.Context, n *pgexec.Node, spec *Spec, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) <= maxPlain {
		return raw, nil
	}
	s := &shown{n: n, node: n.ID(), left: maxOutput(spec)}
	isError, err := s.show(ctx, spec, raw)
	if err != nil {
		return nil, err
	}
	whole, err := n.PutBlob(ctx, "application/json", bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	out := kept{IsError: isError, Whole: &whole}
	for _, p := range s.end() {
		var part any = textPart{"text", p.Text}
		if p.Image != nil {
			if part, err = n.PutBlob(ctx, p.Image.MediaType, bytes.NewReader(p.Image.Data)); err != nil {
				return nil, err
			}
		}
		raw, err := EncodeJSON(part)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, raw)
	}
	return EncodeJSON(out)
}

// kept shows an output of [keep], which is cut already.
func (s *shown) kept(ctx context.Context, raw json.RawMessage) (known, isError bool, err error) {
	var out kept
	if json.Unmarshal(raw, &out) != nil || out.Whole == nil {
		return false, false, nil
	}
	for _, part := range out.Content {
		var p textPart
		if json.Unmarshal(part, &p) == nil && p.Type == "text" {
			s.note("%s", p.Text)
			continue
		}
		if _, err := s.blob(ctx, part); err != nil {
			return true, out.IsError, err
		}
	}
	return true, out.IsError, nil
}
