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
// This package is not covered by the compatibility promise of package pgexec.
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
package wake
