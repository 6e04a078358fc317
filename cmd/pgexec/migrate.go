package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/schema"
	"github.com/pgexec/runtime/sql"
)

func (a *app) newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make, upgrade or remove the schema pgexec of a database",
		Args:  noSuchCommand,
		RunE:  needsCommand,
	}
	cmd.AddCommand(a.newMigrateUp(), a.newMigrateDown(), a.newMigrateStatus())
	return cmd
}

func (a *app) newMigrateUp() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Bring the schema to the version this program needs",
		Long: `Bring the schema to the version this program needs. Safe to run from several
processes at once and to repeat; does nothing when there is nothing to do.

The role needs CREATE on the database, or to own an empty schema named pgexec.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrateUp(cmd.Context()) },
	}
}

func (a *app) migrateUp(ctx context.Context) error {
	pool, err := a.openPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	applied, err := schema.Up(ctx, pool)
	a.printMigrations("applied", applied)
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		fmt.Fprintf(a.out, "nothing to do: the schema is at version %d\n", schema.Version())
	}
	return nil
}

func (a *app) printMigrations(verb string, done []schema.Applied) {
	for _, m := range done {
		fmt.Fprintf(a.out, "%s %s %s (%s)\n", verb, m.Component, migrationName(m.Version, m.Name), span(m.Took))
	}
}

func migrationName(version int, name string) string {
	return strings.TrimSpace(fmt.Sprintf("%03d %s", version, name))
}

func (a *app) newMigrateDown() *cobra.Command {
	var to int
	var yes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Undo migrations, and lose what they hold",
		Long: `Undo the migrations above version --to, the newest first. With --to 0, the
default, nothing of pgexec stays: every run and every log is lost.

Without --yes it only says what would be lost.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrateDown(cmd.Context(), to, yes) },
	}
	cmd.Flags().IntVar(&to, "to", 0, "the version to go back to")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (a *app) migrateDown(ctx context.Context, to int, yes bool) error {
	if to < 0 || to > schema.Version() {
		return usageErrorf("--to %d: this program knows versions 0 to %d", to, schema.Version())
	}
	pool, err := a.openPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if !yes {
		states, err := schema.Status(ctx, pool)
		if err != nil {
			return err
		}
		loss, err := describeLoss(ctx, pool, states, to)
		if err != nil {
			return err
		}
		if loss == "" {
			fmt.Fprintln(a.out, "nothing to undo")
			return nil
		}
		return usageErrorf("this would %s: add --yes to do it", loss)
	}
	undone, err := schema.Down(ctx, pool, to)
	a.printMigrations("undone", undone)
	if err == nil && len(undone) == 0 {
		fmt.Fprintln(a.out, "nothing to undo")
	}
	return err
}

// describeLoss says what migrating down to a version would do; nothing if there is nothing to undo.
func describeLoss(ctx context.Context, db schema.DB, states []schema.State, to int) (string, error) {
	var undo []string
	first, any := false, false
	for _, s := range states {
		if s.AppliedAt.IsZero() {
			continue
		}
		any = true
		if s.Component == schema.ComponentPgexec && s.Version > to {
			undo = append(undo, migrationName(s.Version, s.Name))
			first = first || s.Version == 1
		}
	}
	switch {
	case len(undo) > 0 && !first:
		return "undo " + strings.Join(undo, ", "), nil
	case len(undo) == 0 && to == 0 && any:
		return "remove River's tables and the schema pgexec", nil
	case len(undo) == 0:
		return "", nil
	}
	var database string
	var runs, unfinished int64
	if err := db.QueryRow(ctx, sql.CliCount).Scan(&database, &runs, &unfinished); err != nil {
		return "", fmt.Errorf("count runs: %w", err)
	}
	return fmt.Sprintf("remove all of pgexec from database %q: %d runs with their logs, %d of them not ended",
		database, runs, unfinished), nil
}

type migrationJSON struct {
	Component string     `json:"component"`
	Version   int        `json:"version"`
	Name      string     `json:"name,omitempty"`
	AppliedAt *time.Time `json:"applied_at"`
	Unknown   bool       `json:"unknown,omitempty"`
}

func (a *app) newMigrateStatus() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the migrations and which of them the database has",
		Long: `List the migrations and which of them the database has. Exits with 1 when the
schema is not the one this program needs.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrateStatus(cmd.Context(), out) },
	}
	out.add(cmd)
	return cmd
}

func (a *app) migrateStatus(ctx context.Context, out outputFlag) error {
	pool, err := a.openPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	states, err := schema.Status(ctx, pool)
	if err != nil {
		return err
	}
	now, err := databaseNow(ctx, pool)
	if err != nil {
		return err
	}
	if err := a.printStates(states, now, out); err != nil {
		return err
	}
	return schema.Check(ctx, pool)
}

func (a *app) printStates(states []schema.State, now time.Time, out outputFlag) error {
	if out.json() {
		list := make([]migrationJSON, len(states))
		for i, s := range states {
			list[i] = migrationJSON{s.Component, s.Version, s.Name, orNull(s.AppliedAt), s.Unknown}
		}
		return printJSON(a.out, list)
	}
	t := newTable(a.out, "COMPONENT", "VERSION", "NAME", "APPLIED")
	for _, s := range states {
		applied := ago(now, s.AppliedAt)
		if s.Unknown {
			applied += ", by a newer program"
		}
		t.row(s.Component, fmt.Sprintf("%03d", s.Version), orDash(s.Name), applied)
	}
	return t.flush()
}
