package demo

import (
	"fmt"
	"time"

	"github.com/pgexec/runtime/pgexec"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// fate is what has become of a replica.
type fate int

const (
	fateServing fate = iota
	fateKilled
	fateDraining
	fateDrained
)

// actor is a replica as the story shows it.
type actor struct {
	name     string
	pid      int
	id       int32
	fate     fate
	fateAt   time.Duration // since the story began
	stopped  time.Time     // when it got its signal, by the database's clock
	recorded int
}

// progress is how far a run has come.
type progress struct {
	name        string
	done, total int
	owners      []*actor
	status      pb.RunStatus
}

func (p *progress) owner() *actor {
	if len(p.owners) == 0 {
		return nil
	}
	return p.owners[len(p.owners)-1]
}

func (p *progress) ended() bool { return p.status != pb.RunStatus_RUN_STATUS_UNSPECIFIED }

// story is what has happened so far. It learns of runs from their logs alone.
type story struct {
	began       time.Time
	actors      []*actor
	runs        []*progress
	byID        map[pgexec.RunID]*progress
	done, total int
}

func newStory(actors []*actor) *story {
	return &story{actors: actors, byID: make(map[pgexec.RunID]*progress)}
}

func (s *story) add(id pgexec.RunID, p plan) {
	run := &progress{name: p.name, total: p.nodes}
	s.runs = append(s.runs, run)
	s.byID[id] = run
	s.total += p.nodes
}

func (s *story) elapsed() time.Duration { return time.Since(s.began) }

// actor returns the replica with that id; one nobody knows is shown as such.
func (s *story) actor(id int32) *actor {
	for _, a := range s.actors {
		if a.id == id {
			return a
		}
	}
	a := &actor{name: "?", id: id}
	s.actors = append(s.actors, a)
	return a
}

// apply takes in a record of a run's log, and returns what is worth a line.
func (s *story) apply(id pgexec.RunID, rec *pb.Record) string {
	run := s.byID[id]
	switch body := rec.GetBody().(type) {
	case *pb.Record_Claim:
		return run.claimed(s.actor(body.Claim.GetReplicaId()), body.Claim)
	case *pb.Record_Node:
		run.done++
		s.done++
		s.actor(body.Node.GetReplicaId()).recorded++
		if body.Node.GetStatus() != pb.NodeStatus_NODE_STATUS_SUCCEEDED {
			return fmt.Sprintf("%s: node %s failed: %s", run.name, body.Node.GetId(), body.Node.GetError().GetMessage())
		}
	case *pb.Record_AttemptFailed:
		f := body.AttemptFailed
		return fmt.Sprintf("%s: node %s is tried again: %s", run.name, f.GetNodeId(), f.GetError().GetMessage())
	case *pb.Record_Finished:
		run.status = body.Finished.GetStatus()
		if run.status != pb.RunStatus_RUN_STATUS_SUCCEEDED {
			return fmt.Sprintf("%s did not succeed: %s", run.name, body.Finished.GetError().GetMessage())
		}
		return fmt.Sprintf("%s succeeded: %d nodes", run.name, run.done)
	}
	return ""
}

func (p *progress) claimed(by *actor, claim *pb.Claim) string {
	former := p.owner()
	p.owners = append(p.owners, by)
	if former == nil || former == by {
		return "" // it was parked in between
	}
	switch {
	case claim.GetDeadReplicaId() == 0:
		return fmt.Sprintf("%s goes on with %s, let go by %s", by.name, p.name, former.name)
	case former.fate != fateKilled:
		return fmt.Sprintf("%s goes on with %s, lost by %s", by.name, p.name, former.name)
	}
	after := time.UnixMicro(claim.GetAtUs()).Sub(former.stopped).Round(time.Millisecond)
	return fmt.Sprintf("%s goes on with %s, %d ms after the death of %s", by.name, p.name, after.Milliseconds(), former.name)
}

// owns counts the unfinished runs whose last owner this is.
func (s *story) owns(a *actor) int {
	n := 0
	for _, run := range s.runs {
		if run.owner() == a && !run.ended() {
			n++
		}
	}
	return n
}

// busiest returns the serving replica with the most runs.
func (s *story) busiest() *actor {
	var best *actor
	for _, a := range s.actors {
		if a.fate == fateServing && (best == nil || s.owns(a) > s.owns(best)) {
			best = a
		}
	}
	return best
}

func (s *story) with(f fate) *actor {
	for _, a := range s.actors {
		if a.fate == f {
			return a
		}
	}
	return nil
}

// passed reports whether that share of all nodes is recorded.
func (s *story) passed(share float64) bool { return float64(s.done) >= share*float64(s.total) }

// over reports whether all runs have ended and the drain has, too.
func (s *story) over() bool {
	for _, run := range s.runs {
		if !run.ended() {
			return false
		}
	}
	return s.with(fateDrained) != nil
}

// narration says what is going on, in a sentence or two.
func (s *story) narration() string {
	killed, draining, drained := s.with(fateKilled), s.with(fateDraining), s.with(fateDrained)
	switch {
	case s.over():
		return "All runs have ended."
	case drained != nil:
		return fmt.Sprintf("%s has ended by itself, with nothing lost and nothing repeated. The last replica finishes the rest.", drained.name)
	case draining != nil:
		return fmt.Sprintf("Now %s got SIGTERM, as in a deploy: it takes nothing new, finishes the nodes in flight, "+
			"and hands each run over once its own are recorded.", draining.name)
	case killed != nil:
		return fmt.Sprintf("Replica %s got kill -9 in the middle of its work. The lock it held in Postgres went with it: "+
			"the others take its runs and go on from the last record.", killed.name)
	default:
		return "Three replicas execute the runs. What a node returns is a row in Postgres the moment it ends; soon one of them will be killed."
	}
}
