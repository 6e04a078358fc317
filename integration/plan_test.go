package integration

import (
	"fmt"
	"hash/fnv"

	"github.com/pgexec/runtime/pgexec"
)

// plan is the graph of a run as pure data: what its handlers discover step by
// step, and what the test expects to find in its log.
type plan []plannedNode

// plannedNode is named by its place in the plan; node 0 is the run's first.
// The last node is the only leaf.
type plannedNode struct {
	spawner int
	parents []int
	allDone bool
}

// shapes have 30 nodes each.
var shapes = map[string]plan{"chain": chain(), "fan": fan(), "mesh": mesh()}

var shapeNames = []string{"chain", "fan", "mesh"}

// chain discovers one node after the other.
func chain() plan {
	p := plan{{}}
	for len(p) < 30 {
		p = p.then(len(p)-1, len(p)-1)
	}
	return p
}

// fan is two fan-outs of ten with their joins, and a chain behind them.
func fan() plan {
	p := plan{{}}
	for range 2 {
		hub := len(p) - 1
		var legs []int
		for range 10 {
			legs = append(legs, len(p))
			p = p.then(hub, hub)
		}
		p = p.then(hub, legs...)
		p[len(p)-1].allDone = hub == 0
	}
	for len(p) < 30 {
		p = p.then(len(p)-1, len(p)-1)
	}
	return p
}

// mesh is known as a whole from the first node on: seven layers of four nodes,
// each of which joins two nodes of the layer before.
func mesh() plan {
	p := plan{{}}
	layer := []int{0}
	for range 7 {
		var next []int
		for i := range 4 {
			next = append(next, len(p))
			if len(layer) == 1 {
				p = p.then(0, 0)
			} else {
				p = p.then(0, layer[i], layer[(i+1)%4])
			}
		}
		layer = next
	}
	return p.then(0, layer...)
}

func (p plan) then(spawner int, parents ...int) plan {
	return append(p, plannedNode{spawner: spawner, parents: parents})
}

func nodeID(i int) pgexec.NodeID {
	if i == 0 {
		return pgexec.RootID
	}
	return pgexec.NodeID(fmt.Sprintf("n%d", i))
}

// spawnedBy returns the nodes that node i discovers.
func (p plan) spawnedBy(i int) []int {
	var out []int
	for j := 1; j < len(p); j++ {
		if p[j].spawner == i {
			out = append(out, j)
		}
	}
	return out
}

// outputs is the model: what each node of a run returns.
func (p plan) outputs(seed int64) []uint32 {
	out := make([]uint32, len(p))
	for i, n := range p {
		var in []uint32
		for _, parent := range n.parents {
			in = append(in, out[parent])
		}
		out[i] = output(seed, i, in)
	}
	return out
}

// output is what node i returns for its parents' outputs.
func output(seed int64, i int, parents []uint32) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, seed, i, parents)
	return h.Sum32()
}

// parentIDs names the parents of node i in order.
func (p plan) parentIDs(i int) []string {
	var ids []string
	for _, parent := range p[i].parents {
		ids = append(ids, string(nodeID(parent)))
	}
	return ids
}

// index finds a node by its id, or returns -1.
func (p plan) index(id string) int {
	for i := range p {
		if string(nodeID(i)) == id {
			return i
		}
	}
	return -1
}
