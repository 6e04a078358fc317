// Package fakemodel is a model server for tests and demonstrations: it answers
// as a script says, speaks OpenAI's chat completions and Anthropic's messages,
// streamed or not, and keeps what it was asked.
//
// It knows nothing of a conversation but what the request holds. So whoever asks
// again after a crash gets the same reply, from any server with that script;
// only `times` and `attempt` of a rule count what went before.
//
// docs/testing.md describes the script.
//
// # Guarantees
//
//   - The official SDKs read what it sends, streamed and not, as the script has
//     it: TestOpenAI_SDKReadsTheScript, TestAnthropic_SDKReadsTheScript.
//   - pgexec's own client holds a long conversation with it, defective calls
//     included, and takes each failure for what it is:
//     TestServer_OwnClientHoldsALongConversation, TestServer_OwnClientKnowsTheFailures.
//   - A conversation that the real APIs refuse is refused in their form, so an
//     agent that passes keeps its conversations valid (C46):
//     TestOpenAI_RefusesWhatTheAPIRefuses, TestAnthropic_RefusesWhatTheAPIRefuses.
//   - Thinking has to come back byte for byte (C47): TestAnthropic_ThinkingComesBackUnchanged.
//   - Equal requests get equal bytes: TestServer_EqualRequestsGetEqualReplies.
//   - A broken reply has no terminal marker (C50): TestServer_BrokenStreams.
//   - A mistake in a script is an error that names its line: TestLoad_NamesTheMistake.
//   - API keys are not kept: TestServer_KeepsNoKeys.
//
// No compatibility is promised but that of scripts and of [Request], which package pgexectest shows.
package fakemodel
