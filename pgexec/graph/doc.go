// Package graph is the node graph of one run: records in, frontier out.
//
// It is pure. It knows no clock, no database and no goroutine of its own, and
// Apply is the only way a graph changes, so a graph that is being executed and
// one that is rebuilt from its log are the same graph.
//
// # Guarantees
//
//   - Replaying a log gives the graph that was executed, whatever the order in which
//     nodes ended: TestProperty_ReplayEqualsLiveExecution.
//   - Every prefix of a log is a valid state (G2): TestProperty_EveryPrefixEqualsTheNaiveModel.
//   - Logs of older builds mean what they meant (G9): TestReleased_LogsMeanWhatTheyMeant_G9.
//   - A record that cannot be part of the log is refused by name and changes nothing:
//     TestApply_CorruptLogIsNamed, TestProperty_TamperedLogNeverHarms.
//   - What Check accepts, Apply accepts, also while other records are on their way to the
//     log: TestCheck_ReservesIDsUntilTheRecordIsApplied, TestProperty_ReplayEqualsLiveExecution.
//   - A node costs the same on a graph of any size (C31): TestSchedule_CostDoesNotGrowWithTheGraph.
//   - Handlers read what ended before them without locks:
//     TestNode_HandlersReadAncestorsWhileTheOwnerApplies.
//   - Values of refs go into an input byte for byte (C29): TestResolve_EveryOtherByteStays.
//
// # Concurrency
//
// One goroutine owns a Graph and makes all calls but NewID. Handlers that run
// in other goroutines may call NewID, may read the fixed fields of any node they
// reach by walking Parents upward from their own, and may read how such a node
// ended once its Status says that it is done.
//
// The package is internal to pgexec: no compatibility is promised.
package graph
