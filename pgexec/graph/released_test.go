package graph

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

// outcome says in one line what a log tells of its run.
func outcome(g *Graph) string {
	var b strings.Builder
	fmt.Fprintf(&b, "head %d", g.Head())
	for _, id := range slices.Sorted(maps.Keys(g.nodes)) {
		n := g.Node(id)
		fmt.Fprintf(&b, ", %s %s", id, n.Status())
		if n.Attempts > 1 {
			fmt.Fprintf(&b, " at attempt %d", n.Attempts)
		}
	}
	if end := g.Finished(); end != nil {
		fmt.Fprintf(&b, "; %s", end.GetStatus())
	}
	if tokens := g.Usage().InputTokens + g.Usage().OutputTokens; tokens > 0 {
		fmt.Fprintf(&b, ", %d tokens", tokens)
	}
	return fmt.Sprintf("%s, result of %q", &b, idOf(g.Result()))
}

// replayText rebuilds a run from its lines: kind and input, then a record a line in base64.
func replayText(t *testing.T, lines []string) *Graph {
	t.Helper()
	kind, input, _ := strings.Cut(lines[0], " ")
	g := New(kind, jsonPayload(input))
	for i, line := range lines[1:] {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		var rec pb.Record
		if err := proto.Unmarshal(raw, &rec); err != nil {
			t.Fatalf("record %d of %s: %v", i+1, lines[0], err)
		}
		if unknown := rec.ProtoReflect().GetUnknown(); len(unknown) > 0 {
			t.Errorf("record %d of %s has fields that nothing knows any more", i+1, lines[0])
		}
		if _, err := g.Apply(int64(i+1), &rec); err != nil {
			t.Fatalf("record %d of %s: %v", i+1, lines[0], err)
		}
	}
	return g
}

// Logs that builds of each release wrote mean what they meant then. A release adds
// its own: testdata/README.md says how. A file that is there is never changed.
func TestReleased_LogsMeanWhatTheyMeant_G9(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) == 0 {
		t.Fatalf("released logs: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range strings.Split("\n"+string(text), "\nrun ")[1:] {
			lines := strings.Split(strings.TrimSpace(run), "\n")
			last := len(lines) - 1
			want, known := strings.CutPrefix(lines[last], "= ")
			if !known {
				last++
			}
			if got := outcome(replayText(t, lines[:last])); got != want {
				t.Errorf("%s: the log of %s says\n= %s\nwant\n= %s", file, lines[0], got, want)
			}
		}
	}
}
