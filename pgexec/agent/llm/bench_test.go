package llm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// BenchmarkStream is a turn of many small pieces: the cost of one does not grow
// with what came before it.
func BenchmarkStream(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		piece := strings.Repeat("x", 8)
		openAI := []string{called(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\""}}`)}
		anthropic := []string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`, `{"type":"content_block_delta","index":0,"delta":` + inputDelta(`{"x":"`) + `}`}
		for range n {
			openAI = append(openAI, called(`{"index":0,"id":"a","function":{"name":"f","arguments":"`+piece+`"}}`))
			anthropic = append(anthropic, `{"type":"content_block_delta","index":0,"delta":`+inputDelta(piece)+`}`)
		}
		openAI = append(openAI, called(`{"index":0,"function":{"arguments":"\"}"}}`), finish("tool_calls"))
		anthropic = append(anthropic, `{"type":"content_block_delta","index":0,"delta":`+inputDelta(`"}`)+`}`)
		for p, body := range map[llm.Provider]string{llm.OpenAI: chunks(openAI...), llm.Anthropic: told("tool_use", anthropic...)} {
			b.Run(fmt.Sprintf("%s/pieces=%d", p, n), func(b *testing.B) {
				client := canned(b, p, body)
				for b.Loop() {
					turn, err := client.Do(b.Context(), hello(), nil)
					if err != nil || len(turn.Calls) != 1 {
						b.Fatal(turn, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/piece")
			})
		}
	}
}
