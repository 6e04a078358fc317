package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// checkPrefixes holds consecutive requests of one run to a common beginning: up
// to the end of its messages, each one's bytes are those that the next begins with.
func (b *bundle) checkPrefixes() {
	b.t.Helper()
	var before string
	for _, r := range b.model.Requests() {
		end := strings.LastIndex(r.Body, `],"stream":true`)
		if end < 0 {
			b.t.Fatalf("request %d has no messages: %s", r.Number, r.Body)
		}
		if !strings.HasPrefix(r.Body, before) {
			b.t.Errorf("request %d does not begin as the one before:\n%s\n%s", r.Number, before, r.Body)
		}
		before = r.Body[:end]
	}
}

func TestTakeover_RequestsHaveACommonPrefix_C51(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {turn: 0-5}
    reply:
      thinking: "Now <that> & \"this\" \u00e9."
      text: "turn {{turn}}"
      calls: [{name: step, args: {z: 1, a: {y: 2, b: 3}}}, {name: step, args: {}}]
  - reply: {text: done}
`)
			b.define("a", object{
				"provider": provider, "system": "Be <brief>.", "tools": []object{kindTool("step"), kindTool("b"), kindTool("a")},
				"extra": object{"zz": 1, "aa": object{"d": 1, "c": 2}},
			})
			// Each replica does some calls and is stopped in the next one.
			turns := make(chan struct{})
			add := func(k *pgexec.Kinds) {
				pgexec.AddKind(k, "step", func(ctx context.Context, n *pgexec.Node, in json.RawMessage) (json.RawMessage, error) {
					if strings.HasSuffix(string(n.ID()), "-1") {
						select {
						case <-turns:
						case <-ctx.Done():
							return nil, context.Cause(ctx)
						}
					}
					return in, nil
				}, nil)
			}
			r := b.replica(add)
			id := b.ask("go <on>")
			for range 3 {
				turns <- struct{}{}
				turns <- struct{}{}
				next := b.replica(add)
				r.stop()
				r = next
			}
			if got := b.answer(id); got.Text != "done" || got.Turns != 7 || got.Calls != 12 {
				t.Errorf("answer %+v", got)
			}
			if n := query[int64](b, `select epoch from pgexec.runs where run_id = $1`, id); n < 2 {
				t.Errorf("epoch %d: no replica took the run over", n)
			}
			b.checkPrefixes()
			b.requests()
			tokens := query[int64](b, `select sum(tokens) from pgexec.nodes where run_id = $1`, id)
			if spent := query[int64](b, `select input_tokens + output_tokens from pgexec.runs where run_id = $1`, id); spent != tokens || tokens == 0 {
				t.Errorf("the run spent %d tokens, its turns %d", spent, tokens)
			}
		})
	}
}
