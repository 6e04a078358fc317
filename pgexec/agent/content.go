package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// maxImage bounds, in bytes, an image that a model is sent.
const maxImage = 20 << 20

// said makes the content of a message from the payload of a signal. A person may
// send a text, a list of parts, or either of them as "text" or "content" of an
// object; whatever else it is, the model sees the JSON.
func said(payload json.RawMessage) definition.Content {
	var wrapped struct {
		Text    json.RawMessage `json:"text"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(payload, &wrapped) // what does not fit is shown as it is
	for _, raw := range []json.RawMessage{payload, wrapped.Text, wrapped.Content} {
		if content, ok := contentOf(raw); ok {
			return content
		}
	}
	return definition.Content{{Text: string(payload)}}
}

// isEnd reports whether a message is {"end": true}, the one that ends a conversation.
func isEnd(payload json.RawMessage) bool {
	var m struct{ End bool }
	return json.Unmarshal(payload, &m) == nil && m.End
}

// contentOf reads content by the rules for the input of a run.
func contentOf(raw json.RawMessage) (definition.Content, bool) {
	if len(raw) == 0 {
		return nil, false
	}
	in, err := definition.ParseInput(fmt.Appendf(nil, `{"agent":"any","messages":[{"role":"user","content":%s}]}`, raw))
	if err != nil || isBlank(in.Messages[0].Content) {
		return nil, false
	}
	return in.Messages[0].Content, true
}

// isBlank reports whether content says nothing, which no provider takes.
func isBlank(content definition.Content) bool {
	for _, p := range content {
		if p.Image != nil || trimmed(p.Text) != "" {
			return false
		}
	}
	return true
}

// partsOf makes parts as a model gets them. Bytes of blobs are read with the rights of the node.
func partsOf(ctx context.Context, n *pgexec.Node, content definition.Content) ([]llm.Part, error) {
	parts := make([]llm.Part, len(content))
	for i, p := range content {
		if p.Image == nil {
			parts[i] = llm.Part{Text: p.Text}
			continue
		}
		image := &llm.Image{URL: p.Image.URL, MediaType: p.Image.MediaType, Data: p.Image.Data}
		if p.Image.Blob != nil {
			var err error
			if image.MediaType, image.Data, err = readBlob(ctx, n, p.Image.Blob); err != nil {
				return nil, fmt.Errorf("image: %w", err)
			}
		}
		parts[i] = llm.Part{Image: image}
	}
	return parts, nil
}

func readBlob(ctx context.Context, n *pgexec.Node, fields json.RawMessage) (mediaType string, data []byte, err error) {
	var ref pgexec.BlobRef
	if err := json.Unmarshal(fmt.Appendf(nil, `{"$blob":%s}`, fields), &ref); err != nil {
		return "", nil, pgexec.Permanent(err)
	}
	if ref.Size > maxImage {
		return "", nil, pgexec.Permanent(fmt.Errorf("blob %s has %d bytes; a model is sent %d at most", ref.URL, ref.Size, maxImage))
	}
	r, err := n.OpenBlob(ctx, ref)
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	data, err = io.ReadAll(r)
	return ref.MediaType, data, err
}

// blobFields is the inside of {"$blob": {…}}.
func blobFields(ref pgexec.BlobRef) (json.RawMessage, error) {
	raw, err := json.Marshal(ref)
	if err != nil {
		return nil, err
	}
	var outer struct {
		Blob json.RawMessage `json:"$blob"`
	}
	err = json.Unmarshal(raw, &outer)
	return outer.Blob, err
}

func plainText(content definition.Content) string {
	var texts []llm.Part
	for _, p := range content {
		if p.Image == nil {
			texts = append(texts, llm.Part{Text: p.Text})
		}
	}
	return textOf(texts)
}
