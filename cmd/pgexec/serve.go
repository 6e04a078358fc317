package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/httpapi"
	"github.com/pgexec/runtime/pgexec/kinds"
	"github.com/pgexec/runtime/pgexec/wake"
)

const (
	defaultPoolSize = 16
	// closeTimeout bounds what a finished replica still waits for.
	closeTimeout = 5 * time.Second
)

type serve struct {
	http       string
	sessionURL string
	httpAllow  []string
	queues     []string
	grace      time.Duration
	maxHotRuns int
	poolSize   int
	logFormat  string
	logLevel   string
	agents     agentFlags
	// lifeline ends the process at once when standard input ends.
	lifeline bool
}

func (a *app) newServe() *cobra.Command {
	var s serve
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a replica: claim runs that are due and execute them",
		Long: `Run a replica: claim runs that are due and execute them. It has the stock kinds
http, sql and graph, and agent. Any number of replicas share one database.

The first SIGTERM or SIGINT drains: /readyz fails at once, no run is claimed any
more, nodes in flight finish and are recorded, and each run is handed over as
soon as its own last node in flight is recorded. After --grace the rest is
cancelled and runs again elsewhere. Then it exits with 0. A second signal ends
it at once; what was in flight runs again elsewhere.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.http, "http", "127.0.0.1:8080",
		"where to answer /healthz and /readyz, or \"off\";\nan address that is not loopback needs $PGEXEC_HTTP_TOKEN")
	flags.DurationVar(&s.grace, "grace", 25*time.Second, "how long a drain waits for nodes in flight")
	flags.IntVar(&s.maxHotRuns, "max-hot-runs", 1000, "runs in memory at once, at most")
	flags.StringSliceVar(&s.queues, "queues", []string{"default"}, "take runs of these queues")
	flags.Lookup("queues").DefValue = `"default"` // as its neighbours show theirs
	flags.StringVar(&s.sessionURL, "session-database-url", "",
		"the same database without a transaction-mode pooler between, if\n--database-url has one (default $PGEXEC_SESSION_DATABASE_URL)")
	flags.StringSliceVar(&s.httpAllow, "http-allow", nil,
		"private or loopback destinations that http nodes, models and tools may\nreach: HOST, HOST:PORT, IP or CIDR (default $PGEXEC_HTTP_ALLOW, else none)")
	flags.IntVar(&s.poolSize, "pool-size", 0,
		fmt.Sprintf("database connections in the pool (default pool_max_conns of the\ndatabase URL, else %d); four more are used beside it", defaultPoolSize))
	a.blobs.add(flags)
	s.agents.add(flags)
	flags.StringVar(&s.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.BoolVar(&s.lifeline, "lifeline", false, "end at once when standard input ends")
	// For who starts replicas as children: they must not outlive it.
	_ = flags.MarkHidden("lifeline") // fails only for a flag that is not there
	return cmd
}

func (a *app) serve(ctx context.Context, s serve) error {
	if s.lifeline {
		go func() {
			_, _ = io.Copy(io.Discard, a.in) // its end is what counts
			os.Exit(exitFailure)
		}()
	}
	log, err := newLogger(a.err, s.logFormat, s.logLevel)
	if err != nil {
		return err
	}
	if err := s.validate(); err != nil {
		return err
	}
	pool, cfg, err := a.replicaConfig(ctx, s, log)
	if err != nil {
		return err
	}
	defer closePool(pool, log)
	if len(s.httpAllow) == 0 {
		s.httpAllow = []string{os.Getenv("PGEXEC_HTTP_ALLOW")}
	}
	stock, err := kinds.Add(cfg.Kinds, &kinds.Config{Pool: pool, HTTPAllow: s.httpAllow})
	if err != nil {
		return usageErrorf("--http-allow: %w", err)
	}
	defer stock.Close()
	agents, err := s.agents.addAgents(cfg.Kinds, stock, pool, log)
	if err != nil {
		return err
	}
	defer agents.Close()
	rt, err := pgexec.New(pool, cfg)
	if err != nil {
		return err
	}
	stop, err := serveHTTP(ctx, s.http, httpapi.NewHandler(httpapi.Config{StateFunc: rt.State}), log)
	if err != nil {
		return err
	}
	defer stop()
	if err := agents.Check(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("--agent-sql-role: %w", err)
	}
	return rt.Run(ctx)
}

func (s serve) validate() error {
	switch {
	case s.maxHotRuns < 1:
		return usageErrorf("--max-hot-runs %d: want a positive number", s.maxHotRuns)
	case s.poolSize != 0 && s.poolSize < pgexec.MinPoolConns:
		return usageErrorf("--pool-size %d: a replica needs at least %d", s.poolSize, pgexec.MinPoolConns)
	case s.grace <= 0:
		return usageErrorf("--grace %s: want a positive duration", s.grace)
	case len(s.queues) == 0:
		return usageErrorf("--queues: want at least one queue")
	}
	if err := wake.CheckQueues(s.queues); err != nil {
		return usageErrorf("--queues: %w", err)
	}
	return nil
}

// replicaConfig returns the pool and the configuration of the replica. Nothing is connected yet.
func (a *app) replicaConfig(ctx context.Context, s serve, log *slog.Logger) (*pgxpool.Pool, *pgexec.Config, error) {
	poolConfig, err := a.poolConfig()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case s.poolSize != 0:
		poolConfig.MaxConns = int32(s.poolSize)
	case !namesPoolSize(poolConfig):
		poolConfig.MaxConns = defaultPoolSize
	case poolConfig.MaxConns < pgexec.MinPoolConns:
		return nil, nil, usageErrorf("pool_max_conns=%d in the database URL: a replica needs at least %d", poolConfig.MaxConns, pgexec.MinPoolConns)
	}
	cfg := &pgexec.Config{
		Kinds:      pgexec.NewKinds(),
		Queues:     s.queues,
		MaxHotRuns: s.maxHotRuns,
		Grace:      s.grace,
		Version:    readVersion().Version,
		Logger:     log,
	}
	cfg.BlobStore, cfg.BlobRead = a.blobs.stores()
	if cfg.SessionConn, err = s.sessionConn(); err != nil {
		return nil, nil, err
	}
	if cfg.SessionConn == nil {
		cfg.SessionConn = poolConfig.ConnConfig.Copy()
	}
	nameConns(poolConfig.ConnConfig, cfg.SessionConn)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), poolConfig)
	return pool, cfg, err
}

// nameConns has pg_stat_activity tell the connections of the pool from those of other replicas, by what
// pgexec.replica_overview shows of each. The replica names its own. What an address names stays.
func nameConns(pool, session *pgx.ConnConfig) {
	if pool.RuntimeParams["application_name"] == commandName {
		host, _ := os.Hostname() // without one the process id has to do
		name := fmt.Sprintf("pgexec pool %d@%s", os.Getpid(), host)
		pool.RuntimeParams["application_name"] = name[:min(len(name), 63)]
	}
	if session.RuntimeParams["application_name"] == commandName {
		delete(session.RuntimeParams, "application_name")
	}
}

// namesPoolSize reports whether the address itself says how large the pool is.
func namesPoolSize(cfg *pgxpool.Config) bool {
	conn, err := pgx.ParseConfig(cfg.ConnString()) // where the pool's settings are still in it
	return err == nil && conn.RuntimeParams["pool_max_conns"] != ""
}

// sessionConn is how the replica's session connects, if not as the pool does.
func (s serve) sessionConn() (*pgx.ConnConfig, error) {
	url, from := s.sessionURL, "--session-database-url"
	if url == "" {
		url, from = os.Getenv("PGEXEC_SESSION_DATABASE_URL"), "PGEXEC_SESSION_DATABASE_URL"
	}
	if url == "" {
		return nil, nil
	}
	conn, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, addressError(from, err)
	}
	withDefaults(conn)
	return conn, nil
}

// closePool comes last of all. A connection that somebody still holds after all
// work has ended does not keep the process.
func closePool(pool *pgxpool.Pool, log *slog.Logger) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		log.Warn("close pool: connections are still in use", "count", pool.Stat().AcquiredConns())
	}
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageErrorf("--log-level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, usageErrorf("--log-format %q is neither text nor json", format)
}

// serveHTTP answers at that address until stop is called, so also in a drain.
func serveHTTP(ctx context.Context, addr string, h http.Handler, log *slog.Logger) (stop func(), err error) {
	if addr == "off" {
		return func() {}, nil
	}
	if err := checkHTTPAddress(addr, os.Getenv("PGEXEC_HTTP_TOKEN")); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.WithoutCancel(ctx), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --http, or --http off", err)
	}
	log.Info("listening", "http", l.Addr().String())
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve HTTP", "error", err)
		}
	}()
	return func() {
		_ = server.Close() // the listener is closed whatever it says
		<-done
	}, nil
}

// checkHTTPAddress refuses to show a replica to a network without a token. The
// probes themselves carry no data and need none.
func checkHTTPAddress(addr, token string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usageErrorf("--http %q: want ADDRESS:PORT or off", addr)
	}
	if host == "localhost" || net.ParseIP(host).IsLoopback() || token != "" {
		return nil
	}
	return usageErrorf("--http %s is not a loopback address: set PGEXEC_HTTP_TOKEN, or use 127.0.0.1", addr)
}
