package pgexec_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/pgexec/runtime/internal/pgserver"
)

// TestMain gives the examples a server of their own, whose address they read
// from $DATABASE_URL as a user's program would. Without PostgreSQL they are skipped.
func TestMain(m *testing.M) {
	os.Exit(withExampleServer(m.Run))
}

func withExampleServer(run func() int) int {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := pgserver.Start(ctx, pgserver.Config{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "the examples need a server:", err)
			return 1
		}
		fmt.Fprintln(os.Stderr, "examples are skipped:", err)
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
		return run()
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	os.Setenv("DATABASE_URL", server.URL("postgres"))
	return run()
}
