package integration

import (
	"os"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.RunChild(map[string]func(){
		"replica": replicaProcess, "random replica": randomReplicaProcess, "relay replica": relayProcess,
		"blob replica": blobReplicaProcess, "worker": workerProcess, "agent replica": agentReplicaProcess,
		"fetcher": fetcherProcess, "poison replica": poisonProcess, "holder": holderProcess,
	})
	os.Exit(m.Run())
}
