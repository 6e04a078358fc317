package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// Exit codes. A process that a signal has ended reports 128 and the signal's
// number, as a shell would.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitRunEnded: the run that was waited for ended without success.
	exitRunEnded = 3
	// exitTimeout: the run that was waited for had not ended in time.
	exitTimeout = 4
)

type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// app is one execution of the program.
type app struct {
	stdio
	interrupt *interrupt
	// urlFlag is --database-url as given.
	urlFlag string
	// blobs are --blob-store and --blob-read as given.
	blobs blobStores
	// conn says where the command connects, once it knows; for the words of errors.
	conn *pgx.ConnConfig
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usageErrorf is an error in what the caller typed.
func usageErrorf(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// execute runs the command line and returns the exit code.
func execute(stop *interrupt, args []string, io stdio) int {
	a := &app{stdio: io, interrupt: stop}
	root := a.newRoot()
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	cmd, err := root.ExecuteContextC(stop.ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	hasCode := errors.As(err, &exit)
	if sig, ok := caughtSignal(stop.ctx); ok && !hasCode {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, sig) {
			a.complain(a.explain(err))
		}
		return sig.exitCode()
	}
	a.complain(a.explain(err))
	if !hasCode {
		return exitFailure
	}
	if exit.code == exitUsage {
		fmt.Fprintf(a.err, "Try `%s --help`.\n", cmd.CommandPath())
	}
	return exit.code
}

// complain writes an error's words, if it has any.
func (a *app) complain(err error) {
	if text := err.Error(); text != "" {
		fmt.Fprintf(a.err, "pgexec: %s\n", printableLines(text, ""))
	}
}

func (a *app) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "pgexec",
		Short: "A Postgres-native runtime for long agent runs",
		Long: `pgexec runs agents, and other graphs of work, that survive the death of the
process that runs them. Postgres is the log and the coordinator: insert a row into
pgexec.runs, and some replica (pgexec serve) executes it.

See it work:         pgexec demo
Prepare a database:  pgexec migrate up
Run a replica:       pgexec serve
Start a run:         pgexec run start sql --input '{"sql": "select 42"}' --wait`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageErrorf("%w", err) })
	root.PersistentFlags().StringVar(&a.urlFlag, "database-url", "",
		"the database, as postgres://user:password@host:port/name\n(default $PGEXEC_DATABASE_URL, else libpq's PG* variables)")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(a.newMigrate(), a.newServe(), a.newRun(), a.newBlob(), a.newDemo(), a.newFakeModel(), a.newTask(), a.newVersion())
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.RunE = showHelp
	}
	return root
}

// showHelp is the command help; what it does not know is an error.
func showHelp(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) == 0 {
		return about.Help()
	}
	if about == nil || len(rest) == 0 {
		about, rest = cmd.Root(), args
	}
	return noSuchCommand(about, rest)
}

// noSuchCommand is the argument check of a command that only has subcommands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(", did you mean %q?", near[0])
	}
	return usageErrorf("%s has no command %q%s", cmd.CommandPath(), args[0], hint)
}

// needsCommand is what such a command does when no subcommand is given.
func needsCommand(cmd *cobra.Command, _ []string) error {
	if err := cmd.Help(); err != nil {
		return err
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("%s needs a command", cmd.CommandPath())}
}

// args makes cobra's complaints about arguments usage errors.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			return usageErrorf("%s: %w; usage: %s", cmd.CommandPath(), err, cmd.UseLine())
		}
		return nil
	}
}
