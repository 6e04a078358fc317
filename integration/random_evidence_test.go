package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/pgexec/runtime/pgexec"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// evidence is all that is left of the random programs.
type evidence struct {
	rows       map[pgexec.RunID]runRow
	logs       map[pgexec.RunID][]logRecord
	signals    map[int64]signalRow
	executions map[pgexec.RunID]map[string][]execution // by node
	// effects are what the nodes of a run have written.
	effects map[pgexec.RunID]map[string][]string
	// consumed names the node that has consumed a signal, as the checks find it.
	consumed map[int64]string
	// unchecked are the runs that no check has come to yet.
	unchecked map[pgexec.RunID]bool
}

type runRow struct {
	parent      pgexec.RunID
	parentNode  string
	status      string
	epoch       int64
	result, err string
	spent       [3]int64 // input tokens, output tokens, cost
	nodes       int64
}

type logRecord struct {
	seq int64
	rec *pb.Record
}

type signalRow struct {
	run        pgexec.RunID
	name, node string
	payload    string
}

type execution struct {
	host string
	atUs int64
}

func collect(ctx context.Context, t *testing.T, pool *pgxpool.Pool, shop workshop) *evidence {
	t.Helper()
	e := &evidence{
		rows: make(map[pgexec.RunID]runRow), logs: make(map[pgexec.RunID][]logRecord), signals: make(map[int64]signalRow),
		executions: make(map[pgexec.RunID]map[string][]execution), consumed: make(map[int64]string), unchecked: make(map[pgexec.RunID]bool),
		effects: make(map[pgexec.RunID]map[string][]string),
	}
	e.readRows(ctx, t, pool)
	e.readLogs(ctx, t, pool)
	e.readSignals(ctx, t, pool)
	e.readEffects(ctx, t, pool)
	e.readExecutions(t, shop)
	return e
}

func (e *evidence) readRows(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var id pgexec.RunID
	var parent *pgexec.RunID
	var r runRow
	each(ctx, t, pool, `select run_id, parent_run_id, coalesce(parent_node_id, ''), status, epoch, coalesce(result::text, 'null'), coalesce(error, ''),
			input_tokens, output_tokens, (cost_usd * 1000000000)::bigint, nodes_done from pgexec.runs`,
		[]any{&id, &parent, &r.parentNode, &r.status, &r.epoch, &r.result, &r.err, &r.spent[0], &r.spent[1], &r.spent[2], &r.nodes},
		func() error {
			r.parent = pgexec.RunID{}
			if parent != nil {
				r.parent = *parent
			}
			e.rows[id], e.unchecked[id] = r, true
			return nil
		})
}

func (e *evidence) readLogs(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var id pgexec.RunID
	var seq int64
	var raw []byte
	each(ctx, t, pool, `select run_id, seq, record from pgexec.run_log order by run_id, seq`, []any{&id, &seq, &raw}, func() error {
		rec := &pb.Record{}
		e.logs[id] = append(e.logs[id], logRecord{seq, rec})
		return proto.Unmarshal(raw, rec)
	})
}

func (e *evidence) readSignals(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var id int64
	var s signalRow
	each(ctx, t, pool, `select signal_id, run_id, name, coalesce(node_id, ''), payload::text from pgexec.signals`,
		[]any{&id, &s.run, &s.name, &s.node, &s.payload}, func() error {
			e.signals[id] = s
			return nil
		})
}

func (e *evidence) readEffects(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var id pgexec.RunID
	var node, output string
	each(ctx, t, pool, `select run_id, node_id, output::text from public.effects`, []any{&id, &node, &output}, func() error {
		if e.effects[id] == nil {
			e.effects[id] = make(map[string][]string)
		}
		e.effects[id][node] = append(e.effects[id][node], output)
		return nil
	})
}

func each(ctx context.Context, t *testing.T, pool *pgxpool.Pool, statement string, dest []any, f func() error) {
	t.Helper()
	rows, err := pool.Query(ctx, statement)
	if err == nil {
		_, err = pgx.ForEachRow(rows, dest, f)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (e *evidence) readExecutions(t *testing.T, shop workshop) {
	t.Helper()
	files, err := os.ReadDir(shop.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		f, err := os.Open(filepath.Join(shop.dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for scan := bufio.NewScanner(f); scan.Scan(); {
			e.addExecution(t, file.Name(), scan.Text())
		}
		f.Close()
	}
}

func (e *evidence) addExecution(t *testing.T, host, line string) {
	t.Helper()
	fields := strings.Fields(line)
	if len(fields) != 3 {
		t.Fatalf("replica %s noted %q", host, line)
	}
	id, err := pgexec.ParseRunID(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if e.executions[id] == nil {
		e.executions[id] = make(map[string][]execution)
	}
	e.executions[id][fields[1]] = append(e.executions[id][fields[1]], execution{host, at})
}

// describe prints a program with the rows and the logs of its runs as psql shows them.
func describe(ctx context.Context, pool *pgxpool.Pool, root pgexec.RunID, p *program) string {
	var b strings.Builder
	text, err := json.MarshalIndent(p, "", " ")
	fmt.Fprintf(&b, "program %d, root run %s: %s %v\n", p.Number, root, text, err)
	rows, err := pool.Query(ctx, `
		with recursive tree as (
			select run_id, 0 as level from pgexec.runs where run_id = $1
			union all
			select r.run_id, t.level + 1 from pgexec.runs r join tree t on r.parent_run_id = t.run_id
		)
		select concat_ws(' ', r.run_id, 'of', r.parent_node_id, r.status, 'owner', r.owner, 'epoch', r.epoch, 'inbox', r.inbox, 'wake', r.wake_job,
				'due', r.run_at, 'wanted', r.wanted, r.reason, r.error, r.waiting_kinds),
			array(select l.seq || ' ' || pgexec.decode(l.record) from pgexec.run_log l where l.run_id = r.run_id order by l.seq),
			array(select to_jsonb(s)::text from pgexec.signals s where s.run_id = r.run_id order by s.signal_id)
		from tree t join pgexec.runs r using (run_id) order by t.level`, root)
	if err != nil {
		return b.String() + err.Error()
	}
	var row string
	var log, signals []string
	_, err = pgx.ForEachRow(rows, []any{&row, &log, &signals}, func() error {
		fmt.Fprintf(&b, "%s\n\t%s\n\t%s\n", row, strings.Join(log, "\n\t"), strings.Join(signals, "\n\t"))
		return nil
	})
	if err != nil {
		b.WriteString(err.Error())
	}
	return b.String()
}
