// Package demo is what `pgexec demo` does: runs on three replicas, one of which
// is killed and another one drained while everybody looks.
//
// # Guarantees
//
//   - It ends with an error if a run did not succeed, or if a node was recorded
//     twice, and the answer to that comes from a query: TestDemo_RunsSurviveKillAndDrain.
//   - Interrupted at any moment it leaves no process and no folder:
//     TestDemo_InterruptLeavesNothing, TestDemo_KilledDemoLeavesNothing.
package demo

import (
	"context"
	"embed"
	"io"
	"strings"
	"time"
)

// Config says how the demo runs.
type Config struct {
	// DatabaseURL is a server on which the demo makes a database of its own.
	// Empty means that it finds or starts one.
	DatabaseURL string
	// Image is what Docker runs where there is neither a URL nor a local server.
	Image string
	// Keep leaves the database when the demo has ended.
	Keep bool
	// Program is the pgexec program; replicas are its command serve.
	Program string
	// Called is the program as it was called, for commands that are shown.
	Called string
	// Out is where the demo writes.
	Out io.Writer
	// SizeFunc returns the size of the terminal; nil if Out is none.
	SizeFunc func() (columns, rows int)
	// Color allows colours on a terminal.
	Color bool
}

// The statements of the demo, as a newcomer would type them into psql. They are
// kept here because they are of no use to anybody else.
//
//go:embed sql/*.sql
var statements embed.FS

// statement returns the text of a file without its first line, a comment.
func statement(name string) string {
	raw, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic("demo: " + err.Error())
	}
	_, text, _ := strings.Cut(string(raw), "\n")
	return strings.TrimSpace(text)
}

// Run runs the demo until its end or until ctx is done, and cleans up.
func Run(ctx context.Context, cfg Config) (err error) {
	d := &demo{cfg: cfg, began: time.Now()}
	defer func() { err = d.cleanUp(ctx, err) }()
	return d.run(ctx)
}
