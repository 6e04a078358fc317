// Package pgexec is a Postgres-native runtime for long-running AI-agent runs.
//
// A run is a graph of nodes that is discovered while it runs: a node's handler
// returns an output and the successors it wants. Each finished node appends one
// small record to pgexec.run_log the moment it finishes, so that any replica can
// rebuild the graph from the log and go on exactly where the run stopped: after
// a deploy, a drain, an out-of-memory kill or a kill -9.
//
// A program that runs nodes defines kinds ([AddKind]) and serves them ([New],
// [Runtime.Run]). A program that only starts runs and waits for them needs a
// [Client], or plain SQL: INSERT INTO pgexec.runs.
//
// # Guarantees
//
//   - G1, G2: a node's result is in the log exactly once or not at all, and the
//     log has no gaps: TestReplicas_KilledDrainedFrozenAtRandom and
//     TestReplicas_FailoverThatLosesCommits, in module integration.
//   - G3: a replica that lost a run cannot add a record to it:
//     TestFence_WhoDoesNotOwnTheRunAddsNothing_G2_G3.
//   - G4: whatever reaches a run leads to progress, also at the moment of
//     parking: TestPark_NoSignalIsLost_C11, TestResume_NoneIsLost.
//   - G5: a node's successors start only after its record committed:
//     TestRun_SuccessorsStartAfterTheCommit, TestRun_SuccessorOfARefusedRecordDoesNotStart.
//   - G6: a node in flight at a crash runs again, with the same
//     [Node.IdempotencyKey]; its record is still written once, and what it did in
//     [Node.Tx] is there once: TestTx_EffectsExactlyOnceThroughKills, and
//     on real processes TestRandomPrograms_EndAsTheModelSays.
//   - G7: a limit stops a run between nodes, and raising it continues the run
//     there: TestLimits_PauseBetweenNodesAndResumeThere.
//   - G8: connections and locks grow with replicas, not with runs:
//     TestSession_LocksDoNotGrowWithRuns; a node whose handler runs needs none of
//     them: TestRun_ReadyNodesOverlapWithoutConnections, TestRun_ConnectionsDieWhileItsNodeRuns.
//   - G9: every log that an older build wrote can be read:
//     TestReleased_LogsMeanWhatTheyMeant_G9.
//
// docs/ARCHITECTURE.md tells how. The compatibility promise covers this package
// and the packages agent, kinds and pgexectest below it.
package pgexec

import (
	"github.com/pgexec/runtime/pgexec/graph"
	"github.com/pgexec/runtime/pgexec/runlog"
)

// RunID identifies a run: a UUID, time-ordered (version 7) unless the caller chose another.
type RunID = runlog.RunID

// NodeID identifies a node within its run. The run's first node is [RootID].
type NodeID = graph.NodeID

// Seq is a record's position in its run's log: 1, 2, 3 … without gaps.
type Seq = runlog.Seq

// RootID is the id of the first node of every run.
const RootID = graph.RootID

// ParseRunID reads the text form of a run's id.
func ParseRunID(s string) (RunID, error) { return runlog.ParseRunID(s) }
