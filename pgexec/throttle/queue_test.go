package throttle

import (
	"testing"
	"time"

	"github.com/pgexec/runtime/pgexec/runlog"
)

// parked makes parked runs that wait for the limit of kind k, the first since longest, and returns them.
func (b *bundle) parked(n int) []runlog.RunID {
	b.t.Helper()
	var ids []runlog.RunID
	for i := range n {
		id := get[runlog.RunID](b, `insert into pgexec.runs (kind, run_at) values ('k', 'infinity') returning run_id`)
		b.exec(`update pgexec.runs set status = 'parked', epoch = 3 where run_id = $1`, id)
		b.exec(`insert into pgexec.kind_queue (run_id, epoch, kind, key, since) values ($1, 3, 'k', '', now() - $2::interval)`,
			id, time.Duration(n-i)*time.Minute)
		ids = append(ids, id)
	}
	return ids
}

func (b *bundle) woken() []runlog.RunID {
	return get[[]runlog.RunID](b, `select array(select run_id from pgexec.runs where wake_job is not null order by run_id)`)
}

// G4: with nobody who has anything to do with the kind, a look of any replica wakes what may start, and no more.
func TestThrottle_SweepWakesTheOldest(t *testing.T) {
	b := setup(t)
	ids := b.parked(5)
	b.limit(2, nil, "1 s", 1)
	b.exec(`insert into pgexec.replicas (replica_id, host, pid, version, kinds, queues, max_hot_runs, backend_pid, backend_start)
		values (99, 'h', 1, 'v', '{}', '{}', 1, 1, now())`)
	b.exec(`insert into pgexec.kind_slots (kind, key, slot, replica_id) values ('k', '', 1, 99), ('k', '', 2, 99)`)
	// A run that was claimed since it parked stands in line no more.
	b.exec(`update pgexec.runs set epoch = 4 where run_id = $1`, ids[0])
	r := b.replica()
	b.eventually(`select count(*) = 4 from pgexec.kind_queue`)
	if woken := b.woken(); len(woken) != 0 {
		t.Fatalf("%d runs are woken for slots that are taken", len(woken))
	}
	r.Stop()
	b.exec(`delete from pgexec.kind_slots where slot = 2`)
	if err := r.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if woken := b.woken(); len(woken) != 1 || woken[0] != ids[1] {
		t.Fatalf("woken: %v, want the second of %v", woken, ids)
	}
	b.exec(`delete from pgexec.kind_limits`)
	if err := r.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if woken := b.woken(); len(woken) != 4 {
		t.Errorf("%d of 4 runs are woken when there is no limit any more", len(woken))
	}
	if n := get[int](b, `select count(*) from pgexec.kind_queue`); n != 0 {
		t.Errorf("%d places in line are left", n)
	}
}

// The sweep lets no more in than a rate lets start within the next second.
func TestThrottle_SweepKeepsToTheRate(t *testing.T) {
	b := setup(t)
	b.parked(10)
	b.limit(nil, 1, "1 hour", 1)
	b.exec(`insert into pgexec.kind_rates (kind, key, free_at) values ('k', '', now() + interval '1 hour')`)
	r := b.replica()
	r.Stop()
	for want, freeIn := range []string{"1 hour", "0 s"} {
		b.exec(`update pgexec.kind_rates set free_at = now() + $1::interval`, freeIn)
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.woken()); n != want {
			t.Errorf("%d runs are woken with the rate paid for %s ahead", n, freeIn)
		}
	}
}

// What a holder gives back wakes as many runs, in one transaction; nothing is woken for nodes that wait elsewhere.
func TestThrottle_GivingBackWakes(t *testing.T) {
	b := setup(t)
	b.limit(2, nil, "1 s", 1)
	r := b.replica()
	first, second := b.mustStart(r, kindK), b.mustStart(r, kindK)
	r.Stop()
	ids := b.parked(3)
	first.Release()
	second.Release()
	for range 3 {
		pause(t, idleAfter)
		if err := r.give(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := get[int](b, `select count(*) from pgexec.kind_slots`); n != 0 {
		t.Fatalf("%d slots are kept", n)
	}
	if woken := b.woken(); len(woken) != 2 || woken[0] != ids[0] || woken[1] != ids[1] {
		t.Errorf("woken: %v, want the first two of %v", woken, ids)
	}
}
