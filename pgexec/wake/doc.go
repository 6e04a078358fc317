// Package wake turns "look at this run" into a call of this process. It is
// the only package that knows River: a wake is a short River job, never the
// run itself.
//
// Four paths lead to a wake, each of which suffices without the others: the
// job that the insert of a run leaves in the caller's own transaction, the
// timers of runs with a future run_at, the sweep over due runs that have no
// deliverable job, and the sweep over runs that wait for a kind this replica
// has. None of them depends on River's leader, on a notification, or on the
// process that made the wake.
//
// It also has what an owner does about the world outside of a run: it reads
// what has reached the run, parks a run that only waits, starts child
// runs, and makes the tasks that programs outside do.
//
// # Guarantees
//
//   - G4, a committed run is delivered although every notification is lost:
//     TestWake_InsertIsDeliveredByPollingAlone, TestWake_ListenerKilled.
//   - G4, a run whose job is gone or finished, or was fetched but never
//     arrived here, is woken: TestSweep_LostWakes, TestSweep_AtStart; whose job
//     was held by a dead replica: TestSweep_JobOfDeadReplica.
//   - G4, C16, a timer starts within a second of its time without a leader:
//     TestTimers_WithoutLeader.
//   - Any number of replicas may sweep and keep timers at once, and a run has
//     one wake: TestTimers_ConcurrentReplicasMakeOneWakeEach,
//     TestSweep_ClaimInProgress, TestSweep_LeavesTheRestAlone.
//   - Wakes may be delivered twice and completed by somebody else:
//     TestWake_CompletedByTheClaim, TestWake_DeliveredTwice.
//   - C20, Stop leaves no job in state running: TestStop_LeavesNoJobRunning;
//     Stop may come at any instant of Start: TestStop_DuringStart.
//   - G4, C11, C13, whatever reaches a run while it parks is seen by its owner or
//     wakes it: TestPark_NoSignalIsLost_C11, TestPark_NothingElseIsLost,
//     TestPark_NoChildsEndIsLost.
//   - C41, a request that goes down a tree misses no child that is being started:
//     TestStartChild_NoneIsMissedByCancelAndPause_C41.
//   - Whatever happens to the runs of a tree at once, nobody deadlocks: TestTree_NobodyDeadlocks.
//   - G4, the end of a task is seen by the run's owner or wakes the run: TestPark_NoTasksEndIsLost.
//   - A task is taken by one worker at a time, and ended by the one that took it
//     last: TestTake_NoTaskTwice, TestTask_CompletionRacesTakeover; a run that has ended
//     has none: TestTask_NoneIsLeftByAnEnd.
//   - However many tasks wait, to take one costs the same: TestTask_ManyWaitingAreNoLoad.
//   - Parked runs are no load: TestParked_HundredThousandAreNoLoad.
//
// The package is internal to pgexec: no compatibility is promised.
package wake
