package pgexectest_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/pgexectest"
)

// supportKinds is what is tested: a node that asks a model, and one for each tool call that the model wants.
func supportKinds(modelURL string) *pgexec.Kinds {
	client := openai.NewClient(option.WithBaseURL(modelURL+"/v1"), option.WithAPIKey("any"), option.WithMaxRetries(0))
	kinds := pgexec.NewKinds()
	pgexec.AddKind(kinds, "support", func(ctx context.Context, n *pgexec.Node, question string) (string, error) {
		reply, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model:    "any",
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
		})
		if err != nil {
			return "", err // tried again by the kind's policy
		}
		message := reply.Choices[0].Message
		for _, call := range message.ToolCalls {
			n.Spawn(call.Function.Name, json.RawMessage(call.Function.Arguments), nil)
		}
		return message.Content, nil
	}, nil)
	type order struct{ ID int }
	pgexec.AddKind(kinds, "refund", func(_ context.Context, _ *pgexec.Node, o order) (bool, error) {
		return o.ID == 17, nil
	}, nil)
	return kinds
}

func TestSupport_RefundsAlthoughTheModelIsBusy(t *testing.T) {
	model := pgexectest.NewModel(t, `
rules:
  - when: {attempt: 1}
    error: {status: 429}
  - when: {user: refund}
    reply:
      text: On its way.
      calls: [{name: refund, args: {id: 17}}]
`)
	run := pgexectest.Run(t, pgexectest.DB(t), supportKinds(model.URL), "support", "I want a refund.")

	if run.Status != pgexec.RunSucceeded || string(run.Result) != "true" {
		t.Errorf("run %s: %s %s", run.Status, run.Result, run.Error)
	}
	if n := run.Nodes[0]; n.Attempt != 2 || string(n.Output) != `"On its way."` {
		t.Errorf("first node: attempt %d, output %s", n.Attempt, n.Output)
	}
	if asked := model.Requests(); len(asked) != 2 || asked[0].Body != asked[1].Body {
		t.Errorf("the model was asked %d times: %+v", len(asked), asked)
	}
}
