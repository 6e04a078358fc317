package throttle

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// NoBound is the MaxInFlight of a limit without one.
const NoBound = -1

// Limit is what holds for all nodes of a kind in the fleet, or for those of each key.
type Limit struct {
	// MaxInFlight bounds the nodes in flight at once; [NoBound] for no bound, 0 stops the kind.
	MaxInFlight int
	// Rate is how many may start in each Per; 0 for no bound.
	Rate int
	Per  time.Duration
	// Burst is how many may start at once when none did before. What a tenth of a
	// second would let start may always start at once.
	Burst int
	// KeyPointer is the JSON pointer to a node's key in its input; empty for one limit for the whole kind.
	KeyPointer string
}

func (l Limit) slotted() bool { return l.MaxInFlight != NoBound }

func (l Limit) rated() bool { return l.Rate > 0 }

// token is the time that one start costs; 0 without a rate.
func (l Limit) token() time.Duration {
	if !l.rated() {
		return 0
	}
	return max(l.Per/time.Duration(l.Rate), time.Nanosecond)
}

// smooth is the time within which starts are not told apart: replicas ask a few times in it.
const smooth = 100 * time.Millisecond

func (l Limit) burst() int {
	if !l.rated() {
		return 0
	}
	return max(l.Burst, int(math.Ceil(float64(smooth)/float64(l.token()))))
}

type limitRow struct {
	Kind        string
	MaxInFlight int32
	Rate        int32
	PerUs       int64
	Burst       int32
	KeyPointer  string
}

// readLimits returns the limits in force.
func (t *Throttle) readLimits(ctx context.Context) (map[string]Limit, error) {
	rows, err := t.cfg.Pool.Query(ctx, sql.ThrottleLimits)
	if err != nil {
		return nil, fmt.Errorf("read limits of kinds: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[limitRow])
	if err != nil {
		return nil, fmt.Errorf("read limits of kinds: %w", err)
	}
	limits := make(map[string]Limit, len(all))
	for _, r := range all {
		limits[r.Kind] = Limit{
			MaxInFlight: int(r.MaxInFlight),
			Rate:        int(r.Rate),
			Per:         time.Duration(r.PerUs) * time.Microsecond,
			Burst:       int(r.Burst),
			KeyPointer:  r.KeyPointer,
		}
	}
	return limits, nil
}

// declare shows in the database what this program declares.
func (t *Throttle) declare(ctx context.Context) error {
	if len(t.cfg.Declared) == 0 {
		return nil
	}
	var kinds, pointers []string
	var most, rates, bursts []int32
	var pers []int64
	for _, kind := range slices.Sorted(maps.Keys(t.cfg.Declared)) {
		l := t.cfg.Declared[kind]
		kinds, pointers = append(kinds, kind), append(pointers, l.KeyPointer)
		most, rates, bursts = append(most, int32(l.MaxInFlight)), append(rates, int32(l.Rate)), append(bursts, int32(max(l.Burst, 1)))
		pers = append(pers, l.Per.Microseconds())
	}
	_, err := t.cfg.Pool.Exec(ctx, sql.ThrottleDeclare, int32(t.cfg.ReplicaID), kinds, most, rates, pers, bursts, pointers)
	if err != nil {
		return fmt.Errorf("declare limits of kinds: %w", err)
	}
	return nil
}
