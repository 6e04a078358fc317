package wake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/runlog"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func (b *bundle) read(id runlog.RunID, consumed []int64, childNodes ...string) Inbox {
	b.t.Helper()
	logged := Logged{RunID: id}
	if consumed != nil {
		logged = b.logged(id)
		logged.Signals = consumed
	}
	in, err := ReadInbox(b.t.Context(), b.pool, logged, childNodes)
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

// C13, C38: signals are there in the order they were sent, addressed or not, until they are consumed.
func TestReadInbox_Signals(t *testing.T) {
	b := setup(t)
	id, other := b.insert(), b.insert()
	if in := b.read(id, nil); in.Seen != 0 || in.Wanted != "" || in.Signals != nil || in.Children != nil || in.Limits != (Limits{SoftLimit: 0.8}) {
		t.Errorf("of a new run: %+v", in)
	}
	b.exec(`select pgexec.signal($1, 'a', '{"n": 1}'), pgexec.signal($1, 'b', '[2]', 'node'), pgexec.signal($1, 'c'), pgexec.signal($2, 'd')`, id, other)
	in := b.read(id, nil)
	if in.Seen != 3 || len(in.Signals) != 3 {
		t.Fatalf("got %+v", in)
	}
	var got []string
	for _, s := range in.Signals {
		got = append(got, s.Name+" "+s.NodeID+" "+string(s.Payload))
	}
	if want := `a  {"n": 1}, b node [2], c  null`; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// Of its own signals it marks those that are consumed, and no other run's.
	theirs := b.read(other, nil).Signals[0].ID
	in = b.read(id, []int64{in.Signals[0].ID, in.Signals[2].ID, theirs})
	if len(in.Signals) != 1 || in.Signals[0].Name != "b" || in.Seen != 3 {
		t.Errorf("after two were consumed: %+v", in)
	}
	if in = b.read(id, nil); len(in.Signals) != 1 {
		t.Errorf("read once more: %+v", in)
	}
	if in = b.read(other, nil); len(in.Signals) != 1 {
		t.Errorf("of the other run: %+v", in)
	}
	if _, err := ReadInbox(t.Context(), b.pool, Logged{RunID: runlog.RunID{1}}, nil); !errors.Is(err, ErrNoRun) {
		t.Errorf("of no run: %v", err)
	}
}

// Somebody who has locked a signal's row, or the run's, does not make its owner wait.
func TestReadInbox_WaitsForNoLock(t *testing.T) {
	b := setup(t)
	id := b.insert()
	signal := get[int64](b, `select pgexec.signal($1, 'a')`, id)
	logged := b.logged(id)
	logged.Signals = []int64{signal}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, statement := range []string{`select from pgexec.signals for update`, `select from pgexec.runs for update`} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if in, err := ReadInbox(t.Context(), b.pool, logged, nil); err != nil || len(in.Signals) != 0 {
		t.Errorf("got %+v: %v", in, err)
	}
}

// Requests and limits come with their version.
func TestReadInbox_WantedAndLimits(t *testing.T) {
	b := setup(t)
	id := b.insert()
	b.exec(`update pgexec.runs set owner = 1, status = 'running', wake_job = null, max_tokens = 9223372036854775807, max_cost_usd = 1e30,
		max_nodes = 3, max_wall_ms = 4, deadline = '2030-01-01 00:00:00.000001Z', max_parallel = 6, soft_limit = 0.5`)
	b.exec(`select pgexec.pause($1, 'lunch')`, id)
	in := b.read(id, nil)
	want := Inbox{
		Seen: 1, Wanted: "pause", WantedReason: "lunch",
		Limits: Limits{
			MaxTokens: 1<<63 - 1, MaxCostNanoUSD: 1<<63 - 1, MaxNodes: 3, MaxWallMs: 4,
			DeadlineUs: 1_893_456_000_000_001, MaxParallel: 6, SoftLimit: 0.5,
		},
	}
	if in.Seen != want.Seen || in.Wanted != want.Wanted || in.WantedReason != want.WantedReason || in.Limits != want.Limits {
		t.Errorf("got %+v, want %+v", in, want)
	}
	b.exec(`update pgexec.runs set max_cost_usd = 0.0000000001`)
	if got := b.read(id, nil).Limits.MaxCostNanoUSD; got != 1 {
		t.Errorf("a limit below a billionth of a dollar is %d: it must not be none", got)
	}
}

// C39: the ends of child runs come with their exact results, those of the asked nodes only.
func TestReadInbox_Children(t *testing.T) {
	b := setup(t)
	parent := b.ownMany(1)[0]
	b.own(parent)
	end := func(node, status, message string, seq int, output *pb.Payload) runlog.RunID {
		p := child(parent, node)
		b.startChild(p)
		b.exec(`insert into pgexec.run_log values ($1, 5, $2)`, p.ChildID,
			encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "root", Output: output}}}))
		b.exec(`update pgexec.runs set status = $2, error = nullif($3, ''), result = '1', result_seq = nullif($4, 0), wake_job = null,
			input_tokens = 1, output_tokens = 2, cost_usd = 0.000000003, nodes_done = 4 where run_id = $1`, p.ChildID, status, message, seq)
		return p.ChildID
	}
	const exact = ` { "a" : 1.0, "b": "\ud800\u0000" } `
	good := end("good", "succeeded", "", 5, &pb.Payload{Value: &pb.Payload_Json{Json: []byte(exact)}})
	bad := end("bad", "failed", "it broke", 0, nil)
	end("other", "succeeded", "", 5, nil)
	b.startChild(child(parent, "live"))
	in := b.read(parent, nil, "good", "bad", "live", "none")
	if len(in.Children) != 2 || in.Seen != 0 {
		t.Fatalf("got %+v", in)
	}
	for _, c := range in.Children {
		if c.InputTokens != 1 || c.OutputTokens != 2 || c.CostNanoUSD != 3 || c.Nodes != 4 {
			t.Errorf("usage of %+v", c)
		}
		switch c.NodeID {
		case "good":
			if c.RunID != good || c.Status != "succeeded" || string(c.Output.GetJson()) != exact || c.Error != "" {
				t.Errorf("got %+v, result %q", c, c.Output.GetJson())
			}
		case "bad":
			if c.RunID != bad || c.Status != "failed" || string(c.Output.GetJson()) != "null" || c.Error != "it broke" {
				t.Errorf("got %+v", c)
			}
		}
	}
	b.exec(`update pgexec.run_log set record = '\xff'`)
	if _, err := ReadInbox(t.Context(), b.pool, Logged{RunID: parent}, []string{"good"}); err == nil || !strings.Contains(err.Error(), good.String()) {
		t.Errorf("with a damaged record: %v", err)
	}
}

// However much others have sent, one look returns a bounded part of it, and what somebody waits for is found all the same.
func TestReadInbox_IsBounded(t *testing.T) {
	b := setup(t)
	id := b.insert()
	b.exec(`insert into pgexec.signals (run_id, name, payload) select $1, 'noise', to_jsonb(repeat('x', 60000)) from generate_series(1, $2)`, id, MaxSignals)
	b.exec(`select pgexec.signal($1, 'go', '1', 'other'), pgexec.signal($1, 'go', '2'), pgexec.signal($1, 'go', '3', 'it'), pgexec.signal($1, 'approval', '4'), pgexec.signal($1, 'approval', '5', 'ask')`, id)
	in := b.read(id, nil)
	size := 0
	for i, s := range in.Signals {
		if size += len(s.Payload); s.Payload == nil && i == 0 {
			t.Error("the first payload is not read")
		}
	}
	if len(in.Signals) != MaxSignals || !in.MoreSignals || size > maxLookBytes {
		t.Errorf("%d signals with %d bytes, more: %v", len(in.Signals), size, in.MoreSignals)
	}
	find := func(waits ...SignalWait) string {
		t.Helper()
		found, err := FindSignals(t.Context(), b.pool, id, waits)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range found {
			if s.SentUs == 0 {
				t.Errorf("%+v has no time", s)
			}
			got = append(got, s.Name+" "+string(s.Payload))
		}
		return strings.Join(got, ", ")
	}
	since := get[int64](b, `select (extract(epoch from max(created_at)) * 1000000)::bigint from pgexec.signals where run_id = $1`, id)
	for want, waits := range map[string][]SignalWait{
		`go 2, go 3`:             {{Name: "go", NodeID: "it"}},
		`go 3`:                   {{Name: "go", NodeID: "it", Addressed: true}},
		`go 2`:                   {{Name: "go", NodeID: "third", SinceUs: since}},
		``:                       {{Name: "go", NodeID: "it", SinceUs: since + 1}},
		`go 2, go 3, approval 5`: {{Name: "approval", NodeID: "ask", Addressed: true}, {Name: "go", NodeID: "it"}, {Name: "go", NodeID: "third"}},
	} {
		if got := find(waits...); got != want {
			t.Errorf("%+v find %q, want %q", waits, got, want)
		}
	}
	in.Signals, _ = FindSignals(t.Context(), b.pool, id, []SignalWait{{Name: "noise"}})
	if len(in.Signals) != MaxSignals || in.Signals[0].Payload == nil || in.Signals[MaxSignals-1].Payload != nil {
		t.Errorf("%d signals, or all payloads at once", len(in.Signals))
	}
}

// The results of many large child runs come with several looks.
func TestReadInbox_ChildrenAreBounded(t *testing.T) {
	b := setup(t)
	parent := b.ownMany(1)[0]
	b.own(parent)
	var waiting []string
	for i := range 5 {
		p := child(parent, fmt.Sprint("n", i))
		waiting = append(waiting, p.ParentNodeID)
		b.startChild(p)
		b.exec(`insert into pgexec.run_log values ($1, 5, $2)`, p.ChildID,
			encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "root", Output: &pb.Payload{Value: &pb.Payload_Json{Json: make([]byte, 700_000)}}}}}))
		b.exec(`update pgexec.runs set status = 'succeeded', result_seq = 5, wake_job = null where run_id = $1`, p.ChildID)
	}
	for _, want := range []int{2, 2, 1} {
		in := b.read(parent, nil, waiting...)
		if len(in.Children) != want || in.MoreChildren != (want == 2) {
			t.Fatalf("%d ended, more: %v; want %d", len(in.Children), in.MoreChildren, want)
		}
		for _, c := range in.Children {
			waiting = slices.DeleteFunc(waiting, func(n string) bool { return n == c.NodeID })
		}
	}
	if len(waiting) != 0 {
		t.Errorf("%v were never read", waiting)
	}
}
