package fakemodel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Script says what a server answers: the first of its rules that fits a request
// does. It is made by [Load] and not changed afterwards, so servers may share it.
type Script struct{ file scriptFile }

// scriptFile is a script as it is written.
type scriptFile struct {
	// APIKey is the key that requests must bring; empty accepts any and none.
	APIKey string `yaml:"api_key"`
	Rules  []rule `yaml:"rules"`
}

// rule is one answer and what it is the answer to.
type rule struct {
	Name string    `yaml:"name"`
	When condition `yaml:"when"`
	// Times bounds how often the rule fires; 0 is no bound.
	Times int `yaml:"times"`
	// Latency passes before the first byte of the answer.
	Latency duration `yaml:"latency"`
	// Exactly one of the two.
	Reply *reply   `yaml:"reply"`
	Error *failure `yaml:"error"`

	// label names the rule in messages.
	label string
}

// condition fits a request if all that it states is so. Without any it fits all requests.
type condition struct {
	API    string    `yaml:"api"`
	Model  string    `yaml:"model"`
	Stream *bool     `yaml:"stream"`
	System *textual  `yaml:"system"`
	Prompt *textual  `yaml:"prompt"` // the first text of a user
	User   *textual  `yaml:"user"`   // the last text of a user
	Result *textual  `yaml:"result"` // some result of the last turn's calls
	Tool   string    `yaml:"tool"`   // one of the tools on offer
	Turn   *interval `yaml:"turn"`   // assistant messages so far
	// Attempt is how often this very request, byte for byte, was asked, this time included.
	Attempt *interval `yaml:"attempt"`
}

// reply is a turn of the model.
type reply struct {
	Thinking string `yaml:"thinking"`
	Text     string `yaml:"text"`
	Calls    []call `yaml:"calls"`
	// Stop is a word of stops, or the API's own.
	Stop  string `yaml:"stop"`
	Usage *usage `yaml:"usage"`
	// Chunk is how many characters a chunk of a stream has.
	Chunk int `yaml:"chunk"`
	// Pause passes between two chunks.
	Pause duration     `yaml:"pause"`
	Break *brokenReply `yaml:"break"`
}

// call is one tool call of a reply.
type call struct {
	Name string    `yaml:"name"`
	Args arguments `yaml:"args"`
	// RawArgs are the arguments as text that need not be JSON.
	RawArgs *string `yaml:"raw_args"`
	// ID defaults to one that depends on the request alone.
	ID *string `yaml:"id"`
	// Index defaults to the call's position.
	Index *callIndex `yaml:"index"`
}

// usage is what the reply says that it cost, in tokens. Input includes what was
// read from and written to the cache, output includes reasoning, with either API.
type usage struct {
	Input      int64 `yaml:"input"`
	Cached     int64 `yaml:"cached"`
	CacheWrite int64 `yaml:"cache_write"`
	Output     int64 `yaml:"output"`
	Reasoning  int64 `yaml:"reasoning"`
}

// brokenReply is how a stream fails before its terminal marker.
type brokenReply struct {
	// After is how many chunks of text, thinking or arguments come first; nil is all.
	After *int     `yaml:"after"`
	With  string   `yaml:"with"`
	Error *failure `yaml:"error"`
}

// What a broken reply does. An error in the stream needs no word.
const (
	breakCut   = "cut"   // the body ends as if it were complete
	breakReset = "reset" // the connection is closed in mid-body
	breakStall = "stall" // nothing comes any more, until the client leaves
)

// failure is an answer with an error, in the API's own form.
type failure struct {
	Status     int               `yaml:"status"`
	Type       string            `yaml:"type"`
	Code       string            `yaml:"code"` // OpenAI's only
	Message    string            `yaml:"message"`
	RetryAfter duration          `yaml:"retry_after"`
	Headers    map[string]string `yaml:"headers"`
	// Body replaces the API's form, word for word.
	Body string `yaml:"body"`
}

// Load reads a script. Whatever is wrong with it, an unknown field for one, is
// an error that names the line.
func Load(r io.Reader) (*Script, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	var s scriptFile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("script: %w", plainYAML(err))
	}
	if err := dec.Decode(&scriptFile{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("script: more than one YAML document")
	}
	if len(s.Rules) == 0 {
		return nil, errors.New("script: no rules: a script needs at least one, for example `rules: [{reply: {text: Hello}}]`")
	}
	lines := ruleLines(text)
	for i := range s.Rules {
		r := &s.Rules[i]
		r.label = fmt.Sprintf("rule %d", i+1)
		if r.Name != "" {
			r.label += fmt.Sprintf(" %q", r.Name)
		}
		r.label += fmt.Sprintf(" (line %d)", lines[i])
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("script: %s: %w", r.label, err)
		}
	}
	return &Script{file: s}, nil
}

// ruleLines are where the rules begin in a script that was decoded already.
func ruleLines(text []byte) []int {
	var doc struct {
		Rules []yaml.Node `yaml:"rules"`
	}
	_ = yaml.Unmarshal(text, &doc) // it was decoded already
	lines := make([]int, len(doc.Rules))
	for i, n := range doc.Rules {
		lines[i] = n.Line
	}
	return lines
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainYAML takes the names of Go types out of the library's words.
func plainYAML(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	}
	text := unknownField.ReplaceAllString(err.Error(), "unknown field $1")
	text = strings.TrimPrefix(text, "yaml: ")
	return errors.New(strings.ReplaceAll(strings.TrimPrefix(text, "unmarshal errors:\n  "), "\n  ", "; "))
}

func (r *rule) validate() error {
	switch {
	case (r.Reply == nil) == (r.Error == nil):
		return errors.New("want either reply or error")
	case r.Times < 0 || r.Latency < 0:
		return errors.New("times and latency must not be negative")
	case r.When.API != "" && r.When.API != apiOpenAI && r.When.API != apiAnthropic:
		return fmt.Errorf("when.api %q: want %s or %s", r.When.API, apiOpenAI, apiAnthropic)
	case r.Error != nil:
		return r.Error.validate()
	}
	return r.Reply.validate()
}

func (f *failure) validate() error {
	if f.Status < 400 || f.Status > 599 {
		return fmt.Errorf("error.status %d: want 400 to 599", f.Status)
	}
	if f.RetryAfter < 0 {
		return errors.New("error.retry_after must not be negative")
	}
	return nil
}

func (r *reply) validate() error {
	if r.Text == "" && r.Thinking == "" && len(r.Calls) == 0 && r.Stop == "" {
		return errors.New("reply is empty: want text, thinking, calls or stop")
	}
	if r.Chunk < 0 || r.Pause < 0 {
		return errors.New("reply.chunk and reply.pause must not be negative")
	}
	if u := r.Usage; u != nil {
		if min(u.Input, u.Cached, u.CacheWrite, u.Output, u.Reasoning) < 0 {
			return errors.New("reply.usage: tokens must not be negative")
		}
		if u.Cached+u.CacheWrite > u.Input || u.Reasoning > u.Output {
			return errors.New("reply.usage: input includes cached and cache_write, output includes reasoning")
		}
	}
	if r.Break != nil {
		if err := r.Break.validate(); err != nil {
			return err
		}
	}
	return r.validateContent()
}

// validateContent renders what the reply says once, so that a mistake in a
// template shows when the script is loaded.
func (r *reply) validateContent() error {
	var nobody conversation
	for _, text := range []string{r.Text, r.Thinking} {
		if _, err := nobody.render(text); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
	}
	for i, c := range r.Calls {
		if c.Name == "" {
			return fmt.Errorf("reply.calls[%d] has no name", i)
		}
		if c.RawArgs != nil && c.Args.node != nil {
			return fmt.Errorf("reply.calls[%d]: want either args or raw_args", i)
		}
		if _, err := c.arguments(&nobody); err != nil {
			return fmt.Errorf("reply.calls[%d]: %w", i, err)
		}
	}
	return nil
}

func (b *brokenReply) validate() error {
	if b.After != nil && *b.After < 0 {
		return errors.New("reply.break.after must not be negative")
	}
	if b.Error != nil {
		if b.With != "" || b.Error.Status != 0 || b.Error.RetryAfter != 0 || len(b.Error.Headers) > 0 {
			return errors.New("reply.break.error is sent inside of the stream: it takes type, code, message or body, and no break.with")
		}
		return nil
	}
	switch b.With {
	case breakCut, breakReset, breakStall:
		return nil
	}
	return fmt.Errorf("reply.break.with %q: want cut, reset or stall, or break.error", b.With)
}
