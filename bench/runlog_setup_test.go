// Package bench measures what the design promises in figures. Each benchmark compares with a bare
// alternative in the same run, side by side, and reports the ratio: absolute figures depend on the machine.
package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgserver"
	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// flushes are the kinds of storage a benchmark runs on: none, this machine's disk, and a slow one, which is real and made longer by
// commit_delay, which the server only obeys with fsync on.
var flushes = []struct {
	name     string
	settings map[string]string
	// keeps what it is given, as the storage does that the targets of the log are for.
	keeps bool
}{
	{"flush=none", map[string]string{"fsync": "off"}, false},
	{"flush=disk", map[string]string{"fsync": "on"}, true},
	{"flush=1ms", map[string]string{"fsync": "on", "commit_delay": "1000", "commit_siblings": "0"}, true},
}

// bareLog is a table like the log with the same partitions, and nothing around it.
const bareLog = `
create table pgexec.bare_log (like pgexec.run_log including all) partition by range (run_id);
do $$
declare part record;
begin
  for part in
    select c.relname, pg_get_expr(c.relpartbound, c.oid) as bound
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pgexec.run_log'::regclass
  loop
    execute format('create table pgexec.%I partition of pgexec.bare_log %s', 'bare_' || part.relname, part.bound);
  end loop;
end
$$`

const (
	bareInsert = `insert into pgexec.bare_log (run_id, seq, record) values ($1, $2, $3)`
	owner      = runlog.ReplicaID(7)
	conns      = 16
)

// database is a server of the benchmark's own with one migrated database.
func database(b *testing.B, settings map[string]string) *pgxpool.Pool {
	b.Helper()
	server := pgtest.Server(b, pgserver.Config{Settings: settings})
	pool := pgtest.DBOn(b, server)
	if _, err := pool.Exec(b.Context(), bareLog); err != nil {
		b.Fatal(err)
	}
	return pool
}

// ownedRuns are runs that were just claimed, each with its claim record.
func ownedRuns(b *testing.B, pool *pgxpool.Pool, n int) []runlog.RunID {
	b.Helper()
	rows, err := pool.Query(b.Context(), `insert into pgexec.runs (kind) select 'k' from generate_series(1, $1) returning run_id`, n)
	if err != nil {
		b.Fatal(err)
	}
	var ids []runlog.RunID
	for rows.Next() {
		var id runlog.RunID
		if err := rows.Scan(&id); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	for _, statement := range []string{
		`update pgexec.runs set owner = $2, status = 'running', epoch = 1, wake_job = null where run_id = any ($1)`,
		`insert into pgexec.run_log (run_id, seq, record) select unnest($1::uuid[]), 1, int4send($2::int)`,
	} {
		if _, err := pool.Exec(b.Context(), statement, ids, owner); err != nil {
			b.Fatal(err)
		}
	}
	return ids
}

// recordOf is a node's record with a JSON output that makes it about size bytes.
func recordOf(b testing.TB, size int, node *pb.Node) []byte {
	b.Helper()
	output := []byte(`{"items": [`)
	for i := 0; len(output) < size-80; i++ {
		output = fmt.Appendf(output, `{"id": %d, "name": "item %x", "score": %d.%d},`, i*7919, i*104729, i%10, i*31%97)
	}
	output = append(bytes.TrimSuffix(output, []byte(",")), "]}"...)
	node.Kind, node.Status, node.Attempt, node.ReplicaId = "tool", pb.NodeStatus_NODE_STATUS_SUCCEEDED, 1, int32(owner)
	node.StartedUs, node.FinishedUs = 1_700_000_000_000_000, 1_700_000_000_500_000
	node.Output = &pb.Payload{Value: &pb.Payload_Json{Json: output}}
	data, err := runlog.Encode(&pb.Record{Body: &pb.Record_Node{Node: node}})
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// appendAndWait is one durable append.
func appendAndWait(ctx context.Context, t *runlog.Tail, record []byte) error {
	done := make(chan error, 1)
	t.Append(record, func(_ runlog.Seq, err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
