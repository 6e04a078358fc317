package schema_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pgexec/runtime/internal/pgtest"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

func encode(t testing.TB, rec *pb.Record) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func jsonPayload(s string) *pb.Payload {
	return &pb.Payload{Value: &pb.Payload_Json{Json: []byte(s)}}
}

// Microseconds of 2026-03-14T15:09:26.535897Z.
const piDay = 1773500966535897

var decodeGolden = []struct {
	name   string
	record *pb.Record
	want   string
}{
	{"node", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: "turn-2", Kind: "turn", Parents: []string{"a", "ü\"b"}, Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED,
		Output: jsonPayload(`{"text": "hé", "n": [1, 2.50]}`),
		Spawned: []*pb.NodeSpec{
			{Id: "t-1", Kind: "tool", Input: jsonPayload(`{"$ref": "a#"}`), InputRefs: true},
			{Id: "j", Kind: "join", Parents: []string{"t-1", "turn-2"}, Join: pb.Join_JOIN_ALL_DONE, Retry: &pb.RetryPolicy{MaxAttempts: 3, MinBackoffUs: 1000, MaxBackoffUs: 60_000_000}, AtMostOnce: pb.UnknownOutcome_UNKNOWN_OUTCOME_ASK},
		},
		Final: true, Attempt: 2, StartedUs: piDay, FinishedUs: piDay + 1_000_000,
		Usage: &pb.Usage{InputTokens: 1200, OutputTokens: 34, CostNanoUsd: 5_600_000_000_000}, ReplicaId: 2147483647,
	}}}, `{"node": {"id": "turn-2", "kind": "turn", "parents": ["a", "ü\"b"], "status": "succeeded",
		"output": {"text": "hé", "n": [1, 2.50]},
		"spawned": [{"id": "t-1", "kind": "tool", "input": {"$ref": "a#"}, "input_refs": true},
			{"id": "j", "kind": "join", "parents": ["t-1", "turn-2"], "join": "all_done",
				"retry": {"max_attempts": 3, "min_backoff_us": 1000, "max_backoff_us": 60000000}, "at_most_once": "ask"}],
		"final": true, "attempt": 2, "started_at": "2026-03-14T15:09:26.535897Z", "finished_at": "2026-03-14T15:09:27.535897Z",
		"usage": {"input_tokens": 1200, "output_tokens": 34, "cost_nano_usd": 5600000000000}, "replica_id": 2147483647}}`},
	{"failed node", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: "x", Status: pb.NodeStatus_NODE_STATUS_FAILED,
		Error: &pb.Error{Message: "no route to \"h\"", Code: "panic", Stack: "goroutine 1\n\tmain.go:1", Permanent: true},
	}}}, `{"node": {"id": "x", "status": "failed", "error": {"message": "no route to \"h\"", "code": "panic", "stack": "goroutine 1\n\tmain.go:1", "permanent": true}}}`},
	{"node that waited", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "w", SignalId: 12, ChildRunId: "c"}}}, `{"node": {"id": "w", "signal_id": 12, "child_run_id": "c"}}`},
	{"outcome unknown", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Status: pb.NodeStatus_NODE_STATUS_OUTCOME_UNKNOWN}}}, `{"node": {"status": "outcome_unknown"}}`},
	{"cancelled", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Status: pb.NodeStatus_NODE_STATUS_CANCELLED}}}, `{"node": {"status": "cancelled"}}`},
	{"status of a later version", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Status: 77}}}, `{"node": {"status": 77}}`},
	{"blob", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: &pb.Payload{Value: &pb.Payload_Blob{Blob: &pb.Blob{
		Url: "file:///b", Size: 1 << 40, Sha256: []byte{0xde, 0xad, 0}, MediaType: "image/png",
	}}}}}}, `{"node": {"output": {"$blob": {"url": "file:///b", "size": 1099511627776, "sha256": "dead00", "media_type": "image/png"}}}}`},
	{"message", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: &pb.Payload{Value: &pb.Payload_Message{Message: &pb.TypedMessage{
		TypeName: "a.B", Value: bytes.Repeat([]byte{1, 2, 0xff}, 30),
	}}}}}}, `{"node": {"output": {"type_name": "a.B", "value": "` + strings.Repeat("AQL/", 30) + `"}}}`},
	{"empty payload", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: &pb.Payload{}}}}, `{"node": {"output": null}}`},
	{"payload of null", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: jsonPayload("null")}}}, `{"node": {"output": null}}`},
	{
		"claim", &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: 7, Epoch: 3, AtUs: piDay, Host: "h", DeadReplicaId: 6}}},
		`{"claim": {"replica_id": 7, "epoch": 3, "at": "2026-03-14T15:09:26.535897Z", "host": "h", "dead_replica_id": 6}}`,
	},
	{"attempt failed", &pb.Record{Body: &pb.Record_AttemptFailed{AttemptFailed: &pb.AttemptFailed{
		NodeId: "n", Attempt: 1, Error: &pb.Error{Message: "m"}, NotBeforeUs: piDay, StartedUs: piDay, FinishedUs: piDay, ReplicaId: 9,
	}}}, `{"attempt_failed": {"node_id": "n", "attempt": 1, "error": {"message": "m"}, "not_before": "2026-03-14T15:09:26.535897Z",
		"started_at": "2026-03-14T15:09:26.535897Z", "finished_at": "2026-03-14T15:09:26.535897Z", "replica_id": 9}}`},
	{
		"started", &pb.Record{Body: &pb.Record_Started{Started: &pb.Started{NodeId: "n", Attempt: 1, AtUs: piDay, ReplicaId: 9}}},
		`{"started": {"node_id": "n", "attempt": 1, "at": "2026-03-14T15:09:26.535897Z", "replica_id": 9}}`,
	},
	{
		"control", &pb.Record{Body: &pb.Record_Control{Control: &pb.Control{Kind: pb.ControlKind_CONTROL_KIND_RETRIED, Reason: "r", AtUs: piDay, NodeIds: []string{"a", "b"}}}},
		`{"control": {"kind": "retried", "reason": "r", "at": "2026-03-14T15:09:26.535897Z", "node_ids": ["a", "b"]}}`,
	},
	{
		"finished", &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: pb.RunStatus_RUN_STATUS_FAILED, ResultSeq: 4, Error: &pb.Error{Message: "m"}, ErrorNodeId: "n", AtUs: piDay}}},
		`{"finished": {"status": "failed", "result_seq": 4, "error": {"message": "m"}, "error_node_id": "n", "at": "2026-03-14T15:09:26.535897Z"}}`,
	},
	{"no body", &pb.Record{}, `{}`},
	{
		"negative numbers", &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: -1, Epoch: -9223372036854775808, AtUs: -1}}},
		`{"claim": {"replica_id": -1, "epoch": -9223372036854775808, "at": "1969-12-31T23:59:59.999999Z"}}`,
	},
	{
		"times out of range", &pb.Record{Body: &pb.Record_AttemptFailed{AttemptFailed: &pb.AttemptFailed{StartedUs: -9223372036854775808, FinishedUs: 9223372036854775807}}},
		`{"attempt_failed": {"started_at": null, "finished_at": null}}`,
	},
	// C29: what jsonb cannot hold is replaced where it is, the rest is as it was.
	{
		"U+0000 in the output", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Output: jsonPayload(`{"a": "x\u0000y", "b": "\\u0000", "c": 1.50}`)}}},
		`{"node": {"id": "n", "output": {"a": "x�y", "b": "\\u0000", "c": 1.50}}}`,
	},
	{
		"lone surrogate in an input", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Spawned: []*pb.NodeSpec{{Id: "s", Input: jsonPayload(`"\ud800"`)}}, Output: jsonPayload(`{"k": 1}`)}}},
		`{"node": {"id": "n", "output": {"k": 1}, "spawned": [{"id": "s", "input": "�"}]}}`,
	},
	{"U+0000 in an error", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "a\x00b", Error: &pb.Error{Message: "x\x00y"}}}}, `{"node": {"id": "a�b", "error": {"message": "x�y"}}}`},
	{"bytes that are not UTF-8", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: jsonPayload("\"\xff\x00\"")}}}, `{"node": {"output": "��"}}`},
	{"number out of range", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: jsonPayload(`[1e999999]`)}}}, `{"node": {"output": ["1e999999"]}}`},
	{"no JSON", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: jsonPayload(`hello`)}}}, `{"node": {"output": "hello"}}`},
	{"no JSON that would fit in", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Output: jsonPayload(`1, "id": "other"`)}}}, `{"node": {"id": "n", "output": "1, \"id\": \"other\""}}`},
	{"no bytes", &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Output: jsonPayload(``)}}}, `{"node": {"output": ""}}`},
}

func TestDecode_EveryMessage(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, tc := range decodeGolden {
		checkDecode(t, pool, tc.name, encode(t, tc.record), tc.want)
	}
}

func checkDecode(t *testing.T, pool *pgxpool.Pool, name string, record []byte, want string) {
	t.Helper()
	var same bool
	var got string
	if err := pool.QueryRow(t.Context(), "select j = $2::jsonb, left(j::text, 6000) from pgexec.decode($1) j", record, want).Scan(&same, &got); err != nil || !same {
		t.Errorf("%s: %s, %v, want %s", name, got, err, want)
	}
}

// Whatever field is added to the record format, this fails until a migration lets decode show it.
func TestDecode_EveryFieldOfTheFormat(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	bodies := (&pb.Record{}).ProtoReflect().Descriptor().Fields()
	for round := range 20 {
		for i := range bodies.Len() {
			rec := &pb.Record{}
			m := rec.ProtoReflect()
			fill(m.Mutable(bodies.Get(i)).Message(), round)
			want, err := json.Marshal(render(m))
			if err != nil {
				t.Fatal(err)
			}
			checkDecode(t, pool, string(bodies.Get(i).Name()), encode(t, rec), string(want))
		}
	}
}

// fill sets every field to a random value, of a oneof the one whose turn it is.
func fill(m protoreflect.Message, turn int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if one := f.ContainingOneof(); one != nil && turn%one.Fields().Len() != f.Index() {
			continue
		}
		switch {
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			for range 1 + rand.N(3) {
				fill(m.Mutable(f).List().AppendMutable().Message(), turn)
			}
		case f.IsList():
			for range 1 + rand.N(3) {
				m.Mutable(f).List().Append(value(f))
			}
		case f.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(f).Message(), turn)
		default:
			m.Set(f, value(f))
		}
	}
}

func value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(1 + rand.N(f.Enum().Values().Len()-1)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rand.Int32() | 1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rand.Uint32() | 1)
	case protoreflect.Int64Kind:
		if timeNames[string(f.Name())] != "" {
			return protoreflect.ValueOfInt64(1 + rand.Int64N(4e15))
		}
		return protoreflect.ValueOfInt64(rand.Int64()>>rand.N(60) | 1)
	case protoreflect.BytesKind:
		if f.Name() == "json" {
			return protoreflect.ValueOfBytes(fmt.Appendf(nil, `{"n": %d}`, rand.Int()))
		}
		return protoreflect.ValueOfBytes([]byte{byte(rand.N(256)), byte(rand.N(256))})
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s \"\\ü %d", f.Name(), rand.N(1000)))
	default:
		panic("no value for " + f.FullName())
	}
}

// timeNames are what decode calls the moments of the format. (Other fields in microseconds are durations.)
var timeNames = map[string]string{"at_us": "at", "not_before_us": "not_before", "started_us": "started_at", "finished_us": "finished_at"}

// render is what decode has to show of a message.
func render(m protoreflect.Message) any {
	shown := map[string]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsList():
			var list []any
			for i := range v.List().Len() {
				list = append(list, renderValue(f, v.List().Get(i)))
			}
			shown[name] = list
		case timeNames[name] != "":
			shown[timeNames[name]] = time.UnixMicro(v.Int()).UTC().Format("2006-01-02T15:04:05.000000Z")
		default:
			shown[name] = renderValue(f, v)
		}
		return true
	})
	if m.Descriptor().Name() == "Payload" {
		for name, v := range shown {
			if name == "blob" {
				return map[string]any{"$blob": v}
			}
			return v
		}
	}
	return shown
}

func renderValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.Kind() == protoreflect.MessageKind:
		return render(v.Message())
	case f.Kind() == protoreflect.EnumKind:
		word := string(f.Enum().Values().ByNumber(v.Enum()).Name())
		for _, prefix := range []string{"NODE_STATUS_", "CONTROL_KIND_", "RUN_STATUS_", "JOIN_", "UNKNOWN_OUTCOME_"} {
			word = strings.TrimPrefix(word, prefix)
		}
		return strings.ToLower(word)
	case f.Name() == "json":
		return json.RawMessage(v.Bytes())
	case f.Name() == "sha256":
		return hex.EncodeToString(v.Bytes())
	case f.Kind() == protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	default:
		return v.Interface()
	}
}

// G9, seen from an older build: fields and bodies that a later one adds are passed over.
func TestDecode_SkipsUnknownFields(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	var unknown []byte
	unknown = protowire.AppendVarint(protowire.AppendTag(unknown, 100, protowire.VarintType), 1<<63)
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 1<<28, protowire.BytesType), []byte("\xff\x00{"))
	unknown = protowire.AppendFixed32(protowire.AppendTag(unknown, 55, protowire.Fixed32Type), 7)
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 56, protowire.Fixed64Type), 7)
	inner := protowire.AppendString(protowire.AppendTag(protowire.AppendTag(nil, 2, protowire.StartGroupType), 1, protowire.BytesType), "x")
	inner = protowire.AppendTag(inner, 2, protowire.EndGroupType)
	unknown = protowire.AppendGroup(protowire.AppendTag(unknown, 57, protowire.StartGroupType), 57, inner)
	node := &pb.Node{Id: "n", Spawned: []*pb.NodeSpec{{Id: "s"}, {Id: "t"}}, Error: &pb.Error{Message: "m"}}
	node.ProtoReflect().SetUnknown(unknown)
	node.Error.ProtoReflect().SetUnknown(unknown)
	node.Spawned[0].ProtoReflect().SetUnknown(unknown)
	rec := &pb.Record{Body: &pb.Record_Node{Node: node}}
	rec.ProtoReflect().SetUnknown(unknown)
	const want = `{"node": {"id": "n", "spawned": [{"id": "s"}, {"id": "t"}], "error": {"message": "m"}}}`
	b := encode(t, rec)
	checkDecode(t, pool, "unknown at the end", b, want)
	checkDecode(t, pool, "unknown first", append(bytes.Clone(unknown), b...), want)
	checkDecode(t, pool, "unknown only", unknown, `{}`)
	// Another type of a known number is unknown, too.
	checkDecode(t, pool, "other type", protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5), `{}`)
	// Elements of a repeated field need not stand together.
	var split []byte
	for i, id := range []string{"a", "b", "c"} {
		split = protowire.AppendString(protowire.AppendTag(split, 3, protowire.BytesType), id)
		split = protowire.AppendVarint(protowire.AppendTag(split, 9, protowire.VarintType), uint64(i+1))
	}
	checkDecode(t, pool, "split list", protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), split), `{"node": {"parents": ["a", "b", "c"], "attempt": 3}}`)
}

func TestDecode_ADamagedRecordSaysSo(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	var records [][]byte
	for _, tc := range decodeGolden {
		whole := encode(t, tc.record)
		for n := 1; n < len(whole); n++ {
			records = append(records, whole[:n])
		}
	}
	for _, s := range []string{
		"\x00", "\x08", "\x0b", "\x0c", "\x0b\x13\x14", "\x0f", "\x0d\x01\x02\x03", "\x09\x01", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\x05ab",
		"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff\xff\xff\xff\xff\x01", "\x0a\x02\x0a\x05abcde",
	} {
		records = append(records, []byte(s))
	}
	for i, got := range column[string](t, pool, "select pgexec.decode(r)::text from unnest($1::bytea[]) with ordinality x (r, n) order by n", records) {
		if !strings.HasPrefix(got, `{"corrupt": "`) {
			t.Errorf("%x is shown as %s", records[i], got)
		}
	}
}

// Any bytes are shown, and those that are a record are not called damaged.
func TestDecode_NeverAnError(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	var records [][]byte
	for range 3000 {
		random := make([]byte, rand.N(60))
		for i := range random {
			random[i] = byte(rand.N(256))
		}
		records = append(records, random)
		bent := encode(t, decodeGolden[rand.N(len(decodeGolden))].record)
		for range 1 + rand.N(3) {
			if len(bent) > 0 {
				bent[rand.N(len(bent))] = byte(rand.N(256))
			}
		}
		records = append(records, bent)
	}
	for i, got := range column[string](t, pool, "select pgexec.decode(r)::text from unnest($1::bytea[]) with ordinality x (r, n) order by n", records) {
		if proto.Unmarshal(records[i], &pb.Record{}) == nil && strings.HasPrefix(got, `{"corrupt`) {
			t.Errorf("%x is a record, shown as %s", records[i], got)
		}
	}
	if !one[bool](t, pool, "select pgexec.decode(null) is null") {
		t.Error("null is not null")
	}
}

// A payload nested nearly as deep as jsonb allows, and one nested deeper, are both shown.
func TestDecode_DeepPayload(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	fits := func(n int) bool {
		return one[bool](t, pool, "select jsonb_typeof(pgexec.json_lossy($1)) = 'array'", []byte(nested(n)))
	}
	low, high := 100, 100000
	for high-low > 1 {
		if mid := (low + high) / 2; fits(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	for _, n := range []int{low - 40, low - 3, low - 2, low - 1, low, low + 1, high + 40, 200000} {
		rec := encode(t, &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Output: jsonPayload(nested(n))}}})
		if !one[bool](t, pool, "select d #>> '{node,id}' = 'n' and replace(d #>> '{node,output}', ' ', '') = $2 from pgexec.decode($1) d", rec, nested(n)) {
			t.Errorf("a payload nested %d deep is not shown; jsonb allows %d", n, low)
		}
	}
}

// The cost grows with the record: what a node of very many successors leaves is shown as well.
func TestDecode_TenThousandSuccessors(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	node := &pb.Node{Id: "n"}
	for i := range 10000 {
		id := fmt.Sprintf("spawned-%d", i)
		node.Parents = append(node.Parents, id)
		node.Spawned = append(node.Spawned, &pb.NodeSpec{Id: id, Kind: "http", Parents: []string{"n"}, Input: jsonPayload(`{"url": "http://localhost"}`)})
	}
	rec := encode(t, &pb.Record{Body: &pb.Record_Node{Node: node}})
	start := time.Now()
	const sql = `select concat_ws(' ', jsonb_array_length(d #> '{node,spawned}'), jsonb_array_length(d #> '{node,parents}'), d #>> '{node,spawned,9999,id}') from pgexec.decode($1) d`
	if got, want := one[string](t, pool, sql, rec), "10000 10000 spawned-9999"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %s", took)
	} else {
		t.Logf("%d bytes in %s", len(rec), took)
	}
}

// node600 is a record of about 600 bytes, such as a model's turn leaves.
func node600(i int) *pb.Record {
	return &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{
		Id: fmt.Sprintf("turn-%d", i), Kind: "turn", Parents: []string{fmt.Sprintf("tool-%d", i)}, Status: pb.NodeStatus_NODE_STATUS_SUCCEEDED,
		Output:  jsonPayload(`{"role": "assistant", "content": "` + strings.Repeat("lorem ip", 45) + `", "tool_calls": [{"id": "call_1", "name": "search", "arguments": {"q": "x"}}]}`),
		Spawned: []*pb.NodeSpec{{Id: fmt.Sprintf("tool-%d", i+1), Kind: "http", Input: jsonPayload(`{"url": "http://localhost/x"}`)}},
		Attempt: 1, StartedUs: piDay, FinishedUs: piDay + 1_500_000, ReplicaId: 12345678,
		Usage: &pb.Usage{InputTokens: 1000, OutputTokens: 200, CostNanoUsd: 1_500_000},
	}}}
}

func BenchmarkDecode(b *testing.B) {
	pool := pgtest.DB(b)
	rec := encode(b, node600(1))
	b.SetBytes(int64(len(rec)))
	b.ResetTimer()
	one[int](b, pool, "select count(pgexec.decode($1 || substring(''::bytea from n))) from generate_series(1, $2::integer) n", rec, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
