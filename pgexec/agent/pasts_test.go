package agent

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// turns are so many turns with two calls each; those in silent have no message.
func turns(n int, silent ...int) []past {
	pasts := make([]past, n)
	for i := range pasts {
		p := &pasts[i]
		p.number = i + 1
		p.turn.text = fmt.Sprint("text ", p.number)
		p.turn.Message = []byte(fmt.Sprintf(`{"turn":%d}`, p.number))
		for k := range 2 {
			p.calls = append(p.calls, llm.Call{ID: fmt.Sprintf("%d.%d", p.number, k), Name: "f", Args: []byte(`{}`)})
			p.results = append(p.results, llm.Message{Role: llm.RoleTool, CallID: fmt.Sprintf("%d.%d", p.number, k), Parts: []llm.Part{{Text: fmt.Sprintf("result %d.%d", p.number, k)}}})
		}
	}
	for _, number := range silent {
		pasts[number-1].turn = turnOutput{Overflow: "too long"}
		pasts[number-1].calls, pasts[number-1].results = nil, nil
	}
	return pasts
}

func asked(prompt string) *opening { return &opening{prompt: []llm.Message{userText(prompt)}} }

// A conversation after more turns begins with the one after fewer, whatever was
// noted, said or left out in them, but for a summary between (C51).
func TestConversation_OnlyGrowsAtItsEnd_C51(t *testing.T) {
	t.Parallel()
	pasts := turns(9, 4, 7)
	pasts[1].turn.Note = "a note"
	pasts[2].before = []llm.Message{userText("something else")}
	pasts[6].before = []llm.Message{userText("said before a silent turn")}
	var before []llm.Message
	for n := range len(pasts) + 1 {
		now := conversation(asked("go"), pasts[:n])
		for i := range before {
			if fmt.Sprint(before[i]) != fmt.Sprint(now[i]) {
				t.Fatalf("after %d turns message %d is %v, was %v", n, i, now[i], before[i])
			}
		}
		before = now
	}
	if n := len(before); n != 1+7*3+1+2 {
		t.Errorf("%d messages", n)
	}
}

// Wherever a summary cuts, each call keeps its result, and what is not in the
// conversation is in what was summarised.
func TestCompact_NothingIsLostAndNoCallLosesItsResult_C46(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 7; n++ {
		for keep := range 9 {
			pasts := turns(n)
			if n > 3 {
				pasts = turns(n, 3)
				pasts[1].summary = &compactOutput{Summary: "the first", FirstKept: 2}
			}
			first := keepFrom(pasts, keep, math.MaxInt64)
			told := transcript(asked("go"), pasts, first, 100_000)
			last := &pasts[len(pasts)-1]
			if last.summary != nil {
				continue
			}
			last.summary = &compactOutput{Summary: "SUMMARY", FirstKept: first}
			messages := conversation(asked("go"), pasts)
			text := fmt.Sprint(messages)
			kept := 0
			for i := range pasts {
				p := &pasts[i]
				if p.turn.Message == nil {
					continue
				}
				inText, inTold := strings.Contains(text, fmt.Sprintf("result %d.1", p.number)), strings.Contains(told, fmt.Sprintf("result %d.1", p.number))
				if inText {
					kept++
				}
				if inText == inTold && (n <= 3 || p.number > 1) {
					t.Errorf("%d turns, keep %d: turn %d is kept %v, told %v", n, keep, p.number, inText, inTold)
				}
			}
			if kept > keep || len(messages) != 1+3*kept || !strings.Contains(text, "SUMMARY") {
				t.Errorf("%d turns, keep %d: %d are kept in %d messages", n, keep, kept, len(messages))
			}
			if n > 3 && !strings.Contains(told, "the first") {
				t.Errorf("%d turns: the former summary is not told", n)
			}
		}
	}
}

func TestTranscript_FitsWhateverIsInIt(t *testing.T) {
	t.Parallel()
	pasts := turns(20)
	pasts[3].results[0].Parts[0].Text = strings.Repeat("é", 500_000)
	for _, limit := range []int{4096, 20_000, 1_000_000} {
		told := transcript(asked("the task"), pasts, 21, limit)
		if len(told) > limit+100 || !strings.Contains(told, "the task") || !strings.Contains(told, "result 20.1") {
			t.Errorf("limit %d: %d bytes, begins %.60q", limit, len(told), told)
		}
		if strings.Contains(told, "\ufffd") {
			t.Errorf("limit %d: a character was cut", limit)
		}
	}
}

func TestTurnOutput_KeepsTheMessageByteForByte_C47(t *testing.T) {
	t.Parallel()
	message := "{ \"role\" : \"assistant\",\n \"content\":\"<a> & \\u00e9 \\ud800\", \"n\": 123456789012345678901234567890 }"
	out := &turnOutput{Message: []byte(message), Note: "x < y"}
	raw, err := out.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeTurn(raw)
	if err != nil || string(back.Message) != message || back.Note != "x < y" {
		t.Errorf("%v: %s", err, back.Message)
	}
	if raw, err := (&turnOutput{Message: []byte(`{}`)}).encode(); err != nil || string(raw) != `{"message":{}}` {
		t.Errorf("%s, %v", raw, err)
	}
	if _, err := (&turnOutput{Message: []byte(`{`)}).encode(); err == nil {
		t.Error("a message that is not JSON is taken")
	}
}
