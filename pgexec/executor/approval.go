package executor

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pgexec/runtime/pgexec/wake"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// SignalApproval is the name of the signal that settles an approval; it is
// addressed to the node, so that the answer to one never reaches another (C38).
const SignalApproval = "approval"

// approvalInput is the input of an approval node: what a person is asked, and
// the arguments that are to be approved.
type approvalInput struct {
	About   json.RawMessage `json:"about"`
	Args    json.RawMessage `json:"args"`
	Timeout *duration       `json:"timeout"`
}

func (w *wait) prepareApproval(input []byte) error {
	var in approvalInput
	if err := strict(input, &in); err != nil {
		return err
	}
	w.args = orNull(in.Args)
	w.signal = signalInput{About: in.About, Name: SignalApproval, Timeout: in.Timeout}
	w.boundSignal()
	return nil
}

// approvalSignal is the payload of the signal that settles an approval.
type approvalSignal struct {
	Approve *bool           `json:"approve"`
	Args    json.RawMessage `json:"args"`
	Reason  string          `json:"reason"`
}

// approvalOutput is what was approved: the arguments asked for, or edited ones.
type approvalOutput struct {
	Args json.RawMessage `json:"args"`
}

// settleApproval does what a person decided.
func (r *Run) settleApproval(w *wait, s wake.Signal) {
	var answer approvalSignal
	err := strict(s.Payload, &answer)
	end := &pb.Node{SignalId: s.ID}
	switch {
	case err != nil || answer.Approve == nil || *answer.Approve && answer.Reason != "" || !*answer.Approve && answer.Args != nil:
		r.failWaitAs(w, end, &Failure{
			Err:  fmt.Errorf(`signal %q holds %.200s; want {"approve": true}, with "args" to replace them, or {"approve": false, "reason": "…"}`, SignalApproval, s.Payload),
			Code: "bad_approval",
		})
	case !*answer.Approve:
		rejected := errors.New("rejected")
		if answer.Reason != "" {
			rejected = fmt.Errorf("rejected: %s", answer.Reason)
		}
		r.failWaitAs(w, end, &Failure{Err: rejected, Code: "rejected"})
	default:
		args := w.args
		if answer.Args != nil {
			args = answer.Args
		}
		r.approve(w, end, args)
	}
}

func (r *Run) approve(w *wait, end *pb.Node, args json.RawMessage) {
	output, err := json.Marshal(approvalOutput{Args: args})
	if err != nil {
		r.failWaitAs(w, end, &Failure{Err: err, Code: "bad_approval"})
		return
	}
	end.Output = &pb.Payload{Value: &pb.Payload_Json{Json: output}}
	r.endWait(w, end)
}
