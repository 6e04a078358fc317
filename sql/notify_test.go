package sql_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pgexec/runtime/internal/pgtest"
)

// hints are the statements that notify. Nothing is lost with one of them.
var hints = []string{"feed_notify.sql", "feed_ping.sql", "life_task_notify.sql", "runlog_tell.sql", "wake_nudge.sql"}

// C23, C28, G8: a transaction that notifies changes nothing and waits for no flush, since its commit holds a lock of the whole
// server and fails while the queue is full. So nothing else notifies, an append least of all.
func TestStatements_OnlyHintsNotify_C23_C28_G8(t *testing.T) {
	t.Parallel()
	notifies := regexp.MustCompile(`(?i)\bpg_notify\b|\bnotify\s+\w|\btell_owners\b`)
	changes := regexp.MustCompile(`(?i)\b(insert|update|delete|for share|for key share)\b`)
	for name, text := range statements(t) {
		_, body, _ := strings.Cut(text, "\n")
		switch isHint := slices.Contains(hints, name); {
		case notifies.MatchString(body) != isHint:
			t.Errorf("%s notifies: %v, want %v", name, !isHint, isHint)
		case isHint && changes.MatchString(strings.ReplaceAll(body, "river_insert", "")):
			t.Errorf("%s changes or locks something, and notifies", name)
		case isHint && !strings.Contains(body, "set_config('synchronous_commit', 'off', true)"):
			t.Errorf("%s notifies in a transaction that waits for a flush", name)
		}
	}
	var triggers []string
	err := pgtest.DB(t).QueryRow(t.Context(), `select coalesce(array_agg(tgrelid::regclass || ' ' || tgname), '{}') from pg_catalog.pg_trigger
		where tgrelid in (select relid from pg_catalog.pg_partition_tree('pgexec.run_log')) and not tgisinternal`).Scan(&triggers)
	if err != nil || len(triggers) > 0 {
		t.Errorf("appends call triggers %v, error %v", triggers, err)
	}
}
