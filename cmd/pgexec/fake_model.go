package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec/agent/fakemodel"
)

// replyGrace is how long replies in flight may take when the server is to end.
const replyGrace = 5 * time.Second

func (a *app) newFakeModel() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "fake-model SCRIPT",
		Short: "Serve a model that answers as a script says, for tests of agents",
		Long: `Serve a model that answers as a script says, for tests and demonstrations of
agents. It speaks OpenAI's chat completions (/v1/chat/completions) and
Anthropic's messages (/v1/messages), streamed or not, and GET /requests shows
what it was asked. docs/testing.md describes the script.

It prints its address on standard output and a line for each request on
standard error. SIGTERM ends it with 0, after the replies in flight.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.fakeModel(cmd.Context(), given[0], listen)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where to answer; port 0 takes a free one")
	return cmd
}

func (a *app) fakeModel(ctx context.Context, path, listen string) error {
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return usageErrorf("--listen %q: want ADDRESS:PORT", listen)
	}
	script, err := readScript(path)
	if err != nil {
		return err
	}
	log, err := newLogger(a.err, "text", "info")
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(ctx), "tcp", listen)
	if err != nil {
		return fmt.Errorf("%w: choose another address with --listen", err)
	}
	server := &http.Server{
		Handler:           fakemodel.New(script, &fakemodel.Opts{Logger: log}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	fmt.Fprintf(a.out, "http://%s\n", l.Addr())
	select {
	case err := <-done:
		return fmt.Errorf("serve fake model: %w", err)
	case <-ctx.Done():
	}
	// Replies that stall on purpose are cut.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // the listener is closed already
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve fake model: %w", err)
	}
	return nil
}

func readScript(path string) (*fakemodel.Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	script, err := fakemodel.Load(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return script, nil
}
