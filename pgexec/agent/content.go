package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/definition"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// maxImage bounds, in bytes, an image that a model is sent.
var maxImage = map[string]int64{string(llm.OpenAI): 20 << 20, string(llm.Anthropic): 5 << 20}

// imageTypes are what providers take.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

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

// partsOf makes parts as a model gets them. Bytes of blobs are read with the rights
// of the node. In the place of an image that the provider would refuse, with the whole
// conversation and for ever, the model is told of it.
func (s *scene) partsOf(ctx context.Context, content definition.Content) ([]llm.Part, error) {
	parts := make([]llm.Part, len(content))
	for i, p := range content {
		if p.Image == nil {
			parts[i] = llm.Part{Text: p.Text}
			continue
		}
		var err error
		if parts[i], err = s.imageOf(ctx, p.Image); err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
	}
	return parts, nil
}

func (s *scene) imageOf(ctx context.Context, from *definition.Image) (llm.Part, error) {
	if from.URL != "" {
		return llm.Part{Image: &llm.Image{URL: from.URL}}, nil
	}
	image, size, blob := &llm.Image{MediaType: from.MediaType, Data: from.Data}, int64(len(from.Data)), pgexec.BlobRef{}
	if from.Blob != nil {
		if err := json.Unmarshal(fmt.Appendf(nil, `{"$blob":%s}`, from.Blob), &blob); err != nil {
			return llm.Part{}, pgexec.Permanent(err)
		}
		image.MediaType, size = blob.MediaType, blob.Size
	}
	most := maxImage[s.def.Provider]
	if size == 0 || size > most || !slices.Contains(imageTypes, image.MediaType) {
		return llm.Part{Text: fmt.Sprintf("[an image of type %.100s and %d bytes is not shown: it must be PNG, JPEG, GIF or WebP, of up to %d bytes]", image.MediaType, size, most)}, nil
	}
	if from.Blob == nil {
		return llm.Part{Image: image}, nil
	}
	r, err := s.n.OpenBlob(ctx, blob)
	if err != nil {
		return llm.Part{}, err
	}
	defer r.Close()
	image.Data, err = io.ReadAll(r)
	return llm.Part{Image: image}, err
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
