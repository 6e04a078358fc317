package blob

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
)

// What it costs to store a payload of 64 KiB before its record: one that is new, and one that is there.
func BenchmarkPut(b *testing.B) {
	for _, where := range []string{"db", "file"} {
		for _, fresh := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/new=%t", where, fresh), func(b *testing.B) {
				pool, cfg := pgtest.DB(b), Config{}
				if where == "file" {
					cfg.Write = "file://" + b.TempDir()
				}
				s := New(pool, cfg)
				defer s.Close()
				benchmarkPut(b, s, pool, fresh)
			})
		}
	}
}

func benchmarkPut(b *testing.B, s *Store, pool *pgxpool.Pool, fresh bool) {
	var run [16]byte
	if err := pool.QueryRow(b.Context(), `insert into pgexec.runs (kind) values ('bench') returning run_id`).Scan(&run); err != nil {
		b.Fatal(err)
	}
	data := random(64 << 10)
	b.SetBytes(int64(len(data)))
	for n := 0; b.Loop(); n++ {
		if fresh {
			copy(data, fmt.Sprint(n))
		}
		if _, err := s.Put(b.Context(), run, "application/octet-stream", data); err != nil {
			b.Fatal(err)
		}
	}
}
