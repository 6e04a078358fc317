package definition

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// typeWords is how the types of JSON Schema are called here.
var typeWords = map[string]string{
	"object":  "an object",
	"array":   "a list",
	"string":  "a text",
	"integer": "a whole number",
	"number":  "a number",
	"boolean": "true or false",
}

// words say what a value must be.
func (r *rule) words() string {
	if allowed := r.allowed(); allowed != nil {
		return enumerate(allowed)
	}
	if r.Title != "" {
		return r.Title
	}
	return typeWords[r.Type]
}

// allowed are the only texts a value may be; nil for any.
func (r *rule) allowed() []string {
	if r.Const != nil {
		return []string{*r.Const}
	}
	return r.Enum
}

// isA reports whether v is of a type of JSON Schema. A whole number is one that is written as such.
func isA(v any, name string) bool {
	switch v := v.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	case json.Number:
		return name == "number" || name == "integer" && !strings.ContainsAny(v.String(), ".eE")
	}
	return false
}

// typeOf says what v is, without a text that may be a secret.
func typeOf(v any) string {
	switch v := v.(type) {
	case string:
		return typeWords["string"]
	case []any:
		return typeWords["array"]
	case map[string]any:
		return typeWords["object"]
	default:
		return show(v)
	}
}

// show is a value in an error.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	case nil:
		return "null"
	default:
		return typeOf(v)
	}
}

// quote is a text as JSON, cut at 80 characters.
func quote(s string) string {
	if runes := []rune(s); len(runes) > 80 {
		s = string(runes[:80]) + "…"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string cannot fail to encode, nor a buffer to take it
	return strings.TrimSuffix(b.String(), "\n")
}

// enumerate lists texts of which one is right.
func enumerate(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote(text)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return "one of " + strings.Join(quoted, ", ")
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// join names a field of an object.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func has(object map[string]any, name string) bool {
	_, ok := object[name]
	return ok
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
