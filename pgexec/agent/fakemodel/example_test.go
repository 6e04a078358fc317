package fakemodel_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

// A model that is busy at first, asked by OpenAI's own client, which tries again by itself.
func Example() {
	script, err := fakemodel.Load(strings.NewReader(`
rules:
  - times: 1
    error: {status: 429, retry_after: 1ms}
  - reply: {text: "You said: {{last_user}}"}
`))
	if err != nil {
		log.Fatal(err)
	}
	model := fakemodel.New(script, nil)
	server := httptest.NewServer(model)
	defer server.Close()

	client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("any"))
	reply, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model:    "any",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Choices[0].Message.Content)
	for _, r := range model.Requests() {
		fmt.Println(r.Number, r.Status, r.Rule)
	}
	// Output:
	// You said: hello
	// 1 429 rule 1 (line 3)
	// 2 200 rule 2 (line 5)
}
