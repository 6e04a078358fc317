package ownership

import (
	"context"
	"fmt"
	"strings"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// name has pg_stat_activity show whose session it is.
func (s *Session) name(ctx context.Context) error {
	name := runlog.ConnName(s.cfg.ConnConfig.RuntimeParams["application_name"], "session", s.id)
	if _, err := s.conn.Exec(ctx, sql.OwnershipSessionName, name); err != nil {
		return fmt.Errorf("name session: %w", err)
	}
	return nil
}

// listen subscribes the session to the news of runs: signals, requests, ends
// of child runs. What comes in during a heartbeat is kept until the next rest.
func (s *Session) listen(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, sql.OwnershipSessionListen); err != nil {
		return fmt.Errorf("listen for news of runs: %w", err)
	}
	return nil
}

// hear passes on the runs that a notification names. Whoever may connect may
// also notify anything; what is no run id is passed over.
func (s *Session) hear(payload string) {
	var ids []runlog.RunID
	for text := range strings.SplitSeq(payload, ",") {
		if id, err := runlog.ParseRunID(text); err == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		s.cfg.ControlFunc(ids)
	}
}
