// Package feed tells those who watch runs that there is something new, and
// gives them the records.
//
// A [Notifier] sends hints after commits: run ids and heads, nothing else, on
// the channel pgexec_log. A [Listener] receives the hints of all replicas for
// all watchers of its process and reads the log for them. A hint is never
// needed: what is lost is found by polling, and what a watcher gets always
// comes from the log, so it is committed (G5).
//
// # Guarantees
//
//   - C08, a watcher gets each record once and in order, also those committed
//     while it starts: TestWatch_StartupWindow.
//   - C12, watchers go on while the listening connection is dead, and it is
//     replaced: TestListener_ConnectionKilled, TestListener_NotificationsLost.
//   - C23, C24, hints have transactions of their own, at most one for each
//     interval, with payloads below the limit: TestNotifier_CoalescesAndSplits.
//   - C28, an append never waits for a hint, and a failing hint is no error:
//     TestNotifier_FailureBlocksNobody.
//   - G8, watchers of one run share one read, and all watchers of a process
//     share one statement: TestWatch_SharedReads.
//
// The package is internal to pgexec: no compatibility is promised.
package feed
