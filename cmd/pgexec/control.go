package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
)

// controlCommand makes a command that asks something of one run.
func controlCommand(use, short string, run func(ctx context.Context, id pgexec.RunID) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := parseRunID(given[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), id)
		},
	}
}

// control asks something of a run and prints the database's answer. It fails
// when the answer is a refusal: what was asked for neither holds nor is on its way.
func (a *app) control(ctx context.Context, id pgexec.RunID, out outputFlag, c controlRequest) error {
	pool, err := a.openMigrated(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	answer, err := c.ask(ctx, database{pool, pgexec.NewClient(pool, nil)})
	if err != nil {
		return unknownRun(err)
	}
	if out.json() {
		if err := printJSON(a.out, answerJSON{RunID: id, Answer: answer}); err != nil {
			return err
		}
	}
	if c.refused(answer) {
		return fmt.Errorf("%s run %s: %s: nothing has changed", c.verb, id, answer)
	}
	if out.json() {
		return nil
	}
	_, err = fmt.Fprintln(a.out, answer)
	return err
}

// controlRequest is something to ask of a run.
type controlRequest struct {
	verb    string
	ask     func(context.Context, database) (string, error)
	refused func(answer string) bool
}

// database is what a request needs of it.
type database struct {
	pool   *pgxpool.Pool
	client *pgexec.Client
}

// answerJSON is an answer as programs see it.
type answerJSON struct {
	RunID  pgexec.RunID `json:"run_id"`
	Answer string       `json:"answer"`
}

// ended reports that a run had ended when something was asked of it.
func ended(answer string) bool {
	status, ok := strings.CutPrefix(answer, "already ")
	return ok && pgexec.RunStatus(status).Final()
}

// unknownRun adds where the ids are.
func unknownRun(err error) error {
	if errors.Is(err, pgexec.ErrRunNotFound) {
		return fmt.Errorf("%w: `pgexec run ls` lists those there are", err)
	}
	return err
}
