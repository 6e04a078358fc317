package llm

import (
	"errors"
	"fmt"
)

// step is a user's message, or an assistant's with the results of its calls, one
// for each, in their order.
type step struct {
	message *Message
	calls   []Call
	results []*Message
}

// stepsOf groups a conversation, and refuses one that no provider accepts.
func stepsOf(f format, messages []Message) ([]step, error) {
	if len(messages) == 0 {
		return nil, errors.New("there are no messages: a conversation begins with a user's")
	}
	var steps []step
	for i := 0; i < len(messages); {
		m := &messages[i]
		i++
		switch m.Role {
		case RoleUser:
			if err := checkParts(m); err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			steps = append(steps, step{message: m})
		case RoleAssistant:
			_, calls, err := f.parse(m.Raw)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			first := i
			for i < len(messages) && messages[i].Role == RoleTool {
				i++
			}
			results, err := match(calls, messages[first:i])
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", first, err)
			}
			steps = append(steps, step{message: m, calls: calls, results: results})
		case RoleTool:
			return nil, fmt.Errorf("message %d: the result of call %q does not follow the message that made the call", i, m.CallID)
		default:
			return nil, fmt.Errorf("message %d: role is %q, must be %q, %q or %q", i, m.Role, RoleUser, RoleAssistant, RoleTool)
		}
	}
	return steps, nil
}

// match finds the result of each call: one, no more.
func match(calls []Call, results []Message) ([]*Message, error) {
	byID := make(map[string]*Message, len(results))
	for i := range results {
		m := &results[i]
		if byID[m.CallID] != nil {
			return nil, fmt.Errorf("call %q has two results", m.CallID)
		}
		byID[m.CallID] = m
	}
	ordered := make([]*Message, 0, len(calls))
	for _, c := range calls {
		m := byID[c.ID]
		if m == nil {
			return nil, fmt.Errorf("call %q of tool %q has no result", c.ID, c.Name)
		}
		if err := checkImages(m); err != nil {
			return nil, fmt.Errorf("result of call %q: %w", c.ID, err)
		}
		ordered = append(ordered, m)
		delete(byID, c.ID)
	}
	for id := range byID {
		return nil, fmt.Errorf("there is a result of call %q, which the message before it does not make", id)
	}
	return ordered, nil
}

func checkParts(m *Message) error {
	if err := checkImages(m); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if p.Image != nil || !isBlank(p.Text) {
			return nil
		}
	}
	return errors.New("a user's message has neither text nor image")
}

func checkImages(m *Message) error {
	for _, p := range m.Parts {
		switch {
		case p.Image == nil:
		case p.Image.URL == "" && len(p.Image.Data) == 0:
			return errors.New("an image has neither data nor URL")
		case p.Image.URL == "" && p.Image.MediaType == "":
			return errors.New("an image has no media type")
		}
	}
	return nil
}
