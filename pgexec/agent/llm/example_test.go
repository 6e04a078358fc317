package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// A turn that calls a tool, and the request that brings the result.
func ExampleClient_Do() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"weather","arguments":"{\"city\":\"Lisbon\"}"}}]},"finish_reason":"tool_calls"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()

	client, err := llm.New(llm.Config{Provider: llm.OpenAI, BaseURL: server.URL, Model: "some-model"})
	if err != nil {
		panic(err)
	}
	r := &llm.Request{
		Messages: []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Text: "What is the weather in Lisbon?"}}}},
		Tools:    []llm.Tool{{Name: "weather", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}},
	}
	turn, err := client.Do(context.Background(), r, nil)
	var failed *llm.Error
	if errors.As(err, &failed) {
		fmt.Println("again?", !failed.Permanent(), "after", failed.RetryAfter)
	}
	if err != nil {
		panic(err)
	}
	r.Messages = append(r.Messages, llm.Message{Role: llm.RoleAssistant, Raw: turn.Message})
	for _, c := range turn.Calls {
		fmt.Println(c.Name, string(c.Args))
		r.Messages = append(r.Messages, llm.Message{Role: llm.RoleTool, CallID: c.ID, Parts: []llm.Part{{Text: "sunny, 24 °C"}}})
	}
	body, err := llm.Encode(llm.OpenAI, "some-model", &llm.Request{Messages: r.Messages})
	fmt.Println(string(body), err)
	// Output:
	// weather {"city":"Lisbon"}
	// {"model":"some-model","messages":[{"role":"user","content":"What is the weather in Lisbon?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Lisbon\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"sunny, 24 °C"}],"stream":true,"stream_options":{"include_usage":true}} <nil>
}
