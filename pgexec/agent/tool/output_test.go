package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec"
)

// png is the beginning of a picture.
var png = []byte("\x89PNG\r\n\x1a\n\x00\xff")

// C52: the model sees the head of a large result and a note; the whole is in the log, or in the blob store.
func TestResult_IsCutAndKeptWhole_C52(t *testing.T) {
	const size = 5 << 20
	b := setup(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), size)) })
	pgexec.AddKind(b.kinds, "big", func(context.Context, *pgexec.Node, json.RawMessage) (string, error) {
		return strings.Repeat("é", size/2), nil
	}, nil)
	pgexec.AddKind(b.kinds, "loud", func(context.Context, *pgexec.Node, json.RawMessage) (string, error) {
		return "", pgexec.Permanent(&json.UnmarshalTypeError{Value: strings.Repeat("x", 2000)})
	}, nil)
	id := b.start(`"tools": [{"type": "kind", "name": "big", "kind": "big", "max_output": 301}, {"type": "kind", "name": "loud", "kind": "loud", "max_output": 300},
		{"type": "http", "name": "get", "url": "{URL}/"}]`,
		call("big", `{}`), call("loud", `{}`), call("get", `{}`))
	got := b.results(id)
	want(t, got[0], strings.Repeat("é", 150)+"|[cut: 300 of 5242880 bytes are shown; the whole is the output of node call-1-1]", false)
	if len(got[1].Text) > 310 {
		t.Errorf("the model sees an error of %d bytes", len(got[1].Text))
	}
	if n := query[int](b, `select max(length(record)) from pgexec.run_log where run_id = $1`, id); n > 100_000 {
		t.Errorf("a record has %d bytes", n)
	}
	if head := query[string](b, `select output #>> '{content,0,text}' from pgexec.nodes where run_id = $1 and node_id = 'call-1-3'`, id); len(head) != 16384 {
		t.Errorf("psql shows %d bytes, want what the model sees", len(head))
	}
	blobs, err := b.client.Blobs(t.Context(), id)
	want(t, got[2], strings.Repeat("x", 16384)+"|[cut: 16384 of 5242880 bytes are shown; the whole is the output of node call-1-3]", false)
	if err != nil || len(blobs) != 2 || min(blobs[0].Size, blobs[1].Size) != size+2 {
		t.Errorf("blobs of the run: %+v, %v", blobs, err)
	}
}

func TestResult_ImagesStayImages(t *testing.T) {
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", strings.TrimPrefix(r.URL.Path, "/"))
		_, _ = w.Write(png)
	})
	pgexec.AddKind(b.kinds, "paint", func(ctx context.Context, n *pgexec.Node, _ json.RawMessage) (pgexec.BlobRef, error) {
		return n.PutBlob(ctx, "image/png", bytes.NewReader(png))
	}, nil)
	got := b.run(`"tools": [{"type": "http", "name": "png", "url": "{URL}/image/png"}, {"type": "http", "name": "zip", "url": "{URL}/application/zip"}, {"type": "http", "name": "odd", "url": "{URL}/text/plain"}, {"type": "kind", "name": "paint", "kind": "paint"}]`,
		call("png", `{}`), call("zip", `{}`), call("paint", `{}`), call("odd", `{}`))
	for _, i := range []int{0, 2} {
		if len(got[i].Images) != 1 || got[i].Images[0].MediaType != "image/png" || !bytes.Equal(got[i].Images[0].Data, png) || got[i].Text != "" {
			t.Errorf("call %d: the model sees %+v", i+1, got[i])
		}
	}
	want(t, got[1], "[10 bytes of application/zip are not shown; they are in the output of node call-1-2]", false)
	want(t, got[3], "\uFFFDPNG\r\n\x1a\n\x00\uFFFD", false)
}
