package runlog_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
)

func TestRunID_TextForm(t *testing.T) {
	t.Parallel()
	const text = "018f0c2e-7b3a-7cde-8f01-23456789abcd"
	id, err := runlog.ParseRunID(strings.ToUpper(text))
	if err != nil {
		t.Fatal(err)
	}
	if id.String() != text {
		t.Errorf("got %s, want %s", id, text)
	}
	data, err := json.Marshal(map[runlog.RunID]runlog.RunID{id: id})
	if err != nil || string(data) != `{"`+text+`":"`+text+`"}` {
		t.Errorf("got %s, %v", data, err)
	}
	var back map[runlog.RunID]runlog.RunID
	if err := json.Unmarshal(data, &back); err != nil || back[id] != id {
		t.Errorf("got %v, %v", back, err)
	}
	for _, bad := range []string{
		"", "x", text + "0", text[1:], strings.ReplaceAll(text, "-", ""), strings.Replace(text, "-", "0", 1),
		strings.Replace(text, "a", "g", 1), "{" + text[1:35] + "}",
	} {
		if got, err := runlog.ParseRunID(bad); err == nil || got != (runlog.RunID{}) {
			t.Errorf("%q was read as %s", bad, got)
		}
	}
}

// modes are the ways in which pgx executes a statement whose parameters it knows; all but the first work through
// poolers in transaction mode (C25).
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
}

func (b *bundle) poolInMode(mode pgx.QueryExecMode) *pgxpool.Pool {
	b.Helper()
	cfg := b.pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

func TestRunID_ParameterAndScanTarget(t *testing.T) {
	b := setup(t)
	ids := []runlog.RunID{b.newRun(), b.newRun(), {}}
	for _, mode := range append(modes, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol) {
		t.Run(mode.String(), func(t *testing.T) {
			pool := b.poolInMode(mode)
			for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
				var id runlog.RunID
				var text string
				err := pool.QueryRow(b.ctx, `select $1::uuid, $1::uuid::text`,
					pgx.QueryResultFormats{format, pgx.TextFormatCode}, ids[0]).Scan(&id, &text)
				if err != nil || id != ids[0] || text != ids[0].String() {
					t.Errorf("format %d: got %s, %q, %v, want %s", format, id, text, err, ids[0])
				}
				if !slices.Contains(modes, mode) {
					continue
				}
				var all []runlog.RunID
				err = pool.QueryRow(b.ctx, `select $1::uuid[]`, pgx.QueryResultFormats{format}, ids).Scan(&all)
				if err != nil || !slices.Equal(all, ids) {
					t.Errorf("format %d: got %v, %v, want %v", format, all, err, ids)
				}
			}
			var some *runlog.RunID
			if err := pool.QueryRow(b.ctx, `select null::uuid`).Scan(&some); err != nil || some != nil {
				t.Errorf("null: got %v, %v", some, err)
			}
			var id runlog.RunID
			if err := pool.QueryRow(b.ctx, `select null::uuid`).Scan(&id); err == nil {
				t.Error("null was read as a run id")
			}
		})
	}
}
