package runlog_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// C31: an append to a log of 10,000 records reads what one to a log of 10 does, by the server's own count.
func TestAppend_CostsTheSameAtAnyLength_C31(t *testing.T) {
	b := setup(t)
	short, long := b.newRun(), b.newRun()
	b.claim(b.pool, short, 1)
	b.claim(b.pool, long, 1)
	fill := `insert into pgexec.run_log (run_id, seq, record) select $1, generate_series(2, $2), repeat('r', 600)::bytea`
	b.exec(fill, short, 10)
	b.exec(fill, long, 10_000)
	b.exec(`vacuum analyze pgexec.run_log`)
	conn, err := pgx.ConnectConfig(b.ctx, b.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(b.ctx)
	for _, step := range []string{sql.RunlogSetup, `prepare s as ` + sql.RunlogAppendOne} {
		if _, err := conn.Exec(b.ctx, step, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	pages := func(run fmt.Stringer, head int) int {
		var text []byte
		// The second of two, so that the session has its plans.
		for range 2 {
			statement := fmt.Sprintf(`explain (analyze, buffers, format json) execute s('%s', %d, 'r', 1, 1)`, run, head)
			head++
			if err := conn.QueryRow(b.ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
				t.Fatal(err)
			}
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(text, &plans); err != nil {
			t.Fatal(err)
		}
		return plans[0].Plan.Hit + plans[0].Plan.Read
	}
	few, many := pages(short, 10), pages(long, 10_000)
	if n := value[int](b, `select count(*)::int from pgexec.run_log`); n != 12+10_002 {
		t.Errorf("%d records, want %d", n, 12+10_002)
	}
	t.Logf("%d and %d pages", few, many)
	if few == 0 || many*10 > few*12 {
		t.Errorf("an append reads %d pages in a log of 10,000 records and %d in one of 10", many, few)
	}
}
