package demo

import (
	"fmt"
	"strings"
	"unicode/utf8"

	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

const (
	barCells = 12
	// narrationRows are kept free, so that the board does not jump.
	narrationRows = 3
)

// render draws the board: rows of at most that many columns.
func render(s *story, p paint, columns int) []string {
	rows := []string{""}
	rows = append(rows, "  "+p.dim("replica       state                            runs now  nodes recorded"))
	for _, a := range s.actors {
		rows = append(rows, "  "+renderActor(s, p, a))
	}
	rows = append(rows, "")
	half := (len(s.runs) + 1) / 2
	for i := range half {
		row := "  " + renderRun(p, s.runs[i])
		if i+half < len(s.runs) {
			row += "   " + renderRun(p, s.runs[i+half])
		}
		rows = append(rows, row)
	}
	rows = append(rows, "", fmt.Sprintf("  %s  %s of %d nodes recorded",
		p.bold(fmt.Sprintf("%4.1f s", s.elapsed().Seconds())), p.bold(fmt.Sprintf("%3d", s.done)), s.total))
	said := wrap(s.narration(), columns-4)
	for i := range narrationRows {
		row := ""
		if i < len(said) {
			row = "  " + said[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func renderActor(s *story, p paint, a *actor) string {
	at := fmt.Sprintf("%.1f s", a.fateAt.Seconds())
	state, colour := "serving", p.green
	switch a.fate {
	case fateKilled:
		state, colour = "killed with SIGKILL at "+at, p.red
	case fateDraining:
		state, colour = "draining after SIGTERM at "+at, p.yellow
	case fateDrained:
		state, colour = "drained, exit 0 at "+at, p.dim
	}
	return fmt.Sprintf("%s %-11s %s %8d  %14d", p.bold(a.name), fmt.Sprintf("pid %d", a.pid), pad(colour(state), state, 33), s.owns(a), a.recorded)
}

// renderRun is a run on 37 columns: name, bar, count, owners.
func renderRun(p paint, r *progress) string {
	cells := barCells * r.done / max(r.total, 1)
	full, rest := strings.Repeat("█", cells), strings.Repeat("░", barCells-cells)
	switch {
	case r.status == pb.RunStatus_RUN_STATUS_SUCCEEDED:
		full = p.green(full)
	case r.ended():
		full = p.red(full)
	}
	owners := trail(r.owners)
	return fmt.Sprintf("%-10s %s%s %2d/%-2d %s", r.name, full, p.dim(rest), r.done, r.total, pad(owners, owners, 6))
}

// trail names the owners in their order.
func trail(owners []*actor) string {
	names := make([]string, len(owners))
	for i, a := range owners {
		names[i] = a.name
	}
	return strings.Join(names, "→")
}

// pad fills painted text up to a width, by its plain form.
func pad(painted, plain string, width int) string {
	return painted + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(plain)))
}

// wrap breaks text into lines of at most that many characters.
func wrap(text string, columns int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
