package llm

import "encoding/json"

// Provider names a wire format.
type Provider string

// OpenAI is the chat completions format, which most other servers speak too.
// Anthropic is the messages format.
const (
	OpenAI    Provider = "openai"
	Anthropic Provider = "anthropic"
)

// Role says whose message it is. A system prompt is no message but Request.System.
type Role string

// The roles of messages.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Image is a picture: either its bytes and their media type, or an address that
// the provider fetches.
type Image struct {
	MediaType string // of Data, as "image/png"
	Data      []byte
	URL       string
}

// Part is one piece of a message: a text or an image.
type Part struct {
	Text  string
	Image *Image
}

// Message is one message of a conversation.
//
// A user's message has Parts. An assistant's has Raw: Turn.Message of the turn
// that gave it, untouched. A tool's answers the call CallID with Parts; as the
// chat completions format has no mark for a failure, the text of one should say
// that it is one, whatever IsError.
type Message struct {
	Role    Role
	Parts   []Part
	Raw     json.RawMessage
	CallID  string
	Name    string // the tool's
	IsError bool
}

// Tool is one function the model may call. Schema is the JSON Schema of its
// arguments, an object; none means no arguments.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// The values of Request.ToolChoice. ChoiceNone keeps the tools in the request,
// so that what the provider cached of it stays valid.
const (
	ChoiceAuto     = "auto"
	ChoiceNone     = "none"
	ChoiceRequired = "required"
)

// Request is what one turn asks. Only Messages is required.
type Request struct {
	System   string
	Messages []Message
	Tools    []Tool // in any order: sent sorted by name

	ToolChoice    string // "" leaves it to the provider
	ParallelCalls *bool  // nil leaves it to the provider
	// MaxTokens bounds the answer. 0 leaves it to the provider; Anthropic demands
	// a value and gets 8192. It is sent to OpenAI as max_completion_tokens; for a
	// server that only knows max_tokens put that in Extra instead.
	MaxTokens   int64
	Temperature *float64
	TopP        *float64
	Effort      string // how much to think, in the provider's words

	// Extra is an object whose fields are added to the request as they are. One
	// that this package sends too takes its place, and null removes it. Its tools, a
	// list, come after Tools: those that the provider runs. What makes the
	// conversation (model, messages, system, stream) cannot be replaced.
	Extra json.RawMessage
	// CacheBreakpoints marks tools, system prompt and conversation for Anthropic's
	// prompt cache. OpenAI caches without marks.
	CacheBreakpoints bool
	// CacheKey is OpenAI's prompt_cache_key: requests with one key and a common
	// beginning meet the same cache.
	CacheKey string
}
