package definition

import (
	"encoding/json"
	"fmt"
)

// Input is that of a run of kind agent: either a prompt or messages.
type Input struct {
	Agent    string         `json:"agent"`
	Prompt   string         `json:"prompt,omitempty"`
	Messages []InputMessage `json:"messages,omitempty"`
	// Continue is the id of an ended run whose conversation comes before.
	Continue string `json:"continue,omitempty"`
}

// InputMessage is a message of a user or of an assistant.
type InputMessage struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

// Content is a message's parts, in JSON also a text for one that has only that.
type Content []Part

// Part is a text, or an image if there is one.
type Part struct {
	Text  string `json:"text,omitempty"`
	Image *Image `json:"image,omitempty"`
}

// Image is one of the three: a blob {"url", "size", "sha256", "media_type"}, an
// address that the provider fetches, or bytes of a media type.
type Image struct {
	Blob      json.RawMessage `json:"$blob,omitempty"`
	URL       string          `json:"url,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
	Data      []byte          `json:"data,omitempty"`
}

// UnmarshalJSON reads a list of parts, or a text.
func (c *Content) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		*c = Content{{}}
		return json.Unmarshal(raw, &(*c)[0].Text)
	}
	return json.Unmarshal(raw, (*[]Part)(c))
}

// ParseInput reads and checks the input of a run of kind agent. An [*Error] names the field that is wrong.
func ParseInput(raw []byte) (*Input, error) {
	v, err := parse(readInputSchema(), raw)
	if err != nil {
		return nil, err
	}
	in := new(Input)
	if err := convert(v, in); err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	if n := len(in.Messages); n > 0 && in.Messages[n-1].Role != "user" {
		return nil, problem(fmt.Sprintf("messages[%d].role", n-1), ` is "assistant", must be "user": the last message is what the model answers`)
	}
	return in, nil
}
