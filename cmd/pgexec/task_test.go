package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

func TestTaskLs(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	if _, err := pool.Exec(t.Context(), `with r as (insert into pgexec.runs (kind) values ('k') returning run_id)
		insert into pgexec.tasks (run_id, node_id, kind, attempt, input, priority, at_most_once)
		select run_id, kind, kind, 2, '{}', 2, false from r, unnest(array['song', 'dance']) kind`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `select pgexec.declare_kind('song'); select pgexec.take('song', 'singer')`); err != nil {
		t.Fatal(err)
	}
	list := func(args ...string) string {
		return mustInvoke(t, append([]string{"task", "ls", "--database-url", pgtest.URL(t)}, args...)...)
	}
	lines := strings.Split(strings.TrimSpace(list()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "taken") || !strings.Contains(lines[1], "singer") || !strings.HasSuffix(lines[2], "-") {
		t.Errorf("listed\n%s", strings.Join(lines, "\n"))
	}
	var tasks []taskRow
	if err := json.Unmarshal([]byte(list("--kind", "dance", "-o", "json")), &tasks); err != nil || len(tasks) != 1 || tasks[0].NodeID != "dance" ||
		tasks[0].State != "waiting" || tasks[0].LeaseUntil != nil || tasks[0].Attempt != 2 {
		t.Errorf("listed %+v, error %v", tasks, err)
	}
}
