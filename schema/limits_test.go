package schema_test

import (
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/executor"
)

// A limit of the whole fleet that would hold nothing is refused.
func TestKindLimits_OfKindsThatWaitAreRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec(t, pool, `insert into pgexec.kind_limits (kind, max_in_flight) values ('http', 1)`)
	for _, kind := range []string{executor.KindSleep, executor.KindSignal, executor.KindApproval, executor.KindRun} {
		for _, statement := range []string{
			`insert into pgexec.kind_limits (kind, max_in_flight) values ($1, 1)`,
			`update pgexec.kind_limits set kind = $1`,
		} {
			_, err := pool.Exec(t.Context(), statement, kind)
			if err == nil || !strings.Contains(err.Error(), "nodes of kind "+kind+" wait and are never in flight") {
				t.Errorf("%s with %s: error %v", statement, kind, err)
			}
		}
	}
}
