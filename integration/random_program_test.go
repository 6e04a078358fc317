package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/executor"
)

// program is a random run as data, together with what is done to it from
// outside. Its nodes find out about it step by step; the model reads it as a whole.
type program struct {
	Number int `json:"number"`
	// Limits of the run; 0 for none. Reaching one pauses it, and it is resumed with more.
	MaxNodes    int      `json:"max_nodes,omitempty"`
	MaxTokens   int      `json:"max_tokens,omitempty"`
	MaxParallel int      `json:"max_parallel,omitempty"`
	Root        *step    `json:"root"`
	Actions     []action `json:"actions,omitempty"`
}

// step is the input of a node that does something.
type step struct {
	Program int    `json:"program"`
	Salt    uint32 `json:"salt"`
	// Do says how the node ends: well, or as one of the constants says.
	Do string `json:"do,omitempty"`
	// Fails is how many attempts of a flaky node fail.
	Fails   int  `json:"fails,omitempty"`
	TakesMs int  `json:"takes_ms,omitempty"`
	Tokens  int  `json:"tokens,omitempty"`
	Final   bool `json:"final,omitempty"`
	// Writes: it leaves a row in the transaction of its record.
	Writes bool `json:"writes,omitempty"`
	// Spawns are the nodes that this one discovers.
	Spawns []spawn `json:"spawns,omitempty"`
}

// spends is the input tokens, output tokens and billionths of a dollar of an attempt that works.
func (s *step) spends() [3]int64 {
	return [3]int64{int64(s.Tokens), 1, 1000 * int64(s.Tokens)}
}

// How a step ends that does not just succeed.
const (
	// flaky fails some attempts; with too few attempts it fails for good.
	flaky = "flaky"
	// broken fails for good until the fault is repaired.
	broken = "broken"
	// hopeless fails for good.
	hopeless = "hopeless"
)

// spawn describes one successor.
type spawn struct {
	ID string `json:"id"`
	// Kind is step, rare (a step that not all replicas can run), or one of the built-in ones.
	Kind string `json:"kind"`
	// After is empty for the spawning node alone.
	After   []string `json:"after,omitempty"`
	AllDone bool     `json:"all_done,omitempty"`
	// Attempts is the node's own policy; 0 leaves it to the kind.
	Attempts int `json:"attempts,omitempty"`
	// Once has the node run at most once: what becomes of it if it was in flight at a crash.
	Once pgexec.UnknownOutcome `json:"once,omitempty"`

	Step    *step `json:"step,omitempty"`
	SleepMs int   `json:"sleep_ms,omitempty"`
	Wait    *wait `json:"wait,omitempty"`
	// Child is the first node of a child run, ChildNodes its limit of nodes.
	Child      *step `json:"child,omitempty"`
	ChildNodes int   `json:"child_nodes,omitempty"`
}

// wait is a node that waits for a signal.
type wait struct {
	Name      string  `json:"name"`
	TimeoutMs int     `json:"timeout_ms,omitempty"` // 0: for ever
	Default   *uint32 `json:"default,omitempty"`
}

// action is done to a run from outside, at a time after the program's start.
type action struct {
	AtMs int `json:"at_ms"`
	// Do is signal, cancel or pause.
	Do string `json:"do"`
	// Run leads to the run from the program's root: the nodes whose executions are the runs on the way.
	Run     []string `json:"run,omitempty"`
	Node    string   `json:"node,omitempty"` // to which a signal is addressed
	Name    string   `json:"name,omitempty"`
	Payload uint32   `json:"payload,omitempty"`
	// RunAgain: the signal settles an unknown outcome in that way.
	RunAgain bool `json:"run_again,omitempty"`
	Times    int  `json:"times,omitempty"` // how often the signal is sent, under one dedupe key
}

const (
	maxNesting = 3
	// outcomeName is that of signals that settle the outcome of a node in doubt.
	outcomeName = executor.SignalOutcome
	// addressedName is that of signals addressed to a node, sharedName that of those for any wait of the run.
	addressedName, sharedName = "approval", "go"
	// kindAttempts is the policy of the kinds themselves.
	kindAttempts = 3
	// writeAttempts is that of nodes that write: an attempt fails when its connection is cut.
	writeAttempts = 100
)

// author writes a random program.
type author struct {
	rng    *rand.Rand
	p      *program
	budget int // nodes that may still be added
	// Of the run that is being written:
	path    []string
	lastID  int
	hasDone bool // a node is marked as final
}

// newProgram returns a program that depends on seed and number alone.
func newProgram(seed uint64, number int) *program {
	a := &author{rng: rand.New(rand.NewPCG(seed, uint64(number))), p: &program{Number: number}}
	a.budget = 1 + a.rng.IntN(12)
	if a.chance(0.1) {
		a.budget += 20
	}
	a.p.Root = a.run(nil)
	if a.chance(0.1) {
		a.p.MaxNodes = 1 + a.rng.IntN(5)
	}
	if a.chance(0.07) {
		a.p.MaxTokens = 1 + a.rng.IntN(60)
	}
	if a.chance(0.1) {
		a.p.MaxParallel = 1 + a.rng.IntN(2)
	}
	if a.chance(0.08) {
		a.act(action{Do: "cancel"})
	}
	if a.chance(0.1) {
		a.act(action{Do: "pause"})
	}
	slices.SortStableFunc(a.p.Actions, func(x, y action) int { return x.AtMs - y.AtMs })
	return a.p
}

func (a *author) chance(p float64) bool { return a.rng.Float64() < p }

// act adds an action on the run that is being written, at a random time.
func (a *author) act(do action) {
	do.Run = slices.Clone(a.path)
	do.AtMs = a.rng.IntN(1500)
	a.p.Actions = append(a.p.Actions, do)
}

// run writes a run and returns its first node.
func (a *author) run(path []string) *step {
	outer := *a
	a.path, a.lastID, a.hasDone = path, 0, false
	s := a.step(string(pgexec.RootID), nil)
	a.path, a.lastID, a.hasDone = outer.path, outer.lastID, outer.hasDone
	return s
}

// step writes the node with that id and those it spawns; known are the other nodes it can name as parents.
func (a *author) step(id string, known []string) *step {
	s := &step{Program: a.p.Number, Salt: a.rng.Uint32()}
	a.fate(s)
	if a.chance(0.3) {
		s.TakesMs = 1 + a.rng.IntN(30)
	}
	if a.chance(0.5) {
		s.Tokens = a.rng.IntN(20)
	}
	if !a.hasDone && a.chance(0.1) {
		s.Final, a.hasDone = true, true
	}
	if a.budget > 0 && (id == string(pgexec.RootID) || a.chance(0.5)) {
		s.Spawns = a.spawns(id, known)
	}
	return s
}

func (a *author) fate(s *step) {
	switch r := a.rng.Float64(); {
	case r < 0.10:
		s.Do, s.Fails = flaky, 1+a.rng.IntN(2)
	case r < 0.12:
		s.Do, s.Fails = flaky, 10
	case r < 0.16:
		s.Do = broken
	case r < 0.18:
		s.Do = hopeless
	}
}

// spawns writes what one node discovers: some nodes after it, after each other
// or after others that are known, and often one that joins them.
func (a *author) spawns(by string, known []string) []spawn {
	n := min(1+a.rng.IntN(4), a.budget)
	if a.chance(0.05) {
		n = a.budget
	}
	a.budget -= n
	var list []spawn
	var ids []string
	for range n {
		sp := a.spawn(a.newID(), by, append(slices.Clone(known), ids...))
		list, ids = append(list, sp), append(ids, sp.ID)
	}
	if n > 1 && a.chance(0.5) {
		join := spawn{ID: a.newID(), Kind: "step", After: slices.Clone(ids), AllDone: a.chance(0.7)}
		list, ids = append(list, join), append(ids, join.ID)
	}
	known = append(append(slices.Clone(known), by), ids...)
	for i := range list {
		a.fill(&list[i], known)
	}
	if a.chance(0.3) { // parents may come later in the list
		a.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return list
}

func (a *author) newID() string {
	a.lastID++
	return fmt.Sprintf("n%d", a.lastID)
}

// spawn chooses kind and parents.
func (a *author) spawn(id, by string, known []string) spawn {
	sp := spawn{ID: id, AllDone: a.chance(0.2)}
	if len(known) > 0 && a.chance(0.5) {
		for range 1 + a.rng.IntN(3) {
			if parent := known[a.rng.IntN(len(known))]; !slices.Contains(sp.After, parent) {
				sp.After = append(sp.After, parent)
			}
		}
		if a.chance(0.2) && !slices.Contains(sp.After, by) {
			sp.After = append(sp.After, by)
		}
	}
	switch r := a.rng.Float64(); {
	case r < 0.10:
		sp.Kind = pgexec.KindSleep
	case r < 0.28:
		sp.Kind = pgexec.KindSignal
	case r < 0.42 && len(a.path) < maxNesting:
		sp.Kind = pgexec.KindRun
	case r < 0.47:
		sp.Kind = "rare"
	default:
		sp.Kind = "step"
	}
	return sp
}

// fill writes what the node of a spawn does; known are the nodes it can name as parents.
func (a *author) fill(sp *spawn, known []string) {
	switch sp.Kind {
	case pgexec.KindSleep:
		sp.SleepMs = a.rng.IntN(400)
	case pgexec.KindSignal:
		a.fillWait(sp)
	case pgexec.KindRun:
		sp.Child = a.run(append(slices.Clone(a.path), sp.ID))
		if a.chance(0.1) {
			sp.ChildNodes = 1 + a.rng.IntN(3)
		}
		outside := &author{rng: a.rng, p: a.p, path: append(slices.Clone(a.path), sp.ID)}
		if a.chance(0.06) {
			outside.act(action{Do: "cancel"})
		}
		if a.chance(0.06) {
			outside.act(action{Do: "pause"})
		}
	default:
		if a.chance(0.2) {
			sp.Attempts = 1 + a.rng.IntN(4)
		}
		sp.Step = a.step(sp.ID, slices.DeleteFunc(slices.Clone(known), func(id string) bool { return id == sp.ID }))
		switch {
		case sp.Step.Do != "":
		case a.chance(0.1):
			sp.Step.Writes, sp.Attempts = true, writeAttempts
		case a.chance(0.2):
			a.once(sp)
		}
	}
}

// once has a step run at most once. Some are asked for; some answers are there before the question, and more than one
// in case the node is in doubt again. The last is given until the run has ended.
func (a *author) once(sp *spawn) {
	sp.Once = []pgexec.UnknownOutcome{pgexec.UnknownFails, pgexec.UnknownAsks, pgexec.UnknownRunsAgain}[a.rng.IntN(3)]
	sp.Attempts = writeAttempts
	sp.Step.TakesMs += a.rng.IntN(80)
	if sp.Once != pgexec.UnknownAsks {
		return
	}
	for range a.rng.IntN(3) {
		a.act(action{Do: "signal", Name: outcomeName, Node: sp.ID, Payload: a.rng.Uint32(), Times: 1, RunAgain: true})
	}
	a.act(action{Do: "signal", Name: outcomeName, Node: sp.ID, Payload: a.rng.Uint32(), Times: 1})
}

// fillWait writes a wait and the signal that ends it. There are as many signals for any wait of a run as
// there are such waits, so that none lacks one; one with a timeout and an address may get none.
func (a *author) fillWait(sp *spawn) {
	sp.Wait = &wait{Name: sharedName}
	signal := action{Do: "signal", Name: sharedName, Payload: a.rng.Uint32(), Times: 1}
	if a.chance(0.5) {
		sp.Wait.Name, signal.Name, signal.Node = addressedName, addressedName, sp.ID
	}
	if a.chance(0.3) {
		signal.Times = 2
	}
	if a.chance(0.4) {
		sp.Wait.TimeoutMs = 1 + a.rng.IntN(600)
		if a.chance(0.6) {
			v := a.rng.Uint32()
			sp.Wait.Default = &v
		}
		if signal.Node != "" && a.chance(0.3) {
			return
		}
	} else if a.chance(0.1) {
		sp.Wait.TimeoutMs = 3_600_000
	}
	a.act(signal)
	if a.chance(0.2) {
		a.p.Actions[len(a.p.Actions)-1].AtMs = -1 // with the start
	}
}

// input is what the node of a spawn gets.
func (sp *spawn) input() any {
	switch sp.Kind {
	case pgexec.KindSleep:
		return pgexec.SleepInput{For: fmt.Sprintf("%dms", sp.SleepMs)}
	case pgexec.KindSignal:
		in := pgexec.SignalInput{Name: sp.Wait.Name}
		if sp.Wait.TimeoutMs > 0 {
			in.Timeout = fmt.Sprintf("%dms", sp.Wait.TimeoutMs)
		}
		if sp.Wait.Default != nil {
			in.Default = json.RawMessage(fmt.Sprint(*sp.Wait.Default))
		}
		return in
	case pgexec.KindRun:
		return pgexec.RunInput{Kind: "step", Input: sp.Child, MaxNodes: int64(sp.ChildNodes)}
	default:
		return sp.Step
	}
}

// payload is that of a signal, as jsonb prints it.
func (a action) payload() json.RawMessage {
	switch {
	case a.RunAgain:
		return json.RawMessage(`{"run_again": true}`)
	case a.Name == outcomeName:
		return json.RawMessage(fmt.Sprintf(`{"output": %d}`, a.Payload))
	default:
		return json.RawMessage(fmt.Sprint(a.Payload))
	}
}

// runAt returns the id of the run at the end of a path of run nodes from root.
func runAt(root pgexec.RunID, path []string) pgexec.RunID {
	for _, node := range path {
		root = executor.ChildID(root, pgexec.NodeID(node))
	}
	return root
}

// eachRun calls f for every run of the program, with the path to it and its first node.
func (p *program) eachRun(f func(path []string, first *step)) { p.Root.eachRun(nil, f) }

func (s *step) eachRun(path []string, f func(path []string, first *step)) {
	f(path, s)
	s.each(func(sp *spawn) {
		if sp.Child != nil {
			sp.Child.eachRun(append(slices.Clone(path), sp.ID), f)
		}
	})
}

// each calls f for every node of the run that this step and those it spawns can add.
func (s *step) each(f func(*spawn)) {
	for i := range s.Spawns {
		f(&s.Spawns[i])
		if next := s.Spawns[i].Step; next != nil {
			next.each(f)
		}
	}
}

// repairable reports that some node fails until its fault is repaired.
func (p *program) repairable() bool {
	found := false
	p.eachRun(func(_ []string, first *step) {
		found = found || first.Do == broken
		first.each(func(sp *spawn) { found = found || sp.Step != nil && sp.Step.Do == broken })
	})
	return found
}
