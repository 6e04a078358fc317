package ownership

import (
	"testing"
	"testing/synctest"
	"time"
)

// C32: the database's clock is followed however far off the client's is, and
// a heartbeat that was slow to return does not spoil the estimate.
func TestClock_FollowsTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testClock)
}

func testClock(t *testing.T) {
	var c clock
	here := time.Now()
	there := here.Add(-10 * time.Minute)
	offBy := func() time.Duration { return c.now().Sub(time.Now().Add(-10 * time.Minute)).Abs() }

	c.add(here.Add(-2*time.Millisecond), here, there.Add(-time.Millisecond))
	if off := offBy(); off > 10*time.Millisecond {
		t.Errorf("off by %s", off)
	}
	c.add(here, here.Add(2*time.Second), there) // answered at once, delivered 2 s later
	if off := offBy(); off > 10*time.Millisecond {
		t.Errorf("off by %s after a slow heartbeat", off)
	}
	// In the end the clocks may have drifted apart, and any sample is better than an old one.
	c.add(here.Add(keepSample), here.Add(keepSample+2*time.Second), there.Add(keepSample+time.Second))
	if c.roundTrip != 2*time.Second {
		t.Error("an old sample is kept for ever")
	}
}
