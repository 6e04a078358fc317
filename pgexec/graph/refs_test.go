package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// lookupIn serves outputs from a map.
func lookupIn(outputs map[NodeID]string) func(NodeID) ([]byte, bool) {
	return func(id NodeID) ([]byte, bool) {
		out, ok := outputs[id]
		return []byte(out), ok
	}
}

// C29: bytes that a decoder would not give back go through unharmed.
func TestResolve_EveryOtherByteStays(t *testing.T) {
	t.Parallel()
	outputs := map[NodeID]string{
		"a": `{"body":{"id":123456789012345678901234567890.00,"s":"\ud800 \u0000 é","z":1,"a":2},"list":[10,[20,21],{"k":"v"}],"a/b":1,"m~n":2,"":3,"é":4,"dup":1,"dup":2}`,
		"b": " [ 1.0 , 2 ]\n",
		"c": `{"\ud800":"high","\udfff":"low","x\ty":"tab","😀":"smile","\ud800\u0041":"mixed"}`,
	}
	for _, tc := range []struct{ name, template, want string }{
		{"no refs", ` {"z":1e400, "a":"\ud800" } `, ` {"z":1e400, "a":"\ud800" } `},
		{"whole output", `{"in":{"$ref":"b#"}}`, `{"in": [ 1.0 , 2 ]` + "\n" + `}`},
		{"the template is a ref", ` {"$ref":"a#/body/z"} `, ` 1 `},
		{"huge number", `[{"$ref":"a#/body/id"}]`, `[123456789012345678901234567890.00]`},
		{"lone surrogate", `[{"$ref":"a#/body/s"}]`, `["\ud800 \u0000 é"]`},
		{"object keeps its order", `[{"$ref":"a#/body"}]`, `[{"id":123456789012345678901234567890.00,"s":"\ud800 \u0000 é","z":1,"a":2}]`},
		{"space inside of the ref", "[ {\n\"$ref\" :\t\"b#/0\" } , 0 ]", `[ 1.0 , 0 ]`},
		{"escaped key and text", `[{"\u0024re\u0066":"a\u0023\/list\/0"}]`, `[10]`},
		{"array in array", `[{"$ref":"a#/list/1/1"},{"$ref":"a#/list/2/k"}]`, `[21,"v"]`},
		{"escaped tokens", `[{"$ref":"a#/a~1b"},{"$ref":"a#/m~0n"},{"$ref":"a#/"},{"$ref":"a#/é"}]`, `[1,2,3,4]`},
		{"escape of an escape", `[{"$ref":"a#/list"},{"$ref":"b#/1"}]`, `[[10,[20,21],{"k":"v"}],2]`},
		{"the last of two members counts", `{"$ref":"a#/dup"}`, `2`},
		{"lone surrogates are not alike", `[{"$ref":"c#/\ud800"},{"$ref":"c#/\udfff"}]`, `["high","low"]`},
		{"escapes in keys of outputs", `[{"$ref":"c#/x\ty"},{"$ref":"c#/\ud83d\ude00"}]`, `["tab","smile"]`},
		{"half a pair and a letter", `[{"$ref":"c#/\ud800A"}]`, `["mixed"]`},
		{"other members beside it", `{"$ref":"a#/nothing","x":1}`, `{"$ref":"a#/nothing","x":1}`},
		{"other members before it", `{"x":{"$ref":"b#/0"},"$ref":"a#/nothing"}`, `{"x":1.0,"$ref":"a#/nothing"}`},
		{"twice", `{"$ref":"a#/nothing","$ref":"b#/0"}`, `{"$ref":"a#/nothing","$ref":"b#/0"}`},
		{"inside a string", `["{\"$ref\":\"a#/nothing\"}"]`, `["{\"$ref\":\"a#/nothing\"}"]`},
		{"empty containers", `[{},[],{"x":{}},{"$ref":"b#/1"}]`, `[{},[],{"x":{}},2]`},
		{"a value is not a template", `[{"$ref":"r#"}]`, `[{"$ref":"a#/nothing"}]`},
	} {
		outputs["r"] = `{"$ref":"a#/nothing"}`
		got, err := Resolve([]byte(tc.template), lookupIn(outputs))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: Resolve(%s) = %s, %v; want %s", tc.name, tc.template, got, err, tc.want)
		}
	}
}

func TestResolve_FaultsNameTheRefAndWhatIsMissing(t *testing.T) {
	t.Parallel()
	lookup := lookupIn(map[NodeID]string{
		"a":   `{"body":{"x":1},"list":[1,2,3],"s":"text","n":null,"t":true,"f":1.5}`,
		"bad": `{"body":`,
		"nil": ``,
		"str": `"s"`,
	})
	for _, tc := range []struct{ template, want string }{
		{`{"$ref":"a#/body/id"}`, `ref "a#/body/id": output of a has no "id" in /body`},
		{`{"$ref":"a#/boby/id"}`, `ref "a#/boby/id": output of a has no "boby"`},
		{`{"$ref":"a#/list/3"}`, `ref "a#/list/3": output of a has no "3" in /list; that is an array of 3`},
		{`{"$ref":"a#/list/-"}`, `ref "a#/list/-": output of a has no "-" in /list; that is an array of 3`},
		{`{"$ref":"a#/list/01"}`, `ref "a#/list/01": output of a has no "01" in /list; that is an array of 3`},
		{`{"$ref":"a#/list/99999999999999999999"}`, `ref "a#/list/99999999999999999999": output of a has no "99999999999999999999" in /list; that is an array of 3`},
		{`{"$ref":"a#/s/x"}`, `ref "a#/s/x": output of a has no "x" in /s; that is a string`},
		{`{"$ref":"a#/n/x"}`, `ref "a#/n/x": output of a has no "x" in /n; that is null`},
		{`{"$ref":"a#/t/x"}`, `ref "a#/t/x": output of a has no "x" in /t; that is a boolean`},
		{`{"$ref":"a#/f/x/y"}`, `ref "a#/f/x/y": output of a has no "x" in /f; that is a number`},
		{`{"$ref":"str#/x"}`, `ref "str#/x": output of str has no "x"; that is a string`},
		{`{"$ref":"b#/x"}`, `ref "b#/x": b has no output`},
		{`{"$ref":"bad#/body"}`, `ref "bad#/body": the output of bad is not JSON`},
		{`{"$ref":"nil#"}`, `ref "nil#": the output of nil is not JSON`},
		{`{"$ref":"a"}`, `ref "a": no '#' between the node id and the JSON pointer`},
		{`{"$ref":""}`, `ref "": no '#' between the node id and the JSON pointer`},
		{`{"$ref":"#/x"}`, `ref "#/x": the node id is empty`},
		{`{"$ref":"a#x"}`, `ref "a#x": the JSON pointer does not begin with '/'`},
		{`{"$ref":"a#/x~2"}`, `ref "a#/x~2": '~' in a JSON pointer must be written ~0 (and '/' ~1)`},
		{`{"$ref":"a#/x~"}`, `ref "a#/x~": '~' in a JSON pointer must be written ~0 (and '/' ~1)`},
		{`{"$ref":"\ud800#"}`, `ref "\xed\xa0\x80#": the node id is not valid UTF-8`},
		{`{"$ref":"a\nb#"}`, `ref "a\nb#": the node id contains '\n'`},
		{`{"$ref":17}`, `ref "17": not a string`},
		{`{"$ref":{"$ref":"a#"}}`, `ref "{\"$ref\":\"a#\"}": not a string`},
		{`{"$ref":`, `parse template: unexpected end of JSON input`},
		{``, `parse template: unexpected end of JSON input`},
		{`{} {}`, `parse template: invalid character '{' after top-level value`},
	} {
		got, err := Resolve([]byte(tc.template), lookup)
		if err == nil || err.Error() != tc.want {
			t.Errorf("Resolve(%s) = %s, %v; want %s", tc.template, got, err, tc.want)
		}
	}
}

func TestRefs_ListsThemInOrder(t *testing.T) {
	t.Parallel()
	refs, err := Refs([]byte(`{"x":{"$ref":"b#/1"},"y":[{"$ref":"a#"},{"$ref":"b#/1"}],"$ref":"c#"}`))
	if err != nil || fmt.Sprint(refs) != "[b#/1 a# b#/1]" {
		t.Errorf("Refs = %v, %v", refs, err)
	}
	var fault *RefError
	if _, err := Refs([]byte(`[{"$ref":"a#"},{"$ref":"a"}]`)); !errors.As(err, &fault) || fault.Ref != "a" {
		t.Errorf("Refs with a bad ref: %v", err)
	}
}

func TestRefs_LongRefIsRefusedAndCutInTheMessage(t *testing.T) {
	t.Parallel()
	_, err := Refs([]byte(`{"$ref":"a#/` + strings.Repeat("x", 5000) + `"}`))
	if err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), "longer than 1024 bytes") {
		t.Errorf("err = %v", err)
	}
}

func TestResolve_DeepNestingIsAnErrorNotAnOverflow(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)
	if _, err := Refs([]byte(deep)); err == nil {
		t.Error("a template a million deep was accepted")
	}
	_, err := Resolve([]byte(`{"$ref":"a#/0/0"}`), lookupIn(map[NodeID]string{"a": deep}))
	if err == nil {
		t.Error("an output a million deep was accepted")
	}
}

func TestResolve_ResultIsBounded(t *testing.T) {
	t.Parallel()
	big := `"` + strings.Repeat("x", 1<<20) + `"`
	template := `[` + strings.Repeat(`{"$ref":"a#"},`, 100) + `0]`
	_, err := Resolve([]byte(template), lookupIn(map[NodeID]string{"a": big}))
	var fault *RefError
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "larger than 16777216 bytes") {
		t.Errorf("err = %v", err)
	}
}

func TestResolve_LeavesItsInputsAlone(t *testing.T) {
	t.Parallel()
	template, output := []byte(`[{"$ref":"a#/x"},{"$ref":"a#/y"}]`), []byte(`{"x":[1],"y":[2]}`)
	template0, output0 := bytes.Clone(template), bytes.Clone(output)
	got, err := Resolve(template, func(NodeID) ([]byte, bool) { return output, true })
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = '!'
	}
	if !bytes.Equal(template, template0) || !bytes.Equal(output, output0) {
		t.Error("the result shares bytes with the template or the output")
	}
}

// FuzzResolve checks Resolve against decoding, replacing and comparing values.
func FuzzResolve(f *testing.F) {
	for _, template := range []string{
		`{"$ref":"a#/body/id"}`, `[{"$ref":"a#/list/1"},{"$ref":"a#"}]`, `{"$ref":"a#/x","y":1}`, `{"\u0024ref":"a#/é"}`,
		`[1,"\ud800",{"k":{"$ref":"a#/a~1b"}}]`, ` { "$ref" : "a#/" } `, `{"$ref":3}`, `{`, `{"a":{},"b":[[]]}`, `{"$ref":"a#/s/0"}`,
	} {
		f.Add(template, `{"body":{"id":1e999},"list":[1,{"x":"\ud800"}],"a/b":null,"":true,"é":2}`)
	}
	f.Add(`{"$ref":"a#/0"}`, `[[],{}]`)
	f.Add(`{"$ref":"a#/k"}`, `{"k":1,"\u006b":2}`)
	f.Fuzz(func(t *testing.T, template, output string) {
		got, err := Resolve([]byte(template), lookupIn(map[NodeID]string{"a": output}))
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("Resolve(%q, %q) = %q, not JSON", template, output, got)
		}
		refs, err := Refs([]byte(template))
		if err != nil {
			t.Fatalf("Refs(%q): %v, although it resolves", template, err)
		}
		if len(refs) == 0 && string(got) != template {
			t.Fatalf("Resolve(%q) = %q without a ref", template, got)
		}
		if len(refs) > 0 && !strings.Contains(template, "\\u") {
			checkAgainstDecoder(t, template, output, got)
		}
	})
}

// checkAgainstDecoder resolves by way of encoding/json and compares values.
func checkAgainstDecoder(t *testing.T, template, output string, got []byte) {
	var want, out, have any
	if decodeNumbers(template, &want) != nil || decodeNumbers(output, &out) != nil || hasRepeatedMembers(template) {
		return
	}
	want = replaceRefs(want, out)
	if err := decodeNumbers(string(got), &have); err != nil {
		return // nested deeper than the decoder likes
	}
	wantText, _ := json.Marshal(want)
	haveText, _ := json.Marshal(have)
	if !bytes.Equal(wantText, haveText) {
		t.Fatalf("Resolve(%q, %q) = %s, want %s", template, output, haveText, wantText)
	}
}

func decodeNumbers(text string, into *any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// hasRepeatedMembers: a decoder sees one "$ref" where the template has two.
func hasRepeatedMembers(template string) bool {
	return strings.Count(template, "$ref") != strings.Count(template, `{"$ref"`)
}

func replaceRefs(v, out any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["$ref"].(string); ok && len(v) == 1 {
			return follow(out, strings.TrimPrefix(text, "a#"))
		}
		for k := range v {
			v[k] = replaceRefs(v[k], out)
		}
	case []any:
		for i := range v {
			v[i] = replaceRefs(v[i], out)
		}
	}
	return v
}

func follow(v any, pointer string) any {
	if pointer == "" {
		return v
	}
	for _, token := range strings.Split(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch at := v.(type) {
		case map[string]any:
			v = at[token]
		case []any:
			i, _ := strconv.Atoi(token)
			v = at[i]
		}
	}
	return v
}

func BenchmarkResolve(b *testing.B) {
	response := `{"status":200,"headers":{"Content-Type":["application/json"]},"body":{"id":17,"items":[` +
		strings.Repeat(`{"name":"thing","price":12.50},`, 30) + `{"name":"last"}]}}`
	var large strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&large, `"field%d":{"value":%d,"text":"some words of text"},`, i, i)
	}
	for name, tc := range map[string]struct{ template, output string }{
		"no refs":       {`{"method":"POST","url":"http://127.0.0.1/x","body":{"a":[1,2,3],"b":"text"}}`, `{}`},
		"http response": {`{"method":"POST","url":"http://127.0.0.1/x","body":{"id":{"$ref":"a#/body/id"},"name":{"$ref":"a#/body/items/30/name"}}}`, response},
		"1000 refs into 500 kB": {
			func() string {
				var t strings.Builder
				for i := range 1000 {
					fmt.Fprintf(&t, `{"$ref":"a#/field%d/value"},`, i*10)
				}
				return `[` + t.String() + `0]`
			}(), `{` + large.String() + `"end":0}`,
		},
	} {
		b.Run(name, func(b *testing.B) {
			template, lookup := []byte(tc.template), lookupIn(map[NodeID]string{"a": tc.output})
			b.SetBytes(int64(len(tc.template) + len(tc.output)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Resolve(template, lookup); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
