package fakemodel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// conversation is what a request says, in either API.
type conversation struct {
	api          string
	model        string
	stream       bool
	includeUsage bool // OpenAI: a chunk with the usage was asked for
	system       string
	prompt       string // the first text of a user
	user         string // the last text of a user
	tools        []string
	turn         int // assistant messages so far
	// results answer the calls of the last assistant message.
	results []result
	// names of all calls so far, by id.
	calls map[string]string
	// digest depends on the request's bytes alone: what the reply needs ids for, it makes of it.
	digest string
	size   int
	// attempt counts how often these bytes were asked.
	attempt int
}

// result is what a tool call gave.
type result struct{ name, text string }

func newConversation(api string, body []byte) *conversation {
	sum := sha256.Sum256(body)
	return &conversation{api: api, calls: make(map[string]string), digest: hex.EncodeToString(sum[:12]), size: len(body)}
}

func (c *conversation) addUser(text string) {
	if text == "" {
		return
	}
	if c.prompt == "" {
		c.prompt = text
	}
	c.user = text
}

func (c *conversation) addAssistant() {
	c.turn++
	c.results = nil
}

func (c *conversation) addResult(id, text string) {
	c.results = append(c.results, result{name: c.calls[id], text: text})
}

// mismatch says which statement of a condition is not so, or nothing if it fits.
func (w *condition) mismatch(c *conversation) string {
	switch {
	case w.API != "" && w.API != c.api:
		return fmt.Sprintf("api is %s, not %s", c.api, w.API)
	case w.Model != "" && w.Model != c.model:
		return fmt.Sprintf("model is %q, not %q", c.model, w.Model)
	case w.Stream != nil && *w.Stream != c.stream:
		return fmt.Sprintf("stream is %v", c.stream)
	case w.Turn != nil && !w.Turn.fits(c.turn):
		return fmt.Sprintf("turn is %d, not %s", c.turn, w.Turn)
	case w.Attempt != nil && !w.Attempt.fits(c.attempt):
		return fmt.Sprintf("attempt is %d, not %s", c.attempt, w.Attempt)
	case w.Tool != "" && !slices.Contains(c.tools, w.Tool):
		return fmt.Sprintf("tool %q is not on offer", w.Tool)
	case w.Result != nil && !slices.ContainsFunc(c.results, func(r result) bool { return w.Result.fits(r.text) }):
		return fmt.Sprintf("no result with %s", w.Result)
	}
	for _, t := range []struct {
		name, text string
		want       *textual
	}{{"system", c.system, w.System}, {"prompt", c.prompt, w.Prompt}, {"user", c.user, w.User}} {
		if t.want != nil && !t.want.fits(t.text) {
			return fmt.Sprintf("%s has no %s", t.name, t.want)
		}
	}
	return ""
}

// render fills in a template: {{last_user}}, {{prompt}}, {{tool_result}} (all of
// the last turn's, or {{tool_result "name"}} of one tool), {{turn}} and {{model}}.
func (c *conversation) render(text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New("script").Funcs(template.FuncMap{
		"last_user":   func() string { return c.user },
		"prompt":      func() string { return c.prompt },
		"tool_result": c.resultsOf,
		"turn":        func() int { return c.turn },
		"model":       func() string { return c.model },
	}).Parse(text)
	if err != nil {
		return "", fmt.Errorf("template %q: %w", text, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("template %q: %w", text, err)
	}
	return out.String(), nil
}

func (c *conversation) resultsOf(tools ...string) string {
	var texts []string
	for _, r := range c.results {
		if len(tools) == 0 || slices.Contains(tools, r.name) {
			texts = append(texts, r.text)
		}
	}
	return strings.Join(texts, "\n")
}

// summary names the request in messages.
func (c *conversation) summary() string {
	user := []rune(c.user)
	if len(user) > 80 {
		user = append(user[:80], '…')
	}
	return fmt.Sprintf("api %s, model %q, turn %d, attempt %d, %d results, last user text %q",
		c.api, c.model, c.turn, c.attempt, len(c.results), string(user))
}
