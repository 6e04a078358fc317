package mcp

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// modeVar makes this test binary a stdio server, or a replica that has one.
const modeVar = "PGEXEC_TEST_MCP_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		serveStdio(mode)
		os.Exit(0)
	}
	// A server that is restarted in a test forgets its sessions without ending them.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}
