package bench

import (
	"os"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.RunChild(map[string]func(){"replica": replicaProcess})
	os.Exit(m.Run())
}
