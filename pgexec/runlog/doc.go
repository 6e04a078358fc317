// Package runlog appends to and reads the logs of runs.
//
// A [Writer] gathers the records of all runs a replica owns and writes them in
// flushes: one statement and one commit for many runs. A [Tail] is the end of one
// owned run's log, and the only way to append to it. What fences a former owner is
// the log itself: each flush names the head it builds on, the owner and the epoch,
// and the primary key (run_id, seq) decides every race that a snapshot cannot see.
//
// # Guarantees
//
//   - G1 A record is in the log exactly once or not at all, whatever is cut or sent
//     again: TestAppend_RecordedOnceWhenAcknowledgementIsLost_G1,
//     TestAppend_RecordedOnceWhenBackendIsTerminated_G1.
//   - G2 A log is always seq 1…n, also after a failover that lost commits, and also
//     when two writers race: TestLog_IsCleanPrefix_G2_C07, TestFence_WhoDoesNotOwnTheRunAddsNothing_G2_G3.
//   - G3 After a claim commits, no former owner adds a record, by whatever statement, nor has an effect, also when a failover
//     gives it its old head back: TestFence_WhoDoesNotOwnTheRunAddsNothing_G2_G3, TestFence_OpenClaimDecides_G3.
//   - G5 A callback comes after the commit, once, in the order of the run's appends:
//     TestAppend_DurableBeforeCallback_G5, TestWriter_EachCallbackOnceWhileItStops.
//   - G6 What a handler did in a transaction commits with the record or not at all, at any isolation level and whatever
//     is recorded meanwhile: TestAppendTx_EffectAndRecordCommitTogether_G6, TestAppendTx_CommitsBehindRecordsItDoesNotSee_G6,
//     TestAppendTx_RacesWithClaims_G3.
//   - A run's finished record and its row change together or not at all:
//     TestFinish_RecordAndRowTogether_G1; so does the news for its parent: TestFinish_ReachesTheParent_G4.
//   - No flush waits for a row that another session has locked: TestFinish_WaitsForNoLock.
//   - A signal to a run that ends is refused, or was there before: TestFinish_RacesSignal_C11.
//   - One run's refusal or fault never takes another run with it:
//     TestAppend_OneBadRunLeavesTheOthers.
//   - Only what may succeed is sent again, ever more slowly, until Abort:
//     TestAppend_RetriesBackOffAndEndWithAbort_C27.
//   - Bytes come back as they went in, whatever they are: TestAppend_BytesUntouched_C29_C30.
//   - Appends find rows by key and touch only the partitions they need, whatever
//     the statistics: TestStatements_NoSequentialScan.
//
// The package is internal to pgexec: no compatibility is promised.
package runlog
