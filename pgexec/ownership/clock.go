package ownership

import (
	"sync"
	"time"
)

// keepSample is how long a sample with a short round trip is preferred to newer ones with longer.
const keepSample = time.Minute

// clock estimates the database's clock from the local monotonic one: a
// heartbeat's time is taken for the middle of its round trip.
type clock struct {
	mu        sync.Mutex
	local     time.Time // with its monotonic reading
	database  time.Time
	roundTrip time.Duration
}

func (c *clock) add(sent, received, database time.Time) {
	roundTrip := received.Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.local.IsZero() && roundTrip > 2*c.roundTrip && received.Sub(c.local) < keepSample {
		return
	}
	c.local, c.database, c.roundTrip = sent.Add(roundTrip/2), database, roundTrip
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.database.Add(time.Since(c.local)).UTC()
}
