// Package ownership pins runs to replicas. A replica holds one advisory lock on
// one session; a run belongs to the replica that runs.owner names for as long
// as that lock is held. The lock proves that the owner lives; the log fences
// the owner when it does not, so nothing here has to be fast to be correct.
//
// Each change of an owner is one statement that names what it found before. No
// statement waits for a lock: rows are skipped, advisory locks are tried, and
// what could not be done now is done by a later pass.
//
// Two rules make a dead replica's runs a closed set. An owner is always listed
// in pgexec.replicas: a claim locks its replica's own row against removal, and
// who removes the row puts the runs back in the same transaction. And a listed
// id is not drawn again: the row's primary key refuses it.
//
// # Guarantees
//
//   - G3, a claim fences the former owner: TestScripts (stale_owner, stale_batch,
//     claim_races_flush), TestClaim_RacingAppendsLeaveCleanLogs.
//   - G8, C09, locks held are O(replicas): TestSession_LocksDoNotGrowWithRuns.
//   - C01, C02, a run with a living owner is claimed by nobody, its owner
//     included: TestClaim_RunOfALivingOwner, TestClaim_NeverHeldByTwo,
//     TestClaim_RowThatChangesBeforeTheLock.
//   - C03, nothing that changed meanwhile is overwritten: TestClaim_FinishedRun,
//     TestRelease_OnlyWhatIsStillHeld.
//   - C04, an ended session is noticed within 2 s: TestSession_TerminatedIsNoticed.
//   - C05, a transaction-mode pooler is refused: TestOpen_TransactionPooler.
//   - C06, a frozen owner is replaced and stops by itself: TestFinder_FrozenReplica,
//     within 15 s TestReplicas_FrozenOneIsReplacedWithin15Seconds;
//     one that is cut off stops first: TestSession_CutOffGivesUpBeforeItsLockIsFree.
//   - C10, a restart of the server needs none of ours: TestServerRestart_RunsGoOn,
//     TestReplicas_PostgresRestartsDuringRecovery.
//   - C14, a dead replica's runs and fetched jobs are put back:
//     TestFinder_PutsBackRunsAndJobs, TestFinder_KilledProcess,
//     TestFinder_PutsBackTheJobOfAProcessKilledBetweenFetchAndClaim; a claim still in
//     flight is not left behind: TestScripts (claim_in_flight).
//   - C32, clocks and time zones of clients do not count: TestSession_NowIsTheDatabaseClock.
//   - C34, nothing waits in SQL: TestNothingWaits_IndexBuildsConcurrently,
//     TestClaim_LockedRowIsBusy.
//   - What reaches an owned run is heard at once: TestSession_HearsOfRuns.
//
// The package is internal to pgexec: no compatibility is promised.
package ownership
