package pgexec

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/pgexec/runtime/pgexec/executor"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// erase turns a typed handler into the executor's form: the only place where
// types meet bytes.
func erase[In, Out any](h Handler[In, Out]) func(context.Context, *executor.Call) (*executor.Result, error) {
	return func(ctx context.Context, call *executor.Call) (*executor.Result, error) {
		var in In
		if err := decodeJSON(call.Input.GetJson(), &in); err != nil {
			return nil, Permanent(WithCode(fmt.Errorf("input of kind %q: %w", call.Node.Kind, err), "bad_input"))
		}
		n := &Node{call: call}
		out, err := h(ctx, n, in)
		if err != nil {
			return n.spent(), err
		}
		raw, err := encodeJSON(out)
		if err != nil {
			return n.spent(), Permanent(WithCode(fmt.Errorf("output of kind %q: %w", call.Node.Kind, err), "bad_output"))
		}
		return n.result(raw)
	}
}

// decodeJSON gives a copy of the bytes where dst asks for raw JSON: what is decoded is its owner's to change, as with
// [json.Unmarshal], and the bytes are the graph's. An absent payload is null.
func decodeJSON(raw []byte, dst any) error {
	if len(raw) == 0 {
		raw = []byte("null")
	}
	if r, ok := dst.(*json.RawMessage); ok {
		*r = bytes.Clone(raw)
		return nil
	}
	return json.Unmarshal(raw, dst)
}

// encodeJSON gives a copy of raw JSON, if it is JSON: the caller may use its buffer for something else while the graph still has
// the bytes. It marshals all else without escaping HTML.
func encodeJSON(v any) ([]byte, error) {
	if r, ok := v.(json.RawMessage); ok {
		if len(r) == 0 {
			return []byte("null"), nil
		}
		if !json.Valid(r) {
			return nil, fmt.Errorf("not valid JSON: %.80q", r)
		}
		return bytes.Clone(r), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func jsonPayload(raw []byte) *pb.Payload {
	return &pb.Payload{Value: &pb.Payload_Json{Json: raw}}
}
