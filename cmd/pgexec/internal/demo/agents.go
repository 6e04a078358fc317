package demo

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

// script is what the models say.
//
//go:embed model.yaml
var script string

func loadModel() (*fakemodel.Server, error) {
	s, err := fakemodel.Load(strings.NewReader(script))
	if err != nil {
		return nil, fmt.Errorf("read the models' script: %w", err)
	}
	return fakemodel.New(s, nil), nil
}

type object = map[string]any

// takes is the JSON Schema of arguments that are texts.
func takes(names ...string) object {
	properties := object{}
	for _, name := range names {
		properties[name] = object{"type": "string"}
	}
	return object{"type": "object", "properties": properties, "required": names}
}

func lookUpTool(name, url string) object {
	return object{
		"name": name, "type": "http", "description": "Finds what is known about something.",
		"method": "GET", "url": url + "/tools/" + name, "query": []string{"query"}, "parameters": takes("query"),
	}
}

// agents are the definitions of the demo's agents, whose models and tools are at url.
func agents(url string) map[string]object {
	return map[string]object{
		"writer": {
			"provider": "openai", "base_url": url + "/v1", "model": "demo-writer",
			"system": "You write short reports, have their facts checked and publish them.",
			"tools": []object{
				lookUpTool("search", url),
				{"name": "check_facts", "type": "agent", "agent": "checker", "description": "Has a colleague check facts."},
				{
					"name": "publish", "type": "http", "description": "Publishes the report.", "approval": true,
					"method": "POST", "url": url + "/tools/publish", "parameters": takes("title"),
				},
			},
		},
		"checker": {
			"provider": "anthropic", "base_url": url, "model": "demo-checker",
			"system": "You check facts.", "max_output_tokens": 1000,
			"tools": []object{lookUpTool("look_up", url)},
		},
	}
}

// plan is a run to be inserted.
type plan struct {
	name  string
	input json.RawMessage
	// nodes counts all its own nodes.
	nodes int
}

const (
	runCount = 12
	// A writer's run: the agent and its answer, four turns, eight calls of tools, an approval.
	writerNodes = 2 + 4 + 8 + 1
	// The run of the checker that it asks: the agent and its answer, two turns, two calls.
	checkerNodes = 2 + 2 + 2
)

// plans returns the runs that the demo inserts.
func plans() ([]plan, error) {
	var all []plan
	for i := 1; i <= runCount; i++ {
		input, err := json.Marshal(object{"agent": "writer", "prompt": fmt.Sprintf("Write report %d, on tides.", i)})
		if err != nil {
			return nil, fmt.Errorf("write input: %w", err)
		}
		all = append(all, plan{name: fmt.Sprintf("report-%d", i), input: input, nodes: writerNodes})
	}
	return all, nil
}
