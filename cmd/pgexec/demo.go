package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pgexec/runtime/cmd/pgexec/internal/demo"
)

// defaultImage is what Docker runs for the demo.
const defaultImage = "postgres:17-alpine"

func (a *app) newDemo() *cobra.Command {
	var keep bool
	var image string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See runs survive a kill and a drain",
		Long: `See runs survive a kill and a drain: three replicas execute twelve runs, one of them
gets kill -9 and another one SIGTERM, and at the end psql's view of it shows that
every node was recorded once.

It finds PostgreSQL by itself: the server that --database-url or
PGEXEC_DATABASE_URL names, on which it makes a database of its own; else a
private throw-away server from the programs installed here; else Docker.
Whatever it makes is removed at its end, also when it is interrupted.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), keep, image) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the database, and say how to open and how to remove it")
	cmd.Flags().StringVar(&image, "docker-image", defaultImage, "the image to run where only Docker is there")
	return cmd
}

func (a *app) demo(ctx context.Context, keep bool, image string) error {
	// A second Ctrl-C does not end a demo that is removing what it made.
	a.interrupt.patient.Store(true)
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cfg := demo.Config{
		DatabaseURL: a.urlFlag,
		Image:       image,
		Keep:        keep,
		Program:     program,
		Called:      os.Args[0],
		Out:         a.out,
	}
	if cfg.DatabaseURL == "" {
		cfg.DatabaseURL = os.Getenv("PGEXEC_DATABASE_URL")
	}
	if cfg.DatabaseURL != "" {
		if _, err := a.poolConfig(); err != nil { // read once more, for the words of errors
			return err
		}
	}
	cfg.SizeFunc, cfg.Color = terminal(a.out)
	return demo.Run(ctx, cfg)
}

// terminal returns how to learn the size of the terminal that out is, nil if it
// is none, and whether it wants colours.
func terminal(out any) (sizeFunc func() (columns, rows int), colour bool) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return func() (int, int) {
		columns, rows, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 80, 24
		}
		return columns, rows
	}, os.Getenv("NO_COLOR") == ""
}
