package definition

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/pgexec/runtime/internal/pgtest"
)

// The schema is in three places: here, in the documentation, and in the database.
func TestSchemas_AreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	published, err := os.ReadFile("../../../docs/agent-definition.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(published, definitionSchema) {
		t.Error("docs/agent-definition.schema.json is another one: copy pgexec/agent/definition/definition.schema.json to it")
	}
	pool := pgtest.DB(t)
	for function, schema := range map[string][]byte{"agent_schema": definitionSchema, "agent_input_schema": inputSchema} {
		var same bool
		if err := pool.QueryRow(t.Context(), "select pgexec."+function+"() = $1::jsonb", string(schema)).Scan(&same); err != nil || !same {
			t.Errorf("pgexec.%s is another one: %v", function, err)
		}
	}
}

// Another validator than ours has the same opinion of everything but what no schema says.
func TestSchemas_MeanWhatJSONSchemaSays(t *testing.T) {
	t.Parallel()
	check := func(schema []byte, document string, parse func([]byte) (any, error)) {
		t.Helper()
		s := new(jsonschema.Schema)
		if err := json.Unmarshal(schema, s); err != nil {
			t.Fatal(err)
		}
		resolved, err := s.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal([]byte(document), &v); err != nil {
			t.Fatal(err)
		}
		_, ours := parse([]byte(document))
		if theirs := resolved.Validate(v); (theirs == nil) != (ours == nil) {
			t.Errorf("%.200s:\n%v, and here\n%v", document, theirs, ours)
		}
	}
	for _, text := range []string{whole, `{"provider": "openai", "model": "m"}`} {
		check(definitionSchema, text, func(raw []byte) (any, error) { return parse(readDefinitionSchema(), raw) })
	}
	for _, tc := range refused {
		check(definitionSchema, tc.definition, func(raw []byte) (any, error) { return parse(readDefinitionSchema(), raw) })
	}
	for _, text := range inputs {
		check(inputSchema, text, func(raw []byte) (any, error) { return parse(readInputSchema(), raw) })
	}
	for _, tc := range refusedInputs {
		check(inputSchema, tc.input, func(raw []byte) (any, error) { return parse(readInputSchema(), raw) })
	}
}

func TestSchemas_AreThoseOfTheStructs(t *testing.T) {
	t.Parallel()
	c := checker{root: readDefinitionSchema()}
	sameFields(t, c, "definition", c.root, reflect.TypeFor[Definition]())
	sameFields(t, c, "secretHeader", c.root.Defs["secretHeader"], reflect.TypeFor[secretHeader]())
	// A tool's struct has the fields of all types together.
	all := &rule{Properties: map[string]*rule{}}
	for _, alternative := range c.resolve(c.root.Defs["tool"]).OneOf {
		for name, p := range c.resolve(alternative).Properties {
			all.Properties[name] = p
		}
	}
	sameFields(t, c, "tool", all, reflect.TypeFor[Tool]())
	input := checker{root: readInputSchema()}
	sameFields(t, input, "input", input.root, reflect.TypeFor[Input]())
	sameFields(t, input, "message", input.root.Defs["message"], reflect.TypeFor[InputMessage]())
	sameFields(t, input, "part", input.root.Defs["part"], reflect.TypeFor[Part]())
}

// sameFields compares a rule's fields with a struct's, and those within them.
func sameFields(t *testing.T, c checker, path string, r *rule, typ reflect.Type) {
	t.Helper()
	r = c.resolve(r)
	var fields []string
	for _, f := range reflect.VisibleFields(typ) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if p := r.Properties[name]; p != nil && inner.Kind() == reflect.Struct && len(c.resolve(p).Properties) > 0 {
			sameFields(t, c, path+"."+name, p, inner)
		}
	}
	slices.Sort(fields)
	if known := sortedKeys(r.Properties); !slices.Equal(known, fields) {
		t.Errorf("%s: the schema has\n%s, the struct\n%s", path, known, fields)
	}
}
