package demo

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pgexec/runtime/pgexec"
	pb "github.com/pgexec/runtime/proto/pgexec/v1"
)

var runA = pgexec.RunID{1}

func newTestStory() *story {
	s := newStory([]*actor{{name: "A", id: 11, pid: 101}, {name: "B", id: 12, pid: 102}})
	s.began = time.Now()
	s.add(runA, plan{name: "research-1", nodes: 2})
	return s
}

func claim(replica, dead int32, at time.Time) *pb.Record {
	return &pb.Record{Body: &pb.Record_Claim{Claim: &pb.Claim{ReplicaId: replica, DeadReplicaId: dead, AtUs: at.UnixMicro()}}}
}

func nodeRecord(replica int32, status pb.NodeStatus) *pb.Record {
	return &pb.Record{Body: &pb.Record_Node{Node: &pb.Node{Id: "n", Status: status, ReplicaId: replica, Error: &pb.Error{Message: "why"}}}}
}

func finished(status pb.RunStatus) *pb.Record {
	return &pb.Record{Body: &pb.Record_Finished{Finished: &pb.Finished{Status: status}}}
}

// A run's story is told from its log: who owned it, who took it from whom and when.
func TestStory_TakeoverAfterADeath(t *testing.T) {
	t.Parallel()
	s := newTestStory()
	death := time.Now()
	if text := s.apply(runA, claim(11, 0, death)); text != "" {
		t.Errorf("a first claim is no news: %s", text)
	}
	s.apply(runA, nodeRecord(11, pb.NodeStatus_NODE_STATUS_SUCCEEDED))
	if s.busiest().name != "A" || s.owns(s.actors[0]) != 1 {
		t.Errorf("the busiest is %s", s.busiest().name)
	}
	s.actors[0].fate, s.actors[0].stopped = fateKilled, death
	if got, want := s.apply(runA, claim(12, 11, death.Add(120*time.Millisecond))), "B goes on with research-1, 120 ms after the death of A"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.apply(runA, nodeRecord(12, pb.NodeStatus_NODE_STATUS_SUCCEEDED))
	if !s.passed(1) || s.actors[0].recorded != 1 || s.actors[1].recorded != 1 {
		t.Errorf("%d of %d recorded, by A %d, by B %d", s.done, s.total, s.actors[0].recorded, s.actors[1].recorded)
	}
	if got, want := s.apply(runA, finished(pb.RunStatus_RUN_STATUS_SUCCEEDED)), "research-1 succeeded: 2 nodes"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.over() {
		t.Error("over before anybody has drained")
	}
	s.actors[1].fate = fateDrained
	if !s.over() {
		t.Error("not over")
	}
	if got := trail(s.runs[0].owners); got != "A→B" {
		t.Errorf("owners %s", got)
	}
}

func TestStory_WhatGoesWrongIsTold(t *testing.T) {
	t.Parallel()
	s := newTestStory()
	s.apply(runA, claim(99, 0, time.Now()))
	if s.runs[0].owner().name != "?" {
		t.Error("an unknown replica has a name")
	}
	for want, rec := range map[string]*pb.Record{
		"node n failed: why": nodeRecord(99, pb.NodeStatus_NODE_STATUS_FAILED),
		"did not succeed":    finished(pb.RunStatus_RUN_STATUS_FAILED),
		"tried again: busy": {Body: &pb.Record_AttemptFailed{
			AttemptFailed: &pb.AttemptFailed{NodeId: "n", Error: &pb.Error{Message: "busy"}},
		}},
		"let go by ?": claim(11, 0, time.Now()),
		"lost by ?":   claim(11, 99, time.Now()),
	} {
		s.runs[0].owners = s.runs[0].owners[:1]
		if got := s.apply(runA, rec); !strings.Contains(got, want) {
			t.Errorf("got %q, want the words %q", got, want)
		}
	}
}

// The board fits on the terminal it was chosen for, whatever happens.
func TestRender_FitsOnTheTerminal(t *testing.T) {
	t.Parallel()
	s := newStory([]*actor{
		{name: "A", pid: 4194304, fate: fateKilled, fateAt: 12 * time.Second, recorded: 288},
		{name: "B", pid: 4194303, fate: fateDraining, fateAt: 12 * time.Second},
		{name: "C", pid: 4194302},
	})
	s.began = time.Now()
	all, err := plans()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		s.add(pgexec.RunID{byte(i)}, p)
		s.runs[i].owners = s.actors
		s.runs[i].done = p.nodes
	}
	for _, last := range []fate{fateDraining, fateDrained} {
		s.actors[1].fate = last
		rows := render(s, paint{}, boardColumns)
		if len(rows) > boardRows {
			t.Errorf("%d rows, want at most %d", len(rows), boardRows)
		}
		for _, row := range rows {
			if n := utf8.RuneCountInString(row); n > boardColumns {
				t.Errorf("%d columns: %s", n, row)
			}
		}
	}
}

func TestDisplay_BoardOnlyWhereItFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		columns, rows int
		board         bool
	}{{80, 24, true}, {200, 50, true}, {79, 24, false}, {80, boardRows, false}} {
		_, isBoard := newDisplay(Config{SizeFunc: func() (int, int) { return c.columns, c.rows }}).(*board)
		if isBoard != c.board {
			t.Errorf("%d×%d: board %t", c.columns, c.rows, isBoard)
		}
	}
	if _, isBoard := newDisplay(Config{}).(*board); isBoard {
		t.Error("a board without a terminal")
	}
}

// The board draws over itself and gives the cursor back.
func TestBoard_DrawsOverItself(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &board{out: &out, sizeFunc: func() (int, int) { return 80, 24 }}
	b.close() // nothing drawn, nothing to mend
	s := newTestStory()
	b.draw(s)
	rows := strings.Count(out.String(), "\n")
	first := out.Len()
	b.draw(s)
	if second := out.String()[first:]; !strings.HasPrefix(second, "\x1b["+strconv.Itoa(rows)+"A") || strings.Count(second, "\n") != rows {
		t.Errorf("second drawing: %q", second)
	}
	b.close()
	if !strings.HasPrefix(out.String(), "\x1b[?25l") || !strings.HasSuffix(out.String(), "\x1b[?25h") {
		t.Error("the cursor is not hidden, or not given back")
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	if got := strings.Join(wrap("one two  three", 7), "|"); got != "one two|three" {
		t.Errorf("got %s", got)
	}
	if got := wrap("", 7); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}
