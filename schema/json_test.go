package schema_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pgexec/runtime/internal/pgtest"
)

// C29: what jsonb cannot hold is shown, never refused; what it can hold is exact.
func TestJSONLossy_ShowsWhatJSONBCannotHold(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	digits := strings.Repeat("7", 140000)
	deep := strings.Repeat("[", 100000) + strings.Repeat("]", 100000)
	for _, tc := range []struct{ name, in, want string }{
		{"object", `{"b": [1, 2.50, true, null], "a": "é☃😀"}`, `{"a": "é☃😀", "b": [1, 2.50, true, null]}`},
		{"big number that fits", `1e20000`, "1" + strings.Repeat("0", 20000)},
		{"pair", `"\ud83d\ude00 \uD83D\uDE00"`, `"😀 😀"`},
		{"escaped backslash before u0000", `"a\\u0000b"`, `"a\\u0000b"`},
		{"escaped backslash before ud800", `"\\ud800"`, `"\\ud800"`},
		{"u0000", `{"k\u0000": "a\u0000b"}`, `{"k�": "a�b"}`},
		{"both", `["\\u0000", "\u0000", "\\\u0000", "\\\\u0000"]`, `["\\u0000", "�", "\\�", "\\\\u0000"]`},
		{"lone high", `"\ud800"`, `"�"`},
		{"lone low", `"\uDC00x"`, `"�x"`},
		{"high high low low", `"\ud83d\ud83d\ude00\ude00"`, `"�😀�"`},
		{"high, escaped backslash, low", `"\ud83d\\\ude00\\ude00"`, `"�\\�\\ude00"`},
		{"byte outside of UTF-8", "\"a\xffb\"", `"a�b"`},
		{"cut character", "\"\xe2\x98\"", `"��"`},
		{"overlong", "\"\xc0\x80\"", `"��"`},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", `"���"`},
		{"raw NUL", "[\"a\x00b\", \"\\\\\"]", `["a�b", "\\"]`},
		{"too great", `[1e400000, -1.5E+400000, 2, "1e400000", "\"1e400000"]`, `["1e400000", "-1.5E+400000", 2, "1e400000", "\"1e400000"]`},
		{"too small", `{"1e-400000": 1e-400000}`, `{"1e-400000": "1e-400000"}`},
		{"too many digits", `[-` + digits + `, 12]`, `["-` + digits + `", 12]`},
		{"too many decimals", `[0.` + digits + `, 12]`, `["0.` + digits + `", 12]`},
		{"too great and U+0000", `[1e400000, "\u0000\\"]`, `["1e400000", "�\\"]`},
		{"too deep", deep, `"` + deep + `"`},
		{"no JSON", "plain \"text\"", `"plain \"text\""`},
		{"cut JSON", `{"a": "\u0000`, `"{\"a\": \"\\u0000"`},
		{"JSON and more", `{} {}`, `"{} {}"`},
		{"too great, and no JSON", `[1e400000, `, `"[1e400000, "`},
		{"too great, and a raw control character", "[1e400000, \"\x01\x01\"]", `"[1e400000, \"\u0001\u0001\"]"`},
		{"bytes", "\x00\xff\xfe", `"���"`},
		{"empty", "", `""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var same bool
			var got string
			err := pool.QueryRow(t.Context(), "select j = $2::jsonb, left(j::text, 300) from pgexec.json_lossy($1) j", []byte(tc.in), tc.want).Scan(&same, &got)
			if err != nil || !same {
				t.Errorf("shown as %s, %v", got, err)
			}
		})
	}
	if !one[bool](t, pool, "select pgexec.json_lossy(null) is null and pgexec.utf8_lossy(null) is null") {
		t.Error("null is not null")
	}
}

// The strings are those that another reader of the same JSON finds, with U+FFFD for U+0000.
func TestJSONLossy_StringsAsEncodingJSONReadsThem(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	pieces := []string{`\\`, `\"`, `\n`, `\u0000`, `u0000`, `\ud83d`, `\ude00`, `\uD800`, `ud800`, `\uDFFF`, `\u005c`, `\u0041`, "é", "😀", "x", "\xff", "\xe2\x98", "\x00"}
	var docs [][]byte
	var want []string
	for range 2000 {
		var doc bytes.Buffer
		doc.WriteByte('"')
		for range rand.N(8) {
			doc.WriteString(pieces[rand.N(len(pieces))])
		}
		doc.WriteByte('"')
		docs = append(docs, doc.Bytes())
		var s string
		// A raw NUL is the one thing that encoding/json refuses here.
		if err := json.Unmarshal(bytes.ReplaceAll(doc.Bytes(), []byte{0}, []byte("�")), &s); err != nil {
			t.Fatalf("%q: %v", doc.Bytes(), err)
		}
		want = append(want, strings.ReplaceAll(s, "\x00", "�"))
	}
	got := column[string](t, pool, "select pgexec.json_lossy(d) #>> '{}' from unnest($1::bytea[]) with ordinality x (d, n) order by n", docs)
	for i := range docs {
		if got[i] != want[i] {
			t.Errorf("%q is shown as %q, want %q", docs[i], got[i], want[i])
		}
	}
}

func TestUTF8Lossy_ReplacesWhatIsNotUTF8(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	interesting := []byte{0, 1, ' ', '!', 'a', 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xa0, 0xed, 0x9f, 0xef, 0xf0, 0x90, 0xf4, 0x8f, 0xf5, 0xff}
	var raws [][]byte
	for range 3000 {
		raw := make([]byte, rand.N(9))
		for i := range raw {
			raw[i] = interesting[rand.N(len(interesting))]
		}
		raws = append(raws, raw)
	}
	got := column[string](t, pool, "select pgexec.utf8_lossy(d) from unnest($1::bytea[]) with ordinality x (d, n) order by n", raws)
	for i, raw := range raws {
		// Decoding gives U+FFFD for each byte that is part of no character.
		want := strings.ReplaceAll(string([]rune(string(raw))), "\x00", "�")
		if got[i] != want || !utf8.ValidString(got[i]) {
			t.Errorf("%x is shown as %q, want %q", raw, got[i], want)
		}
	}
}

// However bad a payload is, it is shown in a bearable time.
func TestJSONLossy_LargePayloads(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for name, piece := range map[string]string{"bytes": "\xff", "NUL": "\x00", "characters and bytes": "aé\xff", "escapes": `\u0000`, "numbers": `",1e400000,"`} {
		doc := []byte(`["` + strings.Repeat(piece, 1<<18/len(piece)) + `"]`)
		start := time.Now()
		if n := one[int](t, pool, "select length(pgexec.json_lossy($1)::text)", doc); n < len(doc)/10 {
			t.Errorf("%s: only %d characters are shown", name, n)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: took %s", name, took)
		}
	}
}
