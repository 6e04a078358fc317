package definition

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/internal/pgtest"
)

// odd are values that some field takes and another does not.
var odd = []string{
	`null`, `true`, `false`, `0`, `1`, `-1`, `1.5`, `300`, `2000000`, `1e300`, `""`, `"x"`, `"30s"`, `"0s"`, `"11m"`, `"660s"`, `"a\nb"`, `"https://h/?k=v"`, `"https://h#f"`, `{"stream": 1}`, `{"tools": 5}`, `{"X-A": "b\nc"}`, `"1h30m5ms"`, `"fail"`, `"POST"`, `"http"`, `"anthropic"`,
	`"a b"`, `"/run/x"`, `"http://h"`, `"https://h/{city}"`, `"https://u:p@h"`, `"h:80"`, `"` + strings.Repeat("é", 257) + `"`, `[]`, `[5]`, `["day"]`, `[{}]`,
	`{}`, `{"zz": 1}`, `{"type": "object"}`, `{"type": "array"}`, `{"properties": []}`, `{"env": "A"}`, `{"file": "/b"}`, `{"env": "A", "file": "/b"}`, `{"env": "A", "prefix": 5}`,
	`{"X-A": "b"}`, `{"Authorization": "b"}`, `{"cookie": {"env": "A"}}`, `{"max_tokens": 5}`, `{"window": 5, "keep_turns": 0}`,
}

// sample is which of the variants are tried: one in so many, other values for each
// field. All of them agree too, and take a minute.
const sample = 5

// variants are documents that come of one when some value in it, at any
// depth, is missing or another one, or when a field is added.
func variants(t *testing.T, document string) []string {
	t.Helper()
	var whole any
	if err := json.Unmarshal([]byte(document), &whole); err != nil {
		t.Fatal(err)
	}
	var found []string
	n := 0
	keep := func() {
		if n++; n%sample == 0 {
			found = append(found, mustMarshal(t, whole))
		}
	}
	var visit func(v any, set func(any))
	visit = func(v any, set func(any)) {
		for _, other := range odd {
			set(json.RawMessage(other))
			keep()
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for _, name := range sortedKeys(v) {
				was := v[name]
				delete(v, name)
				keep()
				visit(was, func(other any) { v[name] = other })
			}
			v["zz"] = 1
			keep()
			delete(v, "zz")
		case []any:
			for i := range v {
				visit(v[i], func(other any) { v[i] = other })
			}
		}
	}
	visit(whole, func(other any) { whole = other })
	return found
}

// The published schema, read by a validator that is not ours, this package and the
// database take and refuse the same definitions and inputs, field by field; and the
// latter two say the same about them.
func TestSchemas_EveryFieldIsTheSameToAll(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, tc := range []struct {
		function string
		schema   []byte
		rule     *rule
		whole    []string
		parse    func([]byte) error
	}{
		{"agent_problem", definitionSchema, readDefinitionSchema(), []string{whole}, func(raw []byte) error { _, err := Parse(raw); return err }},
		{"agent_input_problem", inputSchema, readInputSchema(), inputs, func(raw []byte) error { _, err := ParseInput(raw); return err }},
	} {
		theirs := new(jsonschema.Schema)
		if err := json.Unmarshal(tc.schema, theirs); err != nil {
			t.Fatal(err)
		}
		resolved, err := theirs.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		var documents []string
		for _, w := range tc.whole {
			documents = append(documents, variants(t, w)...)
		}
		// As the database keeps them, which is how a replica reads them.
		rows, err := pool.Query(t.Context(), `select d::jsonb::text, coalesce(pgexec.`+tc.function+`(d::jsonb), '') from unnest($1::text[]) d`, documents)
		if err != nil {
			t.Fatal(err)
		}
		type verdict struct{ Document, Problem string }
		verdicts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[verdict])
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for _, v := range verdicts {
			said := ""
			if err := tc.parse([]byte(v.Document)); err != nil {
				said = err.Error()
				refused++
			}
			if said != v.Problem {
				t.Errorf("%s:\nhere %s, in the database %s", v.Document, said, v.Problem)
			}
			var document any
			if err := json.Unmarshal([]byte(v.Document), &document); err != nil {
				t.Fatal(err)
			}
			_, ours := parse(tc.rule, []byte(v.Document))
			if other := resolved.Validate(document); (other == nil) != (ours == nil) {
				t.Errorf("%s:\nhere %v, another validator %v", v.Document, ours, other)
			}
		}
		if refused == 0 || refused == len(verdicts) {
			t.Errorf("%s: %d of %d are refused", tc.function, refused, len(verdicts))
		}
	}
}
