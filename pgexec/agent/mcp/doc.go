// Package mcp calls the tools of MCP servers, over stdio and streamable HTTP.
// It knows nothing of runs and databases: a session is a replica's own and is
// made again when lost, so whatever must outlive a replica is in what [Pool.Call]
// returns.
//
// The protocol is spoken by the official SDK, at version 2026-07-28 and older
// ones. What is here is what a durable runtime needs on top: sessions that come
// back, an answer to "may that call have taken effect?", requests for input that
// wait for days, and results byte for byte.
//
// A server may ask for input in the result of a call (2026-07-28) or with error
// -32042 (2025-11-25). Both are returned as [InputNeeded]. A server of an older
// protocol that asks in the middle of a call, with a request of its own, has
// nobody to ask: this client does not declare that it could, and answers with an
// error that says so. The tool then ends as it does for any such client.
//
// # Guarantees
//
//   - A call that certainly did not reach its server is repeated once, on a new session; of any other the error says
//     whether it may have run: TestCall_ARestartedHTTPServerGetsTheCallOnce, TestCall_ADeadProcessIsStartedAgain,
//     TestCall_AProcessKilledInACallMayHaveRun, TestCall_ACutResponseMayHaveRun, TestCall_AStatusSaysWhetherItMayHaveRun,
//     TestCall_AStreamIsResumedOrMayHaveRun, TestConnect_ABreakAtAnyStepRunsNothing.
//   - A server out of reach for a moment is not taken for one of an older protocol: TestConnect_AServerOutOfReachIsNotTakenForAnOldOne.
//   - A cancelled call ends at once, its session is not used again, and other calls of that session go on:
//     TestCall_ACancelledCallEndsAndOthersGoOn, TestCall_AProcessThatReadsNothingDoesNotHoldTheCaller.
//   - One call's broken response ends no other call: TestCall_ACutResponseEndsNoOtherCall, TestCall_ATooLargeResultEndsNoOtherCall.
//   - Results reach the caller as sent, huge numbers and unknown kinds of content included: TestCall_ResultsComeByteForByte.
//   - A result over [MaxResultBytes] is [ErrTooLarge] and is never held in memory as a whole: TestCall_ATooLargeResultEndsNoOtherCall.
//   - A request for input is answered days later, by any pool: TestCall_InputIsGivenLaterByAnotherPool.
//   - Commands come from the replica's configuration alone: TestCall_ACommandComesOnlyFromTheConfiguration.
//   - No process outlives its pool, and on Linux none its replica: TestClose_EndsProcessesAndTheirChildren,
//     TestProcess_DiesWithAKilledReplica.
//   - Values of headers and environment variables are in no error and no log line: TestSecrets_AreInNoErrorAndNoLog; no other
//     host gets the headers: TestHTTP_HeadersStayWithTheirHost.
//
// No compatibility is promised but that of [Server], which package agent takes.
package mcp
