package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// report shows what psql shows, and returns an error unless each run succeeded
// and each node is recorded once. All figures are answers to the queries shown.
func (d *demo) report(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.db.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	r := &reporter{demo: d, conn: conn}
	if err := conn.QueryRow(ctx, statement("pick")).Scan(&r.runID, &r.runName); err != nil {
		return fmt.Errorf("pick a run: %w", err)
	}
	fmt.Fprintf(d.cfg.Out, "\nThis is what psql shows now.\n")
	answers := make(map[string]*result)
	for _, q := range []struct{ name, title string }{
		{"show_runs", "What became of the runs:"},
		{"show_nodes", "One that moved in mid-run, " + r.runName + ". No node is there twice, none is missing:"},
		{"show_conversation", "What its agent said and was told:"},
		{"show_replicas", "Which replica recorded what:"},
		{"show_takeovers", "Where runs moved, and for how long they stood still: milliseconds from\n" +
			"the kill, or in a drain from the run's last record, to the claim by\n" +
			"another replica and to the start of the next node there:"},
		{"show_duplicates", "Is any node recorded twice, has any log a gap?"},
	} {
		if answers[q.name], err = r.show(ctx, q.name, q.title); err != nil {
			return err
		}
	}
	return d.verdict(answers["show_runs"], answers["show_takeovers"], answers["show_duplicates"])
}

type reporter struct {
	*demo
	conn           *pgx.Conn
	runID, runName string
}

func (r *reporter) show(ctx context.Context, name, title string) (*result, error) {
	p := r.paint()
	text := statement(name)
	res, err := query(ctx, r.conn, text, r.runID)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", name, err)
	}
	fmt.Fprintf(r.cfg.Out, "\n%s\n\n", p.bold(title))
	prompt := databaseName + "=> "
	if strings.Contains(text, ":'run_id'") {
		fmt.Fprintln(r.cfg.Out, p.dim(prompt+`\set run_id `+r.runID))
	}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			prompt = databaseName + "-> "
		}
		fmt.Fprintln(r.cfg.Out, p.dim(prompt+line))
	}
	res.print(r.cfg.Out)
	return res, nil
}

// verdict judges by what the queries said.
func (d *demo) verdict(runs, moves, duplicates *result) error {
	total, wantNodes := len(d.story.runs), strconv.Itoa(d.story.total+len(d.story.runs)*checkerNodes)
	nodes, twice, gaps := duplicates.value(0, "nodes"), duplicates.value(0, "duplicates"), duplicates.value(0, "gaps")
	switch {
	case !allSucceeded(runs, strconv.Itoa(total)):
		return fmt.Errorf("not all of the %d runs, and of the %d that they asked the checker for, succeeded", total, total)
	case twice != "0" || gaps != "0":
		return fmt.Errorf("%s nodes are recorded twice and %s logs have gaps", twice, gaps)
	case nodes != wantNodes:
		return fmt.Errorf("%s nodes are recorded, want %s", nodes, wantNodes)
	}
	d.conclude(nodes, len(moves.rows))
	return nil
}

// allSucceeded: so many runs of each of the two agents.
func allSucceeded(runs *result, each string) bool {
	for i := range runs.rows {
		if runs.value(i, "status") != "succeeded" || runs.value(i, "runs") != each {
			return false
		}
	}
	return len(runs.rows) == 2
}

// conclude says in short what was to be seen.
func (d *demo) conclude(nodes string, moves int) {
	keys, calls := d.service.counts()
	killed, drained := d.story.with(fateKilled).name, d.story.with(fateDrained).name
	fmt.Fprintf(d.cfg.Out, "\n%s\n\n", d.paint().bold("In short"))
	for _, line := range []string{
		fmt.Sprintf("All %d reports were written, checked, approved and published, although %s was killed and %s was drained under them: %d times a run moved.",
			len(d.story.runs), killed, drained, moves),
		fmt.Sprintf("All %s nodes are recorded exactly once.", nodes),
		fmt.Sprintf("The tools got %d requests for %d calls: what died in flight with %s was made again, with the same Idempotency-Key.",
			calls, keys, killed),
	} {
		for i, row := range wrap(line, 74) {
			fmt.Fprintf(d.cfg.Out, "  %c %s\n", "* "[min(i, 1)], row)
		}
	}
}

// paint colours only what goes to a terminal.
func (d *demo) paint() paint { return paint{d.cfg.SizeFunc != nil && d.cfg.Color} }
