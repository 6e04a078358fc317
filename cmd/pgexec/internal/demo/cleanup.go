package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// drainLimit bounds the wait for a replica without runs.
const drainLimit = 5 * time.Second

// cleanUp takes away all that the demo has made, in the reverse order, and returns
// what the demo ended with. A database that is to be kept stays, unless the demo
// was interrupted.
func (d *demo) cleanUp(ctx context.Context, err error) error {
	interrupted := ctx.Err() != nil
	if d.display != nil {
		d.display.close()
	}
	if interrupted {
		err = context.Cause(ctx)
		fmt.Fprintln(d.cfg.Out, "\nInterrupted: removing what the demo has made …")
	}
	var faults []error
	for _, p := range d.processes {
		if d.cfg.Keep && !interrupted {
			p.drain(drainLimit) // a database that stays shall not list replicas that do not
		}
		faults = append(faults, p.end())
	}
	if d.stopWatch != nil {
		d.stopWatch()
	}
	d.watchers.Wait()
	if d.client != nil {
		d.client.Close()
	}
	if d.service != nil {
		faults = append(faults, d.service.close())
	}
	if d.pool != nil {
		d.pool.Close()
	}
	if d.db != nil {
		faults = append(faults, d.leaveDatabase(interrupted))
	}
	if fault := errors.Join(faults...); fault != nil {
		return errors.Join(err, fmt.Errorf("clean up: %w", fault))
	}
	return err
}

// leaveDatabase keeps the database or removes it, and says so.
func (d *demo) leaveDatabase(interrupted bool) error {
	if !d.cfg.Keep || interrupted {
		if err := d.db.removeFunc(); err != nil {
			return err
		}
		fmt.Fprintln(d.cfg.Out, "\nThe replicas, the service and the database are gone again.")
		if !d.cfg.Keep && !interrupted {
			fmt.Fprintf(d.cfg.Out, "To keep the database and look around in it: %s demo --keep\n", d.cfg.Called)
		}
		return nil
	}
	remove, err := d.db.keepFunc()
	if err != nil {
		return err
	}
	fmt.Fprintf(d.cfg.Out, `
The database stays, with all runs and their logs.
  look around:    %s
  run a replica:  %s serve --database-url '%s'
  remove it:      %s
`, d.db.psql(), d.cfg.Called, d.db.url, remove)
	return nil
}
