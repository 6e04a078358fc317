package graph

import pb "github.com/pgexec/runtime/proto/pgexec/v1"

// times are those of the records, in microseconds since the Unix epoch.
type times struct {
	begun     bool  // there is a claim
	nowUs     int64 // of the record being applied
	claimedUs int64 // of the last claim
	lastUs    int64 // the latest since then
	formerUs  int64 // how long owners before the last claim were active
}

// claimed begins the time of another owner.
func (t *times) claimed() {
	t.formerUs += max(t.lastUs-t.claimedUs, 0)
	t.begun, t.claimedUs, t.lastUs = true, t.nowUs, t.nowUs
}

// ActiveUs returns for how many microseconds the run has been owned at the
// given time. What a former owner did after its last record is not known and not counted.
func (t *times) ActiveUs(nowUs int64) int64 {
	if !t.begun {
		return 0
	}
	return t.formerUs + max(nowUs-t.claimedUs, 0)
}

// timeOf returns when a record was made, in microseconds since the Unix epoch; 0 if it does not say.
func timeOf(rec *pb.Record) int64 {
	switch body := rec.GetBody().(type) {
	case *pb.Record_Node:
		return body.Node.GetFinishedUs()
	case *pb.Record_Claim:
		return body.Claim.GetAtUs()
	case *pb.Record_AttemptFailed:
		return body.AttemptFailed.GetFinishedUs()
	case *pb.Record_Started:
		return body.Started.GetAtUs()
	case *pb.Record_Control:
		return body.Control.GetAtUs()
	case *pb.Record_Finished:
		return body.Finished.GetAtUs()
	}
	return 0
}
