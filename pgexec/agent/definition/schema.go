package definition

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:embed definition.schema.json
var definitionSchema []byte

//go:embed input.schema.json
var inputSchema []byte

var (
	readDefinitionSchema = sync.OnceValue(func() *rule { return readSchema(definitionSchema) })
	readInputSchema      = sync.OnceValue(func() *rule { return readSchema(inputSchema) })
)

// rule is a JSON Schema, as far as this package knows it.
type rule struct {
	Ref  string           `json:"$ref"`
	Defs map[string]*rule `json:"$defs"`
	// Anchor is what the whole is called.
	Anchor  string          `json:"$anchor"`
	Title   string          `json:"title"`
	Default json.RawMessage `json:"default"`
	Type    string          `json:"type"`
	// Const and Enum are of texts only.
	Const     *string  `json:"const"`
	Enum      []string `json:"enum"`
	WriteOnly bool     `json:"writeOnly"`

	Pattern   string `json:"pattern"`
	MinLength *int   `json:"minLength"`
	MaxLength *int   `json:"maxLength"`

	Minimum          *float64 `json:"minimum"`
	ExclusiveMinimum *float64 `json:"exclusiveMinimum"`
	Maximum          *float64 `json:"maximum"`

	Required      []string         `json:"required"`
	Properties    map[string]*rule `json:"properties"`
	PropertyNames *rule            `json:"propertyNames"`
	Additional    *additional      `json:"additionalProperties"`

	Items    *rule `json:"items"`
	MinItems *int  `json:"minItems"`
	MaxItems *int  `json:"maxItems"`

	OneOf         []*rule `json:"oneOf"`
	Discriminator *struct {
		PropertyName string `json:"propertyName"`
	} `json:"discriminator"`
}

// additional is what may be in an object beside its properties: nothing, or what meets a rule.
type additional struct{ rule *rule }

func (a *additional) UnmarshalJSON(raw []byte) error {
	if string(raw) == "false" {
		return nil
	}
	return json.Unmarshal(raw, &a.rule)
}

func readSchema(raw []byte) *rule {
	r := new(rule)
	if err := json.Unmarshal(raw, r); err != nil {
		panic(fmt.Sprintf("the schema is damaged: %v", err)) // it is part of the program
	}
	return r
}

// Error is what is wrong with a definition or an input.
type Error struct {
	// Field is where, as "tools[0].url"; empty if it is the whole.
	Field string
	// Problem says what, beginning with the field or what it is that is wrong.
	Problem string
}

func (e *Error) Error() string { return e.Problem }

// parse checks raw against a schema, puts in the defaults, and returns the value.
func parse(schema *rule, raw []byte) (any, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, &Error{Problem: fmt.Sprintf("the %s is no JSON: %v", schema.Anchor, err)}
	}
	c := checker{root: schema}
	if err := c.check(schema, v, ""); err != nil {
		return nil, err
	}
	return v, nil
}

// decode reads one JSON value, numbers as they are written.
func decode(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something comes after its end")
	}
	return v, nil
}

// checker interprets one schema. The first problem in the order of the fields' names is what it finds.
type checker struct{ root *rule }

func (c *checker) resolve(r *rule) *rule {
	for r.Ref != "" {
		r = c.target(r)
	}
	return r
}

func (c *checker) target(r *rule) *rule { return c.root.Defs[strings.TrimPrefix(r.Ref, "#/$defs/")] }

// defaultOf is the value of a field that is absent; nil for none. Each time
// another one, since defaults may be put into it.
func (c *checker) defaultOf(r *rule) any {
	for r.Default == nil {
		if r.Ref == "" {
			return nil
		}
		r = c.target(r)
	}
	v, err := decode(r.Default)
	if err != nil {
		panic(fmt.Sprintf("default %s: %v", r.Default, err)) // it is part of the program
	}
	return v
}

func (c *checker) problem(path, format string, args ...any) error {
	what := path
	if path == "" {
		what = "the " + c.root.Anchor
	}
	return &Error{Field: path, Problem: what + fmt.Sprintf(format, args...)}
}

// check returns what is wrong with v, nil if nothing is, and puts in defaults.
func (c *checker) check(r *rule, v any, path string) error {
	r = c.resolve(r)
	if r.Type != "" && !isA(v, r.Type) {
		return c.problem(path, " is %s, must be %s", typeOf(v), r.words())
	}
	var err error
	switch v := v.(type) {
	case string:
		err = c.checkText(r, v, path)
	case json.Number:
		err = c.checkNumber(r, v, path)
	case []any:
		err = c.checkList(r, v, path)
	case map[string]any:
		err = c.checkObject(r, v, path)
	}
	if err != nil || r.OneOf == nil {
		return err
	}
	return c.checkOneOf(r, v, path)
}

func (c *checker) checkText(r *rule, v, path string) error {
	if allowed := r.allowed(); allowed != nil && !slices.Contains(allowed, v) {
		return c.problem(path, " is %s, must be %s", quote(v), r.words())
	}
	n := utf8.RuneCountInString(v)
	fits := (r.MinLength == nil || n >= *r.MinLength) && (r.MaxLength == nil || n <= *r.MaxLength)
	if fits && (r.Pattern == "" || regexp.MustCompile(r.Pattern).MatchString(v)) {
		return nil
	}
	if r.WriteOnly {
		return c.problem(path, " must be %s", r.words())
	}
	return c.problem(path, " is %s, must be %s", quote(v), r.words())
}

func (c *checker) checkNumber(r *rule, v json.Number, path string) error {
	f, err := v.Float64()
	switch {
	case err != nil:
		return c.problem(path, " is out of range")
	case r.Minimum != nil && f < *r.Minimum:
		return c.problem(path, " is %s, must be at least %v", v, number(*r.Minimum))
	case r.ExclusiveMinimum != nil && f <= *r.ExclusiveMinimum:
		return c.problem(path, " is %s, must be above %v", v, number(*r.ExclusiveMinimum))
	case r.Maximum != nil && f > *r.Maximum:
		return c.problem(path, " is %s, must be at most %v", v, number(*r.Maximum))
	}
	return nil
}

func (c *checker) checkList(r *rule, v []any, path string) error {
	switch {
	case r.MinItems != nil && len(v) < *r.MinItems:
		return c.problem(path, " has %d items, must have at least %d", len(v), *r.MinItems)
	case r.MaxItems != nil && len(v) > *r.MaxItems:
		return c.problem(path, " has %d items, must have at most %d", len(v), *r.MaxItems)
	case r.Items == nil:
		return nil
	}
	for i, item := range v {
		if err := c.check(r.Items, item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkObject(r *rule, v map[string]any, path string) error {
	for _, name := range r.Required {
		if !has(v, name) {
			return c.problem(join(path, name), " is missing")
		}
	}
	for name, p := range r.Properties {
		if value := c.defaultOf(p); value != nil && !has(v, name) {
			v[name] = value
		}
	}
	for _, name := range sortedKeys(v) {
		if err := c.checkMember(r, v[name], path, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkMember(r *rule, v any, path, name string) error {
	if p := r.Properties[name]; p != nil {
		return c.check(p, v, join(path, name))
	}
	switch {
	case r.Additional == nil:
		return nil
	case r.Additional.rule == nil:
		return c.problem(join(path, name), " is not known; the fields are %s", strings.Join(sortedKeys(r.Properties), ", "))
	case r.PropertyNames != nil && c.check(r.PropertyNames, name, "") != nil:
		return c.problem(path, " has %s, must be %s", quote(name), r.PropertyNames.words())
	}
	return c.check(r.Additional.rule, v, join(path, name))
}

// checkOneOf finds the alternative that v is meant to be, by the first thing that tells them apart, and checks that one.
func (c *checker) checkOneOf(r *rule, v any, path string) error {
	var alternatives []*rule
	for _, alternative := range r.OneOf {
		alternatives = append(alternatives, c.resolve(alternative))
	}
	object, _ := v.(map[string]any)
	switch {
	case r.Discriminator != nil:
		return c.checkDiscriminated(alternatives, object, r.Discriminator.PropertyName, path)
	case alternatives[0].Type != "":
		for _, alternative := range alternatives {
			if isA(v, alternative.Type) {
				return c.check(alternative, v, path)
			}
		}
		return c.problem(path, " is %s, must be %s", typeOf(v), r.words())
	}
	var complete int
	var choices []string
	for _, alternative := range alternatives {
		choices = append(choices, strings.Join(alternative.Required, " and "))
		if !slices.ContainsFunc(alternative.Required, func(name string) bool { return !has(object, name) }) {
			complete++
		}
	}
	if complete != 1 {
		return c.problem(path, " must have exactly one of %s", strings.Join(choices, ", "))
	}
	return nil
}

func (c *checker) checkDiscriminated(alternatives []*rule, object map[string]any, by, path string) error {
	var known []string
	for _, alternative := range alternatives {
		name := *alternative.Properties[by].Const
		if object[by] == name {
			return c.check(alternative, object, path)
		}
		known = append(known, name)
	}
	return c.problem(join(path, by), " is %s, must be %s", show(object[by]), enumerate(known))
}
