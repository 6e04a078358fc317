package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/pgexec"
)

// thinkFor is how long a person looks at what is to be approved.
const thinkFor = 500 * time.Millisecond

// question is a call that an agent wants to make and a person has to approve.
type question struct {
	RunID  pgexec.RunID
	NodeID string
}

// approve says yes to what has been asked for a while.
func (d *demo) approve(ctx context.Context) error {
	rows, err := d.pool.Query(ctx, statement("approval_open"))
	if err != nil {
		return fmt.Errorf("list approvals: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[question])
	if err != nil {
		return fmt.Errorf("list approvals: %w", err)
	}
	for _, q := range open {
		asked, known := d.asked[q]
		switch {
		case !known:
			d.asked[q] = time.Now()
		case !asked.IsZero() && time.Since(asked) > thinkFor:
			if _, err := d.pool.Exec(ctx, statement("approve"), q.RunID, q.NodeID); err != nil {
				return fmt.Errorf("approve: %w", err)
			}
			d.asked[q] = time.Time{} // answered
			d.display.event(d.story, fmt.Sprintf("pgexec.approve('%s', '%s')", d.story.byID[q.RunID].name, q.NodeID))
		}
	}
	return nil
}
