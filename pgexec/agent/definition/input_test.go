package definition

import "testing"

// inputs are valid, and between them have every field.
var inputs = []string{
	`{"agent": "a", "prompt": "Hello"}`,
	`{"agent": "a", "prompt": "Go on", "continue": "01a227f9-2856-7b1d-8440-728e18e4498b"}`,
	`{"agent": "a", "messages": [
		{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"text": "Hi"}]},
		{"role": "user", "content": [{"text": "What is this?"}, {"image": {"url": "https://example.org/a.png"}},
			{"image": {"media_type": "image/png", "data": "iVBORw=="}}, {"image": {"$blob": {"url": "db:1", "size": 3}}}]}]}`,
}

var refusedInputs = []struct{ input, problem string }{
	{`"a"`, `the input is a text, must be an object`},
	{`{"prompt": "x"}`, `agent is missing`},
	{`{"agent": "a"}`, `the input must have exactly one of prompt, messages`},
	{`{"agent": "a", "prompt": "x", "messages": [{"role": "user", "content": "y"}]}`, `the input must have exactly one of prompt, messages`},
	{`{"agent": "a", "promt": "x"}`, `promt is not known; the fields are agent, continue, messages, prompt`},
	{`{"agent": "a", "prompt": ""}`, `prompt is "", must be a text that is not empty`},
	{`{"agent": "a", "prompt": "x", "continue": "yesterday"}`, `continue is "yesterday", must be the id of a run`},
	{`{"agent": "a", "messages": []}`, `messages has 0 items, must have at least 1`},
	{`{"agent": "a", "messages": [{"role": "system", "content": "x"}]}`, `messages[0].role is "system", must be one of "user", "assistant"`},
	{`{"agent": "a", "messages": [{"role": "user", "content": {}}]}`, `messages[0].content is an object, must be a text or a list of parts`},
	{`{"agent": "a", "messages": [{"role": "user", "content": [{}]}]}`, `messages[0].content[0] must have exactly one of text, image`},
	{`{"agent": "a", "messages": [{"role": "user", "content": [{"image": {"data": "AA=="}}]}]}`, `messages[0].content[0].image must have exactly one of $blob, url, media_type and data`},
	{`{"agent": "a", "messages": [{"role": "user", "content": [{"image": {"media_type": "image/png", "data": "no base64"}}]}]}`, `messages[0].content[0].image.data must be bytes in base64`},
	{
		`{"agent": "a", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}`,
		`messages[1].role is "assistant", must be "user": the last message is what the model answers`,
	},
}

func TestParseInput_ReadsTextsAndImages(t *testing.T) {
	t.Parallel()
	for _, text := range inputs {
		in, err := ParseInput([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if in.Agent != "a" {
			t.Errorf("agent %q", in.Agent)
		}
		if n := len(in.Messages); n > 0 {
			parts := in.Messages[2].Content
			if n != 3 || in.Messages[0].Content[0].Text != "Hello" || parts[1].Image.URL == "" || len(parts[2].Image.Data) != 4 || parts[3].Image.Blob == nil {
				t.Errorf("read %+v", in)
			}
		}
	}
}

func TestParseInput_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tc := range refusedInputs {
		if _, err := ParseInput([]byte(tc.input)); err == nil || err.Error() != tc.problem {
			t.Errorf("%s:\n%v, want\n%s", tc.input, err, tc.problem)
		}
	}
}
