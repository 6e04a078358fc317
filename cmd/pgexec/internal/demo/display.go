package demo

import (
	"fmt"
	"io"
	"strings"
)

// display shows the demo: as lines, or as a board that is drawn again and again.
type display interface {
	// step says what was prepared.
	step(what, format string, args ...any)
	// event says what has happened in the story.
	event(s *story, text string)
	// draw shows where the story stands.
	draw(s *story)
	// close leaves the screen as other programs want it.
	close()
}

// newDisplay chooses the board if it fits on a terminal.
func newDisplay(cfg Config) display {
	if cfg.SizeFunc != nil {
		if columns, rows := cfg.SizeFunc(); columns >= boardColumns && rows > boardRows {
			return &board{out: cfg.Out, sizeFunc: cfg.SizeFunc, paint: paint{cfg.Color}}
		}
	}
	return lines{out: cfg.Out}
}

func writeStep(out io.Writer, what, format string, args ...any) {
	fmt.Fprintf(out, "  %-10s %s\n", what, fmt.Sprintf(format, args...))
}

// lines is the display where nothing can be drawn again: a line for each event.
type lines struct{ out io.Writer }

func (l lines) step(what, format string, args ...any) { writeStep(l.out, what, format, args...) }
func (l lines) draw(*story)                           {}
func (l lines) close()                                {}

func (l lines) event(s *story, text string) {
	fmt.Fprintf(l.out, "%5.1f s  %3d%%  %s\n", s.elapsed().Seconds(), 100*s.done/max(s.total, 1), text)
}

const (
	// The board's size with twelve runs and three replicas.
	boardColumns = 80
	boardRows    = 18
)

// board is drawn over itself.
type board struct {
	out      io.Writer
	sizeFunc func() (columns, rows int)
	paint    paint
	drawn    int // lines on the screen
}

func (b *board) step(what, format string, args ...any) {
	writeStep(b.out, b.paint.bold(what)+strings.Repeat(" ", max(0, 10-len(what))), format, args...)
}

// event needs no line: the board shows it.
func (b *board) event(*story, string) {}

func (b *board) draw(s *story) {
	columns, _ := b.sizeFunc()
	rows := render(s, b.paint, min(columns, 100))
	var text strings.Builder
	if b.drawn == 0 {
		text.WriteString("\x1b[?25l") // no cursor
	} else {
		fmt.Fprintf(&text, "\x1b[%dA", b.drawn)
	}
	for _, row := range rows {
		text.WriteString("\r" + row + "\x1b[K\n")
	}
	b.drawn = len(rows)
	// A terminal that has gone shows nothing any more; the story goes on.
	_, _ = io.WriteString(b.out, text.String())
}

func (b *board) close() {
	if b.drawn > 0 {
		_, _ = io.WriteString(b.out, "\x1b[?25h")
		b.drawn = 0
	}
}

// paint colours text, or leaves it.
type paint struct{ on bool }

func (p paint) with(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) bold(text string) string   { return p.with("1", text) }
func (p paint) dim(text string) string    { return p.with("2", text) }
func (p paint) red(text string) string    { return p.with("31", text) }
func (p paint) green(text string) string  { return p.with("32", text) }
func (p paint) yellow(text string) string { return p.with("33", text) }
