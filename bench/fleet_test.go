package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/internal/pgtest"
	"github.com/pgexec/runtime/pgexec"
)

// patience bounds every wait for something that has to happen.
const patience = time.Minute

// slowFlush are the settings of a server whose storage takes its time, the last of flushes.
var slowFlush = flushes[len(flushes)-1].settings

// event is what a replica process reported. Its clock is this machine's.
type event struct {
	host, what string
	run        pgexec.RunID
	node       pgexec.NodeID
	at         time.Time
}

// fleet is a number of replica processes on one database.
type fleet struct {
	b        *testing.B
	pool     *pgxpool.Pool
	socket   string
	events   chan event
	replicas map[string]*pgtest.Child
	starts   int
	// ends says when a run's last node on a replica ended.
	ends map[pgexec.RunID]map[string]time.Time
}

// newFleet starts so many replicas on a database whose server has these settings.
func newFleet(b *testing.B, settings map[string]string, replicas int) *fleet {
	b.Helper()
	// A socket's path has to be short, which the benchmark's own directory need not be.
	dir, err := os.MkdirTemp("", "pgexec-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	f := &fleet{
		b: b, pool: database(b, settings), socket: filepath.Join(dir, "reports"),
		events: make(chan event, 10_000), replicas: make(map[string]*pgtest.Child),
		ends: make(map[pgexec.RunID]map[string]time.Time),
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: f.socket, Net: "unixgram"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	go f.receive(conn)
	for range replicas {
		f.start()
	}
	return f
}

// receive reads reports until the socket is closed.
func (f *fleet) receive(conn *net.UnixConn) {
	buf := make([]byte, 1024)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		var e event
		var run string
		var nanos int64
		if _, err := fmt.Sscan(string(buf[:n]), &e.host, &e.what, &run, &e.node, &nanos); err != nil {
			f.b.Errorf("report %q: %v", buf[:n], err)
			return
		}
		if e.run, err = pgexec.ParseRunID(run); err != nil {
			f.b.Error(err)
			return
		}
		e.at = time.Unix(0, nanos)
		f.events <- e
	}
}

// start starts one more replica and returns its name when it claims.
func (f *fleet) start() string {
	f.b.Helper()
	f.starts++
	host := fmt.Sprintf("r%d", f.starts)
	f.replicas[host] = pgtest.StartChild(f.b, "replica",
		replicaURL+"="+f.pool.Config().ConnString(), replicaHost+"="+host, replicaReports+"="+f.socket)
	f.wait(func(e event) bool { return e.what == ready && e.host == host })
	return host
}

// wait returns the next event for which is is true, passing over others.
func (f *fleet) wait(is func(event) bool) event {
	f.b.Helper()
	late := time.After(patience)
	for {
		select {
		case e := <-f.events:
			if e.what == ended {
				f.noteEnd(e)
			}
			if is(e) {
				return e
			}
		case <-late:
			f.b.Fatal("a replica did not report in time")
		}
	}
}

func (f *fleet) noteEnd(e event) {
	if f.ends[e.run] == nil {
		f.ends[e.run] = make(map[string]time.Time)
	}
	f.ends[e.run][e.host] = e.at
}

// insert adds a run and returns its id and the time at which it was committed.
func (f *fleet) insert(kind string) (pgexec.RunID, time.Time) {
	f.b.Helper()
	var id pgexec.RunID
	if err := f.pool.QueryRow(f.b.Context(), `insert into pgexec.runs (kind) values ($1) returning run_id`, kind).Scan(&id); err != nil {
		f.b.Fatal(err)
	}
	return id, time.Now()
}

// insertStarted adds runs one after the other and returns on which replica each started.
func (f *fleet) insertStarted(kind string, runs int) map[pgexec.RunID]string {
	f.b.Helper()
	owners := make(map[pgexec.RunID]string)
	for range runs {
		id, _ := f.insert(kind)
		owners[id] = f.wait(func(e event) bool { return e.what == started && e.run == id }).host
	}
	return owners
}

// rest lets up to d pass, so that samples do not keep time with the replicas' loops.
func rest(d time.Duration) { <-time.After(rand.N(d)) }

// spread is how some times differ.
type spread struct{ median, p99, longest time.Duration }

// reportTimes reports the median, the 99th percentile and the longest of some times.
func reportTimes(b *testing.B, name string, times []time.Duration) (s spread) {
	b.Helper()
	slices.Sort(times)
	for _, p := range []struct {
		name string
		rank float64
		to   *time.Duration
	}{{"median", 0.5, &s.median}, {"p99", 0.99, &s.p99}, {"max", 1, &s.longest}} {
		i := max(0, int(math.Ceil(p.rank*float64(len(times))))-1)
		*p.to = times[i]
		b.ReportMetric(float64(times[i].Microseconds())/1000, name+"_"+p.name+"_ms")
	}
	b.ReportMetric(float64(len(times)), name+"_samples")
	b.ReportMetric(0, "ns/op")
	return s
}
