package llm

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// openAIFormat is chat completions.
type openAIFormat struct{}

// head is empty: the system prompt is a message.
func (openAIFormat) head(*object, *Request) {}

func (openAIFormat) tool(t *Tool, _ bool, _ *Request) []byte {
	f := newObject()
	f.add("name", quote(t.Name))
	f.add("description", quote(t.Description))
	f.add("parameters", t.Schema)
	return typed("function", "function", f.bytes())
}

func (openAIFormat) choice(o *object, r *Request) {
	if r.ToolChoice != "" {
		o.add("tool_choice", quote(r.ToolChoice))
	}
	if r.ParallelCalls != nil {
		o.add("parallel_tool_calls", strconv.AppendBool(nil, *r.ParallelCalls))
	}
}

func (openAIFormat) tail(o *object, r *Request) {
	o.add("stream_options", []byte(`{"include_usage":true}`))
	if r.MaxTokens > 0 {
		o.add("max_completion_tokens", strconv.AppendInt(nil, r.MaxTokens, 10))
	}
	o.addSampling(r)
	if r.Effort != "" {
		o.add("reasoning_effort", quote(r.Effort))
	}
	if r.CacheKey != "" {
		o.add("prompt_cache_key", quote(r.CacheKey))
	}
}

func (openAIFormat) messages(r *Request, steps []step) ([][]byte, error) {
	var list [][]byte
	if r.System != "" {
		list = append(list, message("system", quote(r.System)))
	}
	for _, s := range steps {
		if s.message.Role == RoleUser {
			list = append(list, message("user", openAIContent(s.message.Parts)))
			continue
		}
		list = append(list, wellFormed(s.message.Raw))
		for _, m := range s.results {
			list = append(list, openAIResult(m))
		}
		if images := openAIImages(s.results); images != nil {
			list = append(list, message("user", images))
		}
	}
	return list, nil
}

// message is a message of a role and a content that is JSON already.
func message(role string, content []byte) []byte {
	o := newObject()
	o.add("role", quote(role))
	o.add("content", content)
	return o.bytes()
}

// typed is {"type": …, name: value}.
func typed(kind, name string, value []byte) []byte {
	o := newObject()
	o.add("type", quote(kind))
	o.add(name, value)
	return o.bytes()
}

// openAIContent is a text where there are no images: not every server takes lists.
func openAIContent(parts []Part) []byte {
	if text, images := textOf(parts), imagesOf(parts); len(images) == 0 {
		return quote(text)
	}
	return array(openAIParts(parts))
}

func openAIParts(parts []Part) [][]byte {
	var list [][]byte
	for _, p := range parts {
		switch {
		case p.Image != nil:
			url := newObject()
			url.add("url", quote(imageURL(p.Image)))
			list = append(list, typed("image_url", "image_url", url.bytes()))
		case p.Text != "":
			list = append(list, typed("text", "text", quote(p.Text)))
		}
	}
	return list
}

// openAIResult is a tool's message, which cannot hold images.
func openAIResult(m *Message) []byte {
	text := textOf(m.Parts)
	if text == "" && len(imagesOf(m.Parts)) > 0 {
		text = "The result is an image: see the next message of the user."
	}
	o := newObject()
	o.add("role", quote(string(RoleTool)))
	o.add("tool_call_id", quote(m.CallID))
	o.add("content", quote(text))
	return o.bytes()
}

// openAIImages is the content of the user's message that shows the images of a
// turn's results, nil if there are none. It stands after all of the results.
func openAIImages(results []*Message) []byte {
	var list [][]byte
	for _, m := range results {
		images := imagesOf(m.Parts)
		if len(images) == 0 {
			continue
		}
		list = append(list, typed("text", "text", quote("Result of call "+m.CallID+":")))
		list = append(list, openAIParts(images)...)
	}
	if list == nil {
		return nil
	}
	return array(list)
}

func imageURL(i *Image) string {
	if i.URL != "" {
		return i.URL
	}
	return "data:" + i.MediaType + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}

// textOf joins the texts of parts.
func textOf(parts []Part) string {
	var texts []string
	for _, p := range parts {
		if p.Image == nil && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func imagesOf(parts []Part) []Part {
	var images []Part
	for _, p := range parts {
		if p.Image != nil {
			images = append(images, p)
		}
	}
	return images
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// parse reads a message as openAIStream writes it.
func (openAIFormat) parse(raw json.RawMessage) (string, []Call, error) {
	var m struct {
		Role      Role            `json:"role"`
		Content   json.RawMessage `json:"content"`
		ToolCalls []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return "", nil, err
	}
	if err := checkRole(m.Role); err != nil {
		return "", nil, err
	}
	text, err := openAIText(m.Content)
	if err != nil {
		return "", nil, err
	}
	var calls []Call
	for _, c := range m.ToolCalls {
		calls = append(calls, newCall(c.ID, c.Function.Name, c.Function.Arguments))
	}
	return text, calls, nil
}

// openAIText is a content's text; some servers give a list of parts.
func openAIText(content json.RawMessage) (string, error) {
	if len(content) == 0 || content[0] != '[' {
		var s *string
		if len(content) > 0 {
			if err := json.Unmarshal(content, &s); err != nil {
				return "", err
			}
		}
		if s == nil {
			return "", nil
		}
		return *s, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String(), nil
}

func (openAIFormat) assistant(text string, calls []Call) json.RawMessage {
	o := newObject()
	o.add("role", quote(string(RoleAssistant)))
	o.add("content", quote(text))
	if text == "" && len(calls) > 0 {
		o.add("content", []byte("null"))
	}
	var list [][]byte
	for _, c := range calls {
		f := newObject()
		f.add("name", quote(c.Name))
		f.add("arguments", quote(string(c.argsToSend())))
		call := newObject()
		call.add("id", quote(c.ID))
		call.add("type", quote("function"))
		call.add("function", f.bytes())
		list = append(list, call.bytes())
	}
	if list != nil {
		o.add("tool_calls", array(list))
	}
	return o.bytes()
}
