package definition

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// secretHeaders hold secrets, which are never part of a definition.
var secretHeaders = []string{"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"}

// placeholder stands for an argument in the URL of an http tool.
var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// check finds what no schema says.
func (d *Definition) check() error {
	if err := checkHeaders("headers", d.Headers); err != nil {
		return err
	}
	names := map[string]int{}
	for i, t := range d.Tools {
		path := fmt.Sprintf("tools[%d]", i)
		if former, ok := names[t.Name]; ok {
			return problem(path+".name", " is %s, as that of tools[%d]", quote(t.Name), former)
		}
		names[t.Name] = i
		if err := t.check(path); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tool) check(path string) error {
	if err := checkHeaders(path+".headers", t.Headers); err != nil {
		return err
	}
	for _, list := range []struct {
		field string
		names []string
	}{{"args", t.Args}, {"query", t.Query}} {
		for i, name := range list.names {
			if !t.takes(name) {
				return problem(fmt.Sprintf("%s.%s[%d]", path, list.field, i), " is %s, which is not in parameters.properties", quote(name))
			}
		}
	}
	if t.Type != TypeHTTP {
		return nil
	}
	for _, name := range t.Placeholders() {
		if !t.takes(name) {
			return problem(path+".url", " has {%s}, which is not in parameters.properties", name)
		}
	}
	return nil
}

// Placeholders are the names in braces of an http tool's URL, in their order.
func (t *Tool) Placeholders() []string {
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(t.URL, -1) {
		names = append(names, m[1])
	}
	return names
}

// takes reports whether the tool has a parameter of that name.
func (t *Tool) takes(name string) bool {
	var parameters struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(t.Parameters, &parameters) // that it is an object was checked
	_, ok := parameters.Properties[name]
	return ok
}

func checkHeaders(path string, headers map[string]Header) error {
	for _, name := range sortedKeys(headers) {
		if headers[name].Secret == nil && slices.Contains(secretHeaders, strings.ToLower(name)) {
			return problem(path+"."+name, ` is a text, must be an object {"env": "NAME"} or {"file": "/path"}: secrets are not stored`)
		}
	}
	return nil
}

func problem(field, format string, args ...any) error {
	return &Error{Field: field, Problem: field + fmt.Sprintf(format, args...)}
}
