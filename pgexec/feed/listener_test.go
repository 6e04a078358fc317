package feed

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec/runlog"
)

const killFeed = `select pg_terminate_backend(pid) from pg_stat_activity
	where datname = current_database() and application_name = '` + applicationName + `'`

// C12: the listening connection is killed again and again; watchers get
// everything, and in the end hints arrive again.
func TestListener_ConnectionKilled(t *testing.T) {
	b := setup(t)
	n, l := b.notifier(), b.listener(nil)
	id := b.newRun()
	const last = 200
	var watchers sync.WaitGroup
	for range 5 {
		b.collect(&watchers, l, id, 0, last)
	}
	for seq := runlog.Seq(1); seq < last; seq++ {
		if seq%50 == 0 {
			b.exec(killFeed)
		}
		b.append(id, seq, seq, n)
	}
	b.finish(id, last, n)
	watchers.Wait()
	b.eventually("hints arrive again", l.up.Load)
	b.hears(l, n)
	if got := b.logs.warnings.Load(); got == 0 {
		t.Error("nobody was told")
	}
}

// hears fails unless a hint reaches a watcher long before a poll does.
func (b *bundle) hears(l *Listener, n *Notifier) {
	b.t.Helper()
	id := b.newRun()
	tick, cancel := l.Subscribe(id)
	defer cancel()
	b.eventually("a hint arrives", func() bool {
		n.Committed(id, runlog.Seq(time.Now().UnixNano()))
		select {
		case <-tick:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
}

// C12: notifications stop arriving although the connection looks alive, as
// through a pooler or a half-open socket: watchers poll, then hear again.
func TestListener_NotificationsLost(t *testing.T) {
	b := setup(t)
	n := b.notifier()
	var broken breaker
	l := b.listener(func(l *Listener) {
		l.conn.DialFunc = broken.dial
		l.timing.ping, l.timing.pong = 200*time.Millisecond, 200*time.Millisecond
		l.timing.pollUp = time.Hour
		l.timing.pollDown = 50 * time.Millisecond
	})
	id := b.newRun()
	const last = 20
	var watchers sync.WaitGroup
	b.collect(&watchers, l, id, 0, last)
	b.eventually("the watcher waits", func() bool {
		l.hub.mu.Lock()
		defer l.hub.mu.Unlock()
		w := l.hub.runs[id]
		return w != nil && w.live
	})
	broken.refuse.Store(true)
	broken.freeze()
	b.append(id, 1, last-1, n)
	b.finish(id, last, n)
	watchers.Wait()
	if l.up.Load() {
		t.Error("still believes that hints arrive")
	}
	broken.refuse.Store(false)
	b.eventually("hints arrive again", l.up.Load)
	b.hears(l, n)
}

// C10: every connection is killed, the pool's too; watchers go on.
func TestListener_AllConnectionsKilled(t *testing.T) {
	b := setup(t)
	n, l := b.notifier(), b.listener(nil)
	id := b.newRun()
	const last = 50
	var watchers sync.WaitGroup
	for range 10 {
		b.collect(&watchers, l, id, 0, last)
	}
	b.append(id, 1, last-1, n)
	b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	b.eventually("the last record is written", func() bool {
		_, err := b.pool.Exec(t.Context(), `insert into pgexec.run_log values ($1, $2, $3)`, id, last, encode(t, true))
		return err == nil
	})
	n.Committed(id, last)
	watchers.Wait()
}

// Without a connection of its own a Listener polls.
func TestListener_PollOnly(t *testing.T) {
	b := setup(t)
	l := b.listener(func(l *Listener) { l.conn = nil })
	id := b.newRun()
	var watchers sync.WaitGroup
	b.collect(&watchers, l, id, 0, 11)
	b.append(id, 1, 10, nil)
	b.finish(id, 11, nil)
	watchers.Wait()
}

// A listener whose database is not there yet starts, and hears as soon as it is.
func TestListener_DatabaseComesLater(t *testing.T) {
	b := setup(t)
	n := b.notifier()
	var broken breaker
	broken.refuse.Store(true)
	l := NewListener(b.connConfig(), b.pool, nil)
	l.conn.DialFunc = broken.dial
	l.Start()
	t.Cleanup(l.Stop)
	pgtest.Pause(t, 50*time.Millisecond)
	broken.refuse.Store(false)
	b.hears(l, n)
}

// C25: the pool may be one for a transaction-mode pooler, without prepared statements.
func TestListener_WithoutPreparing(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			b := setup(t)
			cfg := b.pool.Config()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b.pool = pool
			n, l := b.notifier(), b.listener(nil)
			id := b.newRun()
			var watchers sync.WaitGroup
			b.collect(&watchers, l, id, 0, 2)
			b.hears(l, n)
			for seq, finished := range []bool{false, true} {
				_, err := pool.Exec(t.Context(), `insert into pgexec.run_log values ($1::text::uuid, $2, $3)`, id.String(), seq+1, encode(t, finished))
				if err != nil {
					t.Fatal(err)
				}
				n.Committed(id, runlog.Seq(seq+1))
			}
			watchers.Wait()
		})
	}
}
