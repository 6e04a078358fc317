// Package llm asks a model for one turn: it encodes a conversation, streams the
// answer and puts it together. It knows two wire formats, OpenAI's chat
// completions and Anthropic's messages, and no database: what a turn gives is for
// the caller to record.
//
// A conversation is kept as the assistant messages the provider sent, untouched,
// and what was said to them. See Message.
package llm
