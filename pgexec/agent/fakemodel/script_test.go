package fakemodel_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

func TestLoad_NamesTheMistake(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, want string }{
		"empty":                 {"", "it is empty"},
		"no rules":              {"api_key: x", "no rules"},
		"two documents":         {"rules: [{reply: {text: a}}]\n---\nrules: []", "more than one YAML document"},
		"not YAML":              {"rules: [", "line 1"},
		"unknown field":         {"rules:\n- when: {}\n  reply: {txt: a}", "line 3: unknown field txt"},
		"unknown condition":     {"rules:\n- when:\n    turns: 1\n  reply: {text: a}", "line 3: unknown field turns"},
		"neither":               {"rules:\n- name: a\n- reply: {text: x}", `rule 1 "a" (line 2): want either reply or error`},
		"both":                  {"rules:\n- {reply: {text: x}, error: {status: 500}}", "want either reply or error"},
		"empty reply":           {"rules:\n- reply: {text: x}\n- reply: {chunk: 3}", "rule 2 (line 3): reply is empty"},
		"api":                   {"rules: [{when: {api: openia}, reply: {text: x}}]", `when.api "openia"`},
		"times":                 {"rules: [{times: -1, reply: {text: x}}]", "times"},
		"status":                {"rules: [{error: {status: 200}}]", "error.status 200: want 400 to 599"},
		"retry after":           {"rules: [{error: {status: 429, retry_after: -1s}}]", "retry_after"},
		"duration":              {"rules:\n- latency: 5\n  reply: {text: x}", `line 2: "5" is no duration`},
		"interval":              {"rules:\n- when: {turn: one}\n  reply: {text: x}", `line 2: "one": want a number`},
		"empty interval":        {"rules:\n- when: {turn: 3-1}\n  reply: {text: x}", `line 2: range "3-1" is empty`},
		"condition's form":      {"rules:\n- when: {user: [a]}\n  reply: {text: x}", "line 2: want the words"},
		"regular expression":    {"rules:\n- when: {user: {regexp: \"(\"}}\n  reply: {text: x}", "line 2: error parsing regexp"},
		"template":              {"rules: [{reply: {text: '{{last_user'}}]", "template"},
		"template's word":       {"rules: [{reply: {text: '{{last_usr}}'}}]", `function "last_usr" not defined`},
		"template in arguments": {"rules:\n- reply:\n    calls:\n    - name: f\n      args: {a: '{{turn 1}}'}", "line 5: template"},
		"call without name":     {"rules: [{reply: {calls: [{args: {}}]}}]", "reply.calls[0] has no name"},
		"arguments twice":       {"rules: [{reply: {calls: [{name: f, args: {}, raw_args: x}]}}]", "either args or raw_args"},
		"arguments in a list":   {"rules:\n- reply: {calls: [{name: f, args: [1]}]}", "line 2: args must be a mapping"},
		"no number of JSON":     {"rules:\n- reply: {calls: [{name: f, args: {a: .nan}}]}", "line 2: NaN has no form in JSON"},
		"merged mappings":       {"rules:\n- reply: {calls: [{name: f, args: {<<: {a: 1}}}]}", "line 2: args cannot merge"},
		"index":                 {"rules:\n- reply: {calls: [{name: f, index: first}]}", `line 2: index "first"`},
		"negative usage":        {"rules: [{reply: {text: x, usage: {input: -1}}}]", "must not be negative"},
		"cached of nothing":     {"rules: [{reply: {text: x, usage: {cached: 5}}}]", "input includes cached"},
		"break":                 {"rules: [{reply: {text: x, break: {with: hammer}}}]", `reply.break.with "hammer"`},
		"break's status":        {"rules: [{reply: {text: x, break: {error: {status: 500}}}}]", "sent inside of the stream"},
		"negative break":        {"rules: [{reply: {text: x, break: {with: cut, after: -1}}}]", "must not be negative"},
		"negative chunk":        {"rules: [{reply: {text: x, chunk: -1}}]", "must not be negative"},
	} {
		s, err := fakemodel.Load(strings.NewReader(tc.script))
		if err == nil || s != nil || !strings.HasPrefix(err.Error(), "script: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v; want %q", name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "fakemodel.") {
			t.Errorf("%s: %v names a Go type", name, err)
		}
	}
	broken := errors.New("disk gone")
	if _, err := fakemodel.Load(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
