package pgexec

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// NodesOf returns the nodes of another run that are done, as its log has them
// now. What a handler makes of them is its own: that run knows nothing of it. It
// returns [ErrRunNotFound] if there is no such run.
func (n *Node) NodesOf(ctx context.Context, pool *pgxpool.Pool, id RunID) (map[NodeID]*Ancestor, error) {
	run, err := (&Client{pool: pool}).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	g := graph.New(run.Kind, jsonPayload(run.Input))
	ids := []NodeID{RootID}
	err = runlog.Read(ctx, pool, id, 0, func(seq runlog.Seq, rec *pb.Record) error {
		for _, spec := range rec.GetNode().GetSpawned() {
			ids = append(ids, NodeID(spec.GetId()))
		}
		_, err := g.Apply(int64(seq), rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	found := make(map[NodeID]*Ancestor, len(ids))
	for _, id := range ids {
		if node := g.Node(id); node != nil && node.Status().Done() {
			found[id] = &Ancestor{node: node, call: n.call}
		}
	}
	return found, nil
}
