// Package executor drives claimed runs: it rehydrates a run from its log, runs
// the ready nodes, appends what they return, and finishes, releases or pauses
// the run. One owner goroutine per run holds the graph; the data path is
// append → apply → launch.
//
// # Guarantees
//
//   - A node's successors start only after its record committed (G5):
//     TestRun_SuccessorsStartAfterTheCommit, TestRun_SuccessorOfARefusedRecordDoesNotStart.
//   - A node costs the same in a run of any size (C31): TestRun_ANodeCostsTheSameInARunOfAnySize_C31.
//   - A handler's panic fails its attempt, never the process:
//     TestRun_EndsWithTheErrorOfTheNodeThatCausedIt; so does an error
//     that panics when it is asked what it says: TestRun_ErrorsThatCannotBeRead.
//   - What can never be recorded, made or read ends the node or pauses the run, and is
//     not tried for ever: TestRun_ChildThatCanNeverBe, TestRun_LogThatCannotBeDecodedIsPaused,
//     TestRun_RecordThatNeverFitsPausesIt.
//   - What the database refuses is tried again after longer and longer times (C27):
//     TestRun_WhatTheDatabaseRefusesIsTriedMoreAndMoreSeldom_C27; so is a database that
//     refuses connections: TestReplica_OutageMakesNoStormOfConnections.
//   - A run that kills its process is paused after three deaths (C18):
//     TestReplicas_RunThatKillsThemIsPaused.
//   - The log of a run in memory is not read again: TestRun_HotRunIsNeverReadAgain.
//   - A drain or a lost session is never counted as an attempt (C17):
//     TestRun_DrainIsNoAttempt. What it has cut off is not started again here:
//     TestLoop_WhatTheLossCutOffDoesNotStartAgain_G6.
//   - A limit pauses a run between nodes, and with a higher one it goes on there
//     (G7): TestLimits_PauseBetweenNodesAndResumeThere, TestLimits_HoldChildRuns. What it holds does not hold
//     up a node with limits of its own: TestLimits_WhatHoldsUpALastNodeIsEndedButForTasksInFlight_G7, TestLimits_ANodeInLineDoesNotHoldUpTheLastOne_G7. A node that
//     waits for its turn has not begun: TestPause_NodesThatWaitForSlotsDoNotStart_G7, TestLimits_NodesInLineAreCountedOneByOne_G7. No
//     resume is lost (G4): TestResume_NoneIsLost.
//   - A run whose next nodes are of kinds this replica lacks goes to one that has
//     them, whatever else it waits for: TestRolling_TwoBuildsWithDifferentKinds,
//     TestRolling_MissingKindBesideOtherWaits, TestRolling_DrainDoesNotParkWhatOthersCanRun.
//   - What is spent is counted once, by attempts that fail and by programs outside as well: TestUsage_OfForksAndFailedAttempts,
//     TestTask_UsageIsRecordedAndCountedOnce. An open approval is listed wherever its run is:
//     TestApprovals_AreListedWhereverTheRunIs_C38.
//   - A node that programs outside do is recorded once, whoever dies meanwhile, and a
//     worker that dies is no attempt (C17, C18): TestTask_LostLeases_C17_C18,
//     TestTask_DrainAndTakeoverKeepIt, TestTasks_WorkersAndReplicasKilled.
//   - A node that a fleet-wide limit holds has no goroutine; its run parks and is woken in its
//     turn: TestFleetLimit_ParkedRunsGoOn. Each place is given back whatever happens to the
//     run: TestFleetLimit_PlacesComeBack.
//   - A payload too large for the log is stored, and referred to, before its record is made, so that no record refers to
//     what is not there: TestBlob_LargeOutput, TestBlob_LargeInput, TestBlob_LargeInWaits; one that
//     is missing or altered fails the node that needs it: TestBlob_MissingFailsTheNodeThatNeedsIt.
//
// The package is internal to pgexec: no compatibility is promised.
package executor

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/pgexec/runtime/pgexec/blob"
	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/pgexec/throttle"
	"github.com/pgexec/runtime/pgexec/usage"
	"github.com/pgexec/runtime/pgexec/wake"
)

// Config configures the executor of one replica session. All fields are required.
type Config struct {
	Pool      *pgxpool.Pool
	Writer    *runlog.Writer
	Throttle  *throttle.Throttle
	Usage     *usage.Reporter
	ReplicaID runlog.ReplicaID
	Kinds     map[string]*Kind
	// Tasks knows the kinds that programs outside do.
	Tasks *wake.Tasks
	// MaxParallelPerRun bounds the nodes of one run in flight, MaxParallel those of the replica.
	MaxParallelPerRun, MaxParallel int
	// PoisonAfter is the number of deaths of an owner without progress that pauses a run.
	PoisonAfter int
	// Linger is how long a run that only waits stays in memory before it is parked.
	Linger time.Duration
	// Blobs has what is too large for a record: payloads over InlineLimit bytes.
	Blobs       *blob.Store
	InlineLimit int
	// NowFunc is the database's clock.
	NowFunc func() time.Time
	Logger  *slog.Logger
}

// Executor runs claimed runs under the limits of one replica.
type Executor struct {
	Config
	all     *semaphore.Weighted
	perKind map[string]*semaphore.Weighted
}

// New returns an executor for the given replica session.
func New(cfg Config) *Executor {
	x := &Executor{
		Config:  cfg,
		all:     semaphore.NewWeighted(int64(cfg.MaxParallel)),
		perKind: make(map[string]*semaphore.Weighted),
	}
	for name, k := range cfg.Kinds {
		if k.MaxParallel > 0 {
			x.perKind[name] = semaphore.NewWeighted(int64(k.MaxParallel))
		}
	}
	return x
}
