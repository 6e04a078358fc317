package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// outputFlag is -o of the commands that print data.
type outputFlag struct{ format string }

func (o *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "text", "text or json")
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, given []string) error {
		if o.format != "text" && o.format != "json" {
			return usageErrorf("--output %q is neither text nor json", o.format)
		}
		if check != nil {
			return check(cmd, given)
		}
		return nil
	}
}

func (o *outputFlag) json() bool { return o.format == "json" }

// printJSON writes a value for programs: one document, times as RFC 3339.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table writes rows in columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(header...)
	return t
}

// row writes one line; a cell never breaks the table, whatever is in it.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	// An error is kept by the writer and returned by flush.
	_, _ = fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// printable is text as one line that no terminal takes for commands, wherever it came from.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// printableLines is printable for text of several lines; all but the first begin with the indent.
func printableLines(s, indent string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n"+indent)
}

// clip shortens text to n characters. What it costs does not depend on how long the text is.
func clip(s string, n int) string {
	chars, end := 0, 0
	for i := range s {
		switch chars {
		case n - 1:
			end = i
		case n:
			return s[:end] + "…"
		}
		chars++
	}
	return s
}

// clipJSON is clip for a document that may be large.
func clipJSON(raw json.RawMessage, n int) string {
	return clip(string(raw[:min(len(raw), utf8.UTFMax*(n+1))]), n)
}

// counted writes a number of things.
func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// orDash shows that there is nothing.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// span writes a duration with two or three digits that matter.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours())/24)
	}
}

// ago writes a time as its distance from now.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

// orNull is the JSON form of a time that may be missing.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
