package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/target"
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// BenchmarkRehydrate rebuilds a run of 5,000 records of 600 bytes, a chain, from its log: fetched, decoded and applied to the
// graph, against merely fetching its rows with the same statement. All take turns. x_fetch, which is against rows that are kept as
// the graph keeps them, should be at most 1.5; x_scan is against rows that are dropped one by one.
func BenchmarkRehydrate(b *testing.B) {
	const n = 5000
	pool := database(b, flushes[0].settings)
	id := ownedRuns(b, pool, 1)[0]
	if _, err := pool.Exec(b.Context(), `insert into pgexec.run_log (run_id, seq, record)
		select $1, s, r from unnest($2::bytea[]) with ordinality u (r, s) on conflict (run_id, seq) do update set record = excluded.record`,
		id, chainLog(b, n, 600)); err != nil {
		b.Fatal(err)
	}
	var scan, fetch, rehydrate []time.Duration
	timed := func(times *[]time.Duration, read func(*testing.B, *pgxpool.Pool, runlog.RunID, int)) {
		start := time.Now()
		read(b, pool, id, n)
		*times = append(*times, time.Since(start))
	}
	for b.Loop() {
		timed(&scan, scanRows)
		timed(&fetch, fetchRows)
		timed(&rehydrate, rebuild)
	}
	scanned, fetched, rehydrated := median(scan), median(fetch), median(rehydrate)
	b.ReportMetric(float64(scanned.Nanoseconds())/1e6, "scan_ms")
	b.ReportMetric(float64(fetched.Nanoseconds())/1e6, "fetch_ms")
	b.ReportMetric(float64(rehydrated.Nanoseconds())/1e6, "rehydrate_ms")
	b.ReportMetric(float64(rehydrated)/float64(scanned), "x_scan")
	b.ReportMetric(float64(rehydrated)/float64(fetched), "x_fetch")
	target.AtMost(b, "x_fetch", float64(rehydrated)/float64(fetched), 1.5)
	b.ReportMetric(0, "ns/op")
}

// chainLog is a claim, and a chain of nodes of which each spawns the next.
func chainLog(b *testing.B, n, size int) [][]byte {
	b.Helper()
	claim, err := runlog.Encode(&pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: int32(owner), Epoch: 1}}})
	if err != nil {
		b.Fatal(err)
	}
	records := [][]byte{claim}
	node := &pb.Node{Id: string(graph.RootID)}
	for len(records) < n {
		next := &pb.NodeSpec{Id: fmt.Sprintf("tool-%d", len(records)), Kind: "tool", Parents: []string{node.GetId()}}
		node.Spawned = []*pb.NodeSpec{next}
		records = append(records, recordOf(b, size, node))
		node = &pb.Node{Id: next.GetId(), Parents: next.GetParents()}
	}
	return records
}

func rebuild(b *testing.B, pool *pgxpool.Pool, id runlog.RunID, n int) {
	b.Helper()
	g := graph.New("tool", &pb.Payload{Value: &pb.Payload_Json{Json: []byte("null")}})
	g.Grow(n)
	err := runlog.Read(b.Context(), pool, id, 0, func(seq runlog.Seq, rec *pb.Record) error {
		_, err := g.Apply(int64(seq), rec)
		return err
	})
	if err != nil || g.Head() != int64(n) || len(g.Frontier()) != 1 {
		b.Fatalf("rebuilt up to %d, %d nodes ready: %v", g.Head(), len(g.Frontier()), err)
	}
}

func scanRows(b *testing.B, pool *pgxpool.Pool, id runlog.RunID, n int) {
	b.Helper()
	rows, err := pool.Query(b.Context(), sql.RunlogRead, id, int64(0))
	if err != nil {
		b.Fatal(err)
	}
	var seq int64
	var record []byte
	tag, err := pgx.ForEachRow(rows, []any{&seq, &record}, func() error { return nil })
	if err != nil || tag.RowsAffected() != int64(n) {
		b.Fatalf("%v: %v", tag, err)
	}
}

func fetchRows(b *testing.B, pool *pgxpool.Pool, id runlog.RunID, n int) {
	b.Helper()
	type row struct {
		Seq    int64
		Record []byte
	}
	rows, err := pool.Query(b.Context(), sql.RunlogRead, id, int64(0))
	if err != nil {
		b.Fatal(err)
	}
	records, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil || len(records) != n {
		b.Fatalf("%d records: %v", len(records), err)
	}
}
