// Package agent has the stock agent: kinds of nodes that make a run of kind
// agent out of a definition in pgexec.agents, without any code of the user.
//
// A run is a graph of model turns and tool calls. Node root pins the definition
// and the tools; turn-1, turn-2 … ask the model once each; the calls of turn N are
// call-N-1, call-N-2 …, all at once, and turn N+1 starts when all of them are
// done. A turn records its own assistant message and nothing else: what the model
// is sent is put together from the log each time. docs/agents.md has the rest.
//
// # Guarantees
//
//   - What the model is sent is a function of the log: each request begins with the bytes of the one before, also on another
//     replica, but for a summary between (C51): TestTakeover_RequestsHaveACommonPrefix_C51, TestConversation_OnlyGrowsAtItsEnd_C51.
//   - Each call has one result, whatever became of it (C45, C46): TestRandom_EveryConversationIsValid_C46, TestConversation_KCallsHaveKResults_C45_C46,
//     TestContinue_ARunThatEndedInTheMiddleOfATurnIsValid_C46, TestCompact_NothingIsLostAndNoCallLosesItsResult_C46.
//   - Assistant messages are kept and sent back byte for byte (C47): TestTurn_ThinkingComesBackByteForByte_C47,
//     TestTurnOutput_KeepsTheMessageByteForByte_C47.
//   - A provider's wait is the run's, not a replica's (C49): TestTurn_RetryAfterIsWaitedForDurably_C49.
//   - An answer without its end is no answer (C50): TestTurn_FaultsOfTheProviderAreTriedAgain_C50.
//   - A limit keeps everything: one last turn, then a pause that a higher limit ends (C44):
//     TestLimits_LastTurnThenPausedThenResumed_C44, whatever reaches it: TestLimits_ReachedInFlightHaveTheirLastTurnToo_C44,
//     TestLimits_OfTimeHaveTheirLastTurn_C44.
//   - An approval is for one call, and holds no other one up (C38, C40): TestApproval_GatedAndUngatedCallsOfOneTurn_C38_C40.
//   - Cancelling reaches the calls of sub-agents (C41): TestSubAgent_CancelReachesItsCallsInFlight_C41.
//   - Keys are in no record and no row: TestSecrets_AreInNoRecord.
//   - What one replica lacks, a key, a command or a role, fails no run while another one has it: TestReplica_WhatItLacksAnotherOneMayHave.
//   - What the model answered is not asked again because the database is away for a moment: TestTurn_AnAnswerOutlivesAPauseOfTheDatabase.
//   - All of it holds while replicas are killed: TestAgents_SixtyTurnsWithReplicasKilledEveryTwoSeconds, in module integration.
package agent
