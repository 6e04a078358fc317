package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"strings"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/mcp"
)

// http shows the body of an answer.
func (s *shown) http(raw json.RawMessage) bool {
	var out struct {
		Status  int                        `json:"status"`
		Headers map[string]json.RawMessage `json:"headers"`
		Body    json.RawMessage            `json:"body"`
		Base64  *[]byte                    `json:"body_base64"`
	}
	if json.Unmarshal(raw, &out) != nil || out.Status == 0 {
		return false
	}
	body := plain(out.Body)
	switch {
	case out.Base64 != nil:
		mediaType, _, _ := mime.ParseMediaType(plain(out.Headers["content-type"]))
		if isText(mediaType) { // in another encoding
			s.text(strings.ToValidUTF8(string(*out.Base64), "\uFFFD"))
			break
		}
		s.image(mediaType, *out.Base64)
	case body == "":
		s.note("(status %d, no body)", out.Status)
	default:
		s.text(body)
	}
	return true
}

// sql shows the rows, or how many a statement without rows wrote.
func (s *shown) sql(raw json.RawMessage) bool {
	var out struct {
		Command string          `json:"command"`
		Count   int64           `json:"row_count"`
		Columns []string        `json:"columns"`
		Rows    json.RawMessage `json:"rows"`
	}
	switch {
	case json.Unmarshal(raw, &out) != nil || out.Command == "":
		return false
	case len(out.Columns) == 0:
		s.text(fmt.Sprintf("%s: %d rows", out.Command, out.Count))
	default:
		s.text(string(out.Rows))
	}
	return true
}

// mcp shows the parts of a result, or its structured form if it has no other.
func (s *shown) mcp(ctx context.Context, raw json.RawMessage) (known, isError bool, err error) {
	var out mcpOutput
	switch {
	case json.Unmarshal(raw, &out) != nil || out.Content == nil:
		return false, false, nil
	case out.Needs != nil:
		s.note("error: the tool needs an answer of a person first, which is not there yet")
		return true, true, nil
	case out.IsError:
		s.note("error:")
	}
	for _, part := range out.Content {
		p := mcp.ParsePart(part)
		if p.Type == mcp.Text {
			s.text(p.Text)
			continue
		}
		known, err := s.blob(ctx, part)
		if err != nil {
			return true, out.IsError, err
		}
		if !known {
			s.text(string(p.Raw))
		}
	}
	if len(out.Content) == 0 && out.Structured != nil {
		s.text(string(out.Structured))
	}
	return true, out.IsError, nil
}

// blob shows the bytes that a value stands for, if it is such a value: an image
// as one, text as text.
func (s *shown) blob(ctx context.Context, raw json.RawMessage) (known bool, err error) {
	var ref pgexec.BlobRef
	if json.Unmarshal(raw, &ref) != nil {
		return false, nil
	}
	if !isText(ref.MediaType) && (ref.Size > maxImage || !imageTypes[ref.MediaType]) {
		s.note("[%d bytes of %s are not shown; they are blob %s]", ref.Size, orUnknown(ref.MediaType), ref.URL)
		return true, nil
	}
	r, err := s.n.OpenBlob(ctx, ref)
	if err != nil {
		return true, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	switch {
	case err != nil:
		return true, err
	case isText(ref.MediaType):
		s.text(strings.ToValidUTF8(string(data), "\uFFFD"))
	default:
		s.image(ref.MediaType, data)
	}
	return true, nil
}

func isText(mediaType string) bool {
	return strings.HasPrefix(mediaType, "text/") || mediaType == "application/json"
}

// agent shows the answer of a sub-agent.
func (s *shown) agent(raw json.RawMessage) bool {
	var out struct {
		Text    *string `json:"text"`
		Refusal string  `json:"refusal"`
	}
	if json.Unmarshal(raw, &out) != nil || out.Text == nil {
		return false
	}
	s.text(*out.Text)
	if out.Refusal != "" {
		s.text("[its model refused: " + out.Refusal + "]")
	}
	return true
}
