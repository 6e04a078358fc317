package definition

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
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
	if strings.ContainsAny(d.BaseURL, "?#") {
		return problem("base_url", " has a query or a fragment: a key belongs in api_key or headers")
	}
	if err := checkExtra(d.Extra); err != nil {
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

// made are the fields of a request that the conversation makes.
var made = []string{"messages", "model", "stream", "system"}

func checkExtra(extra json.RawMessage) error {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(extra, &fields) // that it is an object was checked
	for _, name := range made {
		if _, ok := fields[name]; ok {
			return problem("extra."+name, " cannot be set: it is what the conversation makes")
		}
	}
	if tools, ok := fields["tools"]; ok && tools[0] != '[' {
		return problem("extra.tools", " must be a list, of tools that the provider runs")
	}
	return nil
}

// maxTimeout is the longest timeout of tools of types http and sql.
const maxTimeout = 10 * time.Minute

func (t *Tool) check(path string) error {
	if err := checkHeaders(path+".headers", t.Headers); err != nil {
		return err
	}
	if err := t.checkNames(path); err != nil {
		return err
	}
	if (t.Type == TypeHTTP || t.Type == TypeSQL) && time.Duration(t.Timeout) > maxTimeout {
		return problem(path+".timeout", ` must be at most "10m"`)
	}
	return nil
}

// checkNames finds what names an argument that there is not.
func (t *Tool) checkNames(path string) error {
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
		if strings.ContainsFunc(headers[name].Text+headers[name].Prefix, notOfHeader) {
			return problem(path+"."+name, " has a line break or another character that no header can have")
		}
	}
	return nil
}

func problem(field, format string, args ...any) error {
	return &Error{Field: field, Problem: field + fmt.Sprintf(format, args...)}
}

// notOfHeader reports whether a character cannot be in the value of a header.
func notOfHeader(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
