// Package llm asks a model for one turn: it encodes a conversation, streams the
// answer and puts it together. It knows two wire formats, OpenAI's chat
// completions and Anthropic's messages, and no database: what a turn gives is for
// the caller to record, and what a failure asks for, such as a wait of an hour, is
// for the caller to do.
//
// A conversation is the assistant messages that the provider sent, untouched, and
// what was said to them; the official SDKs carry the bytes, and nothing else of
// them is used. Their accumulators lose calls, fields they do not know, and the
// difference between a call that was cut off and one without arguments.
//
// # Guarantees
//
//   - Real conversations come out as they were, and are sent on as they were:
//     TestCassettes_GiveTheRecordedConversation.
//   - A call is executable or has a fault (C45): TestCall_UnusableArgumentsAreAFaultAndStayInTheMessage_C45,
//     TestCall_CutByTheLimitHasAFault_C45.
//   - No request is sent that lacks the result of a call (C46): TestEncode_RefusesWhatTheProviderWould_C46.
//     What a turn gives can always be sent back: TestProperty_WhatATurnGivesCanBeSentBack_C46.
//   - Reasoning, signatures and all that is not known are sent back byte for byte (C47):
//     TestOpenAI_WhatTheServerAddsIsSentBack_C47, TestAnthropic_BlocksAreKeptByteForByte_C47.
//   - Parallel calls are told apart by id, index, position, in any interleaving (C48):
//     TestOpenAI_ParallelCallsAreToldApart_C48, TestProperty_AnyInterleavingGivesTheSameCalls_C48.
//   - One call of Do is one request; what the provider asks to wait is returned (C49):
//     TestError_OneRequestIsSent_C49, TestError_SaysHowLongToWait_C49.
//   - No answer without its end marker is a success (C50): TestStream_WithoutEndMarkerIsNeverASuccess_C50.
//   - A request begins with the bytes of the one before, up to the end of its messages (C51):
//     TestProperty_TheNextRequestBeginsWithThisOne_C51.
//   - A silent or endless answer ends: TestDo_SilenceAndLengthEndATurn.
//   - No error and no answer shows a key: TestError_NeverShowsTheKey, TestTurn_NeverShowsTheKey.
//
// The package is internal to pgexec: no compatibility is promised.
package llm
