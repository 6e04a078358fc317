package graph

import (
	"math"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Usage is what the nodes of a run have spent so far, failed ones and failed attempts included.
type Usage struct {
	// Nodes counts the nodes that have ended with a record.
	Nodes                     int64
	InputTokens, OutputTokens int64
	// CostNanoUSD is in billionths of a US dollar.
	CostNanoUSD int64
	// Unpriced counts what was spent at a price that is not known.
	Unpriced int64
}

// Add counts what is spent besides.
func (u *Usage) Add(spent *pb.Usage) {
	*u = u.Plus(Usage{
		InputTokens:  spent.GetInputTokens(),
		OutputTokens: spent.GetOutputTokens(),
		CostNanoUSD:  spent.GetCostNanoUsd(),
		Unpriced:     spent.GetUnpriced(),
	})
}

// Plus returns the sum.
func (u *Usage) Plus(v Usage) Usage {
	return Usage{
		Nodes:        addSaturated(u.Nodes, v.Nodes),
		InputTokens:  addSaturated(u.InputTokens, v.InputTokens),
		OutputTokens: addSaturated(u.OutputTokens, v.OutputTokens),
		CostNanoUSD:  addSaturated(u.CostNanoUSD, v.CostNanoUSD),
		Unpriced:     addSaturated(u.Unpriced, v.Unpriced),
	}
}

// TakeBack undoes [Usage.Add].
func (u *Usage) TakeBack(spent *pb.Usage) {
	u.InputTokens = max(u.InputTokens-spent.GetInputTokens(), 0)
	u.OutputTokens = max(u.OutputTokens-spent.GetOutputTokens(), 0)
	u.CostNanoUSD = max(u.CostNanoUSD-spent.GetCostNanoUsd(), 0)
	u.Unpriced = max(u.Unpriced-spent.GetUnpriced(), 0)
}

// addSaturated adds two amounts that are not negative.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// spending counts what the run's nodes spend, each child run once.
type spending struct {
	usage Usage
	// ofChildren is what the child runs of failed nodes had spent: after a retry they say it again, with the rest.
	ofChildren map[*Node]*pb.Usage
}

func newSpending() spending { return spending{ofChildren: make(map[*Node]*pb.Usage)} }

// Usage returns what the run has spent.
func (s *spending) Usage() Usage { return s.usage }

// spend counts what the record that ended n says it spent.
func (s *spending) spend(n *Node, rec *pb.Node) {
	if before := s.ofChildren[n]; before != nil {
		s.usage.TakeBack(before)
		delete(s.ofChildren, n)
	}
	if rec.GetChildRunId() != "" && n.Status().Failed() {
		s.ofChildren[n] = rec.GetUsage()
	}
	s.usage.Nodes++
	s.usage.Add(rec.GetUsage())
}
