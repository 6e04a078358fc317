package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// moment is a time on the command line: one that is given, or one that is so
// far from the database's now; nothing is neither.
type moment struct {
	at       time.Time
	delay    time.Duration
	relative bool
}

func parseMoment(flag, text string) (m moment, err error) {
	if text == "" {
		return m, nil
	}
	if m.delay, err = time.ParseDuration(text); err == nil && m.delay >= 0 {
		m.relative = true
		return m, nil
	}
	if m.at, err = time.Parse(time.RFC3339, text); err != nil {
		return m, usageErrorf("%s %q: want a time such as 2030-01-31T09:00:00Z, or a duration such as 90s", flag, text)
	}
	return m, nil
}

// on returns the time by the database's clock: this machine's may be wrong.
func (m moment) on(ctx context.Context, pool *pgxpool.Pool) (time.Time, error) {
	if !m.relative {
		return m.at, nil
	}
	now, err := databaseNow(ctx, pool)
	if err != nil {
		return now, err
	}
	return now.Add(m.delay), nil
}
