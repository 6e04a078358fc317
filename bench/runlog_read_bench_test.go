package bench

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
	"github.com/pgexec/runtime/sql"
)

// BenchmarkRead is a log of 5,000 records of 600 bytes, read and decoded, against merely fetching its rows with
// the same statement. Both take turns. x_fetch should be at most 1.5.
func BenchmarkRead(b *testing.B) {
	const n = 5000
	pool := database(b, flushes[0].settings)
	id := ownedRuns(b, pool, 1)[0]
	record := recordOf(b, "node", 600)
	if _, err := pool.Exec(b.Context(), `insert into pgexec.run_log (run_id, seq, record)
		select $1, s, $2 from generate_series(2, $3::int) s`, id, record, n); err != nil {
		b.Fatal(err)
	}
	var fetch, read []time.Duration
	for b.Loop() {
		start := time.Now()
		fetchRows(b, pool, id, n)
		middle := time.Now()
		count := 0
		err := runlog.Read(b.Context(), pool, id, 1, func(runlog.Seq, *pb.Record) error { count++; return nil })
		if err != nil || count != n-1 {
			b.Fatalf("%d records: %v", count, err)
		}
		fetch = append(fetch, middle.Sub(start))
		read = append(read, time.Since(middle))
	}
	fetchMedian, readMedian := median(fetch), median(read)
	b.ReportMetric(float64(fetchMedian.Nanoseconds())/1e6, "fetch_ms")
	b.ReportMetric(float64(readMedian.Nanoseconds())/1e6, "read_ms")
	b.ReportMetric(float64(readMedian)/float64(fetchMedian), "x_fetch")
	b.ReportMetric(0, "ns/op")
}

func fetchRows(b *testing.B, pool *pgxpool.Pool, id runlog.RunID, n int) {
	b.Helper()
	rows, err := pool.Query(b.Context(), sql.RunlogRead, id, int64(1))
	if err != nil {
		b.Fatal(err)
	}
	var seq int64
	var record []byte
	tag, err := pgx.ForEachRow(rows, []any{&seq, &record}, func() error { return nil })
	if err != nil || tag.RowsAffected() != int64(n-1) {
		b.Fatalf("%v: %v", tag, err)
	}
}
