package pgexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pgexec/runtime/pgexec/executor"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/throttle"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// Kinds is a set of node kinds that a replica can run. It is filled with
// [AddKind] before it is given to [New] and not changed afterwards.
type Kinds struct {
	byName map[string]*executor.Kind
}

// NewKinds returns an empty set.
func NewKinds() *Kinds { return &Kinds{byName: make(map[string]*executor.Kind)} }

// Names returns the names of all kinds in the set, sorted.
func (k *Kinds) Names() []string { return slices.Sorted(maps.Keys(k.byName)) }

// KindOpts says how nodes of one kind are run. The zero value, or nil, takes all defaults.
type KindOpts struct {
	// Retry decides about attempts that end with an error. Lost replicas and
	// drains are not attempts.
	Retry RetryPolicy
	// Timeout bounds one attempt; its context then ends. Defaults to no bound.
	Timeout time.Duration
	// AtMostOnce has nodes of this kind run at most once, and says what becomes
	// of one that was in flight at a crash. Defaults to running it again.
	AtMostOnce UnknownOutcome
	// MaxParallel bounds the nodes of this kind in flight on one replica.
	// Defaults to no bound but the replica's own.
	MaxParallel int
	// FleetLimit bounds the nodes of this kind in the whole fleet. Defaults to no bound. A row of
	// pgexec.kind_limits for the kind replaces it.
	FleetLimit *FleetLimit
}

// FleetLimit bounds nodes of a kind on all replicas together. A node that may
// not start waits, without a goroutine; its run parks if nothing else is in
// flight, and is woken in its turn. Where replicas declare different limits for
// a kind, that of the one that started last holds for all of them.
type FleetLimit struct {
	// MaxInFlight bounds the nodes in flight at once, up to 10,000. Defaults to no bound.
	// A node in flight on a replica that dies or freezes counts until that replica is found dead.
	MaxInFlight int
	// Rate is how many nodes may start in each Per, after a Burst. Rate defaults to no bound, Per to one second,
	// Burst to 1. Starts within a tenth of a second are not told apart.
	Rate  int
	Per   time.Duration
	Burst int
	// KeyPointer is a JSON pointer into the node's input, such as "/tenant". The limits are then those
	// of each value found there. Defaults to one limit for the kind.
	KeyPointer string
}

func (l *FleetLimit) erase() (*throttle.Limit, error) {
	if l == nil {
		return nil, nil
	}
	limit := throttle.Limit{
		MaxInFlight: throttle.NoBound,
		Rate:        l.Rate,
		Per:         cmp.Or(l.Per, time.Second),
		Burst:       max(l.Burst, 1),
		KeyPointer:  l.KeyPointer,
	}
	if l.MaxInFlight > 0 {
		limit.MaxInFlight = l.MaxInFlight
	}
	switch {
	case l.MaxInFlight == 0 && l.Rate == 0:
		return nil, errors.New("FleetLimit has neither MaxInFlight nor Rate")
	case l.MaxInFlight < 0 || l.MaxInFlight > 10_000 || l.Rate < 0 || l.Rate > math.MaxInt32 || l.Burst < 0 || l.Burst > 1_000_000:
		return nil, fmt.Errorf("FleetLimit %+v is out of range", *l)
	case limit.Per < time.Millisecond || limit.Per > 31*24*time.Hour:
		return nil, fmt.Errorf("FleetLimit.Per is %v: it must be between a millisecond and 31 days", l.Per)
	}
	if _, err := graph.ParseRef("n#" + l.KeyPointer); err != nil {
		return nil, fmt.Errorf("FleetLimit.KeyPointer %q is no JSON pointer", l.KeyPointer)
	}
	return &limit, nil
}

// UnknownOutcome is the policy for a node that must not simply run again after
// a crash. Such a node leaves a mark in the log before its handler is called,
// which costs one more append. When a replica stopped between mark and record,
// whether the node took effect is not known.
type UnknownOutcome int

const (
	// RunAgain is no policy: the node runs at least once, without a mark.
	RunAgain UnknownOutcome = iota
	// UnknownFails: the node fails, with code "outcome_unknown". It never runs
	// twice, and an error of its handler is not retried either.
	UnknownFails
	// UnknownAsks: the node waits for a signal "outcome", addressed to it and sent after
	// the attempt began, with one of {"output": …}, {"error": "…"} or {"run_again": true}. It never runs
	// twice unless that says so, and an error of its handler is not retried either.
	UnknownAsks
	// UnknownRunsAgain: the node runs again, as another attempt, so that the
	// handler can tell by [Node.Attempt] that the one before may have taken effect.
	UnknownRunsAgain
)

// RetryPolicy says how often and when a failed node is tried again.
type RetryPolicy struct {
	// MaxAttempts counts the first attempt too; 1 means no retry. Defaults to 5.
	MaxAttempts int
	// The wait before a retry doubles from MinBackoff to MaxBackoff, half of it
	// random. They default to 500 ms and 1 minute.
	MinBackoff, MaxBackoff time.Duration
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 5
	}
	if p.MinBackoff == 0 {
		p.MinBackoff = 500 * time.Millisecond
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = max(time.Minute, p.MinBackoff)
	}
	return p
}

// Handler makes one attempt of one node: it reads the input and the outputs of
// the node's ancestors, does the work, names successors with [Node.Spawn], and
// returns the output.
//
// It is run at least once and recorded exactly once (G6): after a crash the
// same node may run again with the same [Node.IdempotencyKey]. When ctx ends it
// should return soon; [context.Cause] says why: [ErrDraining],
// [ErrOwnershipLost], or the kind's timeout. An error is retried by the kind's
// policy unless it is [Permanent]; a panic is an error with its stack.
//
// Input and output travel as JSON. A handler that takes or returns
// [encoding/json.RawMessage] gets and gives the bytes untouched.
type Handler[In, Out any] func(ctx context.Context, n *Node, in In) (Out, error)

// AddKind adds a kind. It panics if the name is empty, longer than 128 bytes, not valid UTF-8 or taken, if it has # or
// a control character, or if opts make no sense: these are mistakes in the program.
func AddKind[In, Out any](k *Kinds, name string, h Handler[In, Out], opts *KindOpts) {
	if opts == nil {
		opts = &KindOpts{}
	}
	retry := opts.Retry.withDefaults()
	limit, err := opts.FleetLimit.erase()
	switch {
	case graph.KindFault(name) != "":
		panic(fmt.Sprintf("pgexec: name of kind %q: %s", name, graph.KindFault(name)))
	case executor.IsWait(name):
		panic(fmt.Sprintf("pgexec: kind %q is built in", name))
	case k.byName[name] != nil:
		panic(fmt.Sprintf("pgexec: kind %q is added twice", name))
	case h == nil:
		panic(fmt.Sprintf("pgexec: kind %q has no handler", name))
	case retry.MaxAttempts < 1 || retry.MinBackoff < 0 || retry.MaxBackoff < retry.MinBackoff:
		panic(fmt.Sprintf("pgexec: kind %q: retry policy %+v makes no sense", name, retry))
	case opts.AtMostOnce < RunAgain || opts.AtMostOnce > UnknownRunsAgain:
		panic(fmt.Sprintf("pgexec: kind %q: AtMostOnce %d is not known", name, opts.AtMostOnce))
	case opts.Timeout < 0 || opts.MaxParallel < 0:
		panic(fmt.Sprintf("pgexec: kind %q: Timeout and MaxParallel must not be negative", name))
	case err != nil:
		panic(fmt.Sprintf("pgexec: kind %q: %v", name, err))
	}
	k.byName[name] = &executor.Kind{
		Name:        name,
		HandlerFunc: erase(h),
		Retry:       executor.RetryPolicy(retry),
		Timeout:     opts.Timeout,
		AtMostOnce:  pb.UnknownOutcome(opts.AtMostOnce),
		MaxParallel: opts.MaxParallel,
		Limit:       limit,
	}
}
