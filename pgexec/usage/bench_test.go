package usage

import (
	"log/slog"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// BenchmarkReport is one report of a replica all of whose 1000 hot runs have spent something, beside a history of 100,000
// runs: it is made every two seconds. The bytes are those of the write-ahead log for each run.
func BenchmarkReport(b *testing.B) {
	const hot = 1000
	pool := pgtest.DB(b)
	pgtest.Exec(b, pool, `insert into pgexec.runs (kind, run_at) select 'k', 'infinity' from generate_series(1, 100000)`)
	ids := pgtest.Value[[]runlog.RunID](b, pool, `with owned as (
			update pgexec.runs set status = 'running', owner = 1, epoch = 1
			where run_id in (select run_id from pgexec.runs order by random() limit $1) returning run_id
		) select array_agg(run_id) from owned`, hot)
	pgtest.Exec(b, pool, `vacuum analyze pgexec.runs`)
	r := New(pool, 1, slog.New(slog.DiscardHandler))
	var meters []*Meter
	for _, id := range ids {
		meters = append(meters, r.Open(id, 1))
	}
	from := pgtest.Value[string](b, pool, `select pg_current_wal_insert_lsn()::text`)
	nodes := int64(0)
	for b.Loop() {
		nodes++
		for _, m := range meters {
			m.Set(spent(nodes))
		}
		r.report(b.Context(), reportTimeout)
	}
	written := pgtest.Value[float64](b, pool, `select (pg_current_wal_insert_lsn() - $1::pg_lsn)::float8`, from)
	b.ReportMetric(written/hot/float64(b.N), "WAL-B/run")
	got := pgtest.Value[float64](b, pool, `select n_tup_hot_upd / greatest(n_tup_upd, 1)::float8 from pg_stat_user_tables where relname = 'run_usage'`)
	b.ReportMetric(got, "HOT")
	b.ReportMetric(pgtest.Value[float64](b, pool, `select pg_table_size('pgexec.run_usage') / 1024.0`), "KiB")
}
