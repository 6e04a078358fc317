package llm_test

import (
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

func TestOpenAI_ParallelCallsAreToldApart_C48(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deltas []string
		want   string
	}{
		"by index": {
			[]string{
				called(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`),
				called(`{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}`),
				called(`{"index":1,"function":{"arguments":"{\"y\":"}}`, `{"index":0,"function":{"arguments":"{\"x\":"}}`),
				called(`{"index":0,"function":{"arguments":"1}"}}`),
				called(`{"index":1,"function":{"arguments":"2}"}}`),
			},
			`a f {"x":1}; b g {"y":2}`,
		},
		"index always 0, ids tell": {
			[]string{
				called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`),
				called(`{"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}}`),
				called(`{"index":0,"id":"c","function":{"name":"g","arguments":""}}`),
				called(`{"index":0,"id":"c","function":{"arguments":"{}"}}`),
			},
			`a f {"x":1}; b f {"x":2}; c g {}`,
		},
		"index always 0, ids empty, whole calls": {
			[]string{
				called(`{"index":0,"id":"","function":{"name":"f","arguments":"{\"x\":1}"}}`),
				called(`{"index":0,"id":"","function":{"name":"f","arguments":"{\"x\":1}"}}`),
				called(`{"index":0,"id":"","function":{"name":"g","arguments":"{}"}}`),
			},
			`call_1_1 f {"x":1}; call_1_2 f {"x":1}; call_1_3 g {}`,
		},
		"no index, all in one chunk": {
			[]string{called(
				`{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`,
				`{"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}}`)},
			`a f {"x":1}; b f {"x":2}`,
		},
		"no index, pieces by id": {
			[]string{
				called(`{"id":"a","function":{"name":"f","arguments":"{"}}`),
				called(`{"id":"b","function":{"name":"g","arguments":"{"}}`),
				called(`{"id":"a","function":{"arguments":"}"}}`),
				called(`{"id":"b","function":{"arguments":"}"}}`),
			},
			`a f {}; b g {}`,
		},
		"no index, no id, pieces by position": {
			[]string{
				called(`{"function":{"name":"f","arguments":"{\"x\":"}}`, `{"function":{"name":"g","arguments":"{\"y\":"}}`),
				called(`{"function":{"arguments":"1}"}}`, `{"function":{"arguments":"2}"}}`),
			},
			`call_1_1 f {"x":1}; call_1_2 g {"y":2}`,
		},
		"no index, no id, one after the other": {
			[]string{
				called(`{"function":{"name":"f","arguments":"{\"x\":"}}`),
				called(`{"function":{"arguments":"1}"}}`),
				called(`{"function":{"name":"f","arguments":"{\"x\":"}}`),
				called(`{"function":{"arguments":"2}"}}`),
			},
			`call_1_1 f {"x":1}; call_1_2 f {"x":2}`,
		},
		"index -1": {
			[]string{
				called(`{"index":-1,"id":"a","function":{"name":"f","arguments":"{"}}`),
				called(`{"index":-1,"function":{"arguments":"}"}}`),
			},
			`a f {}`,
		},
		"name and id repeated": {
			[]string{
				called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}`),
				called(`{"index":0,"id":"a","function":{"name":"f","arguments":"1}"}}`),
				called(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`),
			},
			`a f {"x":1}`,
		},
		"one id for two calls": {
			[]string{
				called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`),
				called(`{"index":1,"id":"a","function":{"name":"g","arguments":"{\"y\":2}"}}`),
			},
			`a f {"x":1}; call_1_2 g {"y":2}`,
		},
		"another id on each piece": {
			[]string{
				called(`{"index":0,"id":"a1","function":{"name":"f","arguments":"{\"x\":"}}`),
				called(`{"index":0,"id":"a2","function":{"arguments":"1}"}}`),
			},
			`a1 f {"x":1}`,
		},
		"arguments as an object": {
			[]string{called(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x":"<1>"}}}`)},
			`a f {"x":"<1>"}`,
		},
		"no arguments": {
			[]string{called(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`), called(`{"index":1,"id":"b","function":{"name":"g"}}`)},
			`a f {}; b g {}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, err := ask(t, llm.OpenAI, hello(), chunks(append(tc.deltas, finish("tool_calls"))...))
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(turn.Calls); got != tc.want {
				t.Errorf("calls are %s\nwant      %s", got, tc.want)
			}
			if turn.Stop != llm.StopToolCalls {
				t.Errorf("stop is %s", turn.Stop)
			}
		})
	}
}
