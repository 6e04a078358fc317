package agent_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

func TestTurn_EveryEndOfAnAnswerIsToldInTheResult(t *testing.T) {
	for name, tc := range map[string]struct{ reply, text, stop string }{
		"end":            {`{text: fine}`, "fine", "end"},
		"refusal":        {`{text: I will not, stop: refusal}`, "", "refusal"},
		"max tokens":     {`{text: so f, stop: max_tokens}`, "so f", "max_tokens"},
		"content filter": {`{text: so f, stop: content_filter}`, "so f", "content_filter"},
		"nothing at all": {`{stop: end}`, "", "end"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, "rules: [{reply: "+tc.reply+"}]")
			b.define("a", nil)
			b.replica()
			got := b.answer(b.ask("go"))
			if got.Stop != tc.stop || got.Text != tc.text || (got.Refusal == "I will not") != (name == "refusal") {
				t.Errorf("answer %+v, want %q, %q", got, tc.text, tc.stop)
			}
		})
	}
}

func TestTurn_APausedTurnGoesOnAtOnce(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {text: searching, stop: pause_turn}
  - when: {turn: 1}
    reply: {text: still searching, stop: pause_turn}
  - when: {turn: 2}
    reply: {calls: [{name: echo, args: {n: 1}}]}
  - when: {turn: 3}
    reply: {text: found}
`)
	b.define("a", object{"provider": "anthropic", "tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("search")
	if got := b.answer(id); got.Text != "found" || got.Turns != 4 {
		t.Errorf("answer %+v", got)
	}
	b.checkPrefixes()
	b.requests()
}

func TestTurn_ACallThatWasCutOffIsNotMade_C45(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `
rules:
  - when: {turn: 0}
    reply: {calls: [{name: echo, args: {n: 1}}, {name: echo, raw_args: '{"text": "a long'}], stop: max_tokens}
  - when: {turn: 1}
    reply: {text: "{{tool_result}}"}
`)
			b.define("a", object{"provider": provider, "tools": []object{kindTool("echo")}})
			b.replica(addEcho)
			id := b.ask("write")
			got := b.answer(id)
			if !strings.Contains(got.Text, `{"n":1}`) || !strings.Contains(got.Text, "cut off") {
				t.Errorf("results %q", got.Text)
			}
			if ids := b.ids(id); slices.Contains(ids, "call-1-2") {
				t.Errorf("nodes %v: the call that was cut off was made", ids)
			}
			b.requests()
		})
	}
}

func TestTurn_ThinkingComesBackByteForByte_C47(t *testing.T) {
	b := setup(t, `
rules:
  - when: {turn: 0-2}
    reply: {thinking: "First <this> & \"that\" \u2028 \u00fc.", text: working, calls: [{name: echo, args: {n: 1}}]}
  - reply: {thinking: enough, text: done}
`)
	// The scripted model refuses thinking that is not the one it signed.
	b.define("a", object{"provider": "anthropic", "tools": []object{kindTool("echo")}})
	b.replica(addEcho)
	id := b.ask("think")
	b.answer(id)
	b.requests()
	b.checkPrefixes()
}

func TestInput_MessagesAndImages(t *testing.T) {
	png := []byte("\x89PNG not really")
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			b := setup(t, `rules: [{reply: {text: seen}}]`)
			b.define("a", object{"provider": provider})
			b.replica()
			ref, err := b.client.PutBlob(b.ctx, "image/png", bytes.NewReader(png))
			if err != nil {
				t.Fatal(err)
			}
			id := b.start(object{"agent": "a", "messages": []object{
				{"role": "user", "content": "hello"},
				{"role": "assistant", "content": "hi"},
				{"role": "user", "content": []object{
					{"text": "compare"},
					{"image": ref},
					{"image": object{"url": "https://example.org/a.png"}},
					{"image": object{"media_type": "image/png", "data": png}},
				}},
			}})
			b.answer(id)
			b.requests()
			body := b.model.Requests()[0].Body
			if n := strings.Count(body, base64.StdEncoding.EncodeToString(png)); n != 2 {
				t.Errorf("the image is %d times in the request, want 2", n)
			}
			if !strings.Contains(body, "https://example.org/a.png") || !strings.Contains(body, "compare") {
				t.Errorf("request %s", body)
			}
		})
	}
}

func TestInput_WhatMakesNoSenseFailsWithWords(t *testing.T) {
	b := setup(t, `rules: [{reply: {text: seen}}]`)
	b.define("a", nil)
	for want, input := range map[string]object{
		`agent "nobody" does not exist`: {"agent": "nobody", "prompt": "x"},
		"must have exactly one of":      {"agent": "a"},
		"promt is not known":            {"agent": "a", "promt": "x"},
	} {
		if _, err := b.client.Start(b.ctx, "agent", input, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start %v: %v, want %q in it", input, err, want)
		}
	}
	b.replica()
	run := b.wait(b.start(object{"agent": "a", "prompt": "  "}))
	if run.Status != pgexec.RunFailed || !strings.Contains(run.Error, "prompt: it is blank") {
		t.Errorf("run is %s: %s", run.Status, run.Error)
	}
}
