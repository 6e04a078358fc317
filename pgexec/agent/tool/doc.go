// Package tool does the tools of an agent's definition: it pins what the model may
// call, makes a node of each call, and says what the model sees of what came of it.
//
// A call of turn N, the kth of that turn, is the node call-N-k; where a person has to
// approve it, approval-N-k comes before. What the model sees is a function of
// these nodes alone, so it is the same on every replica.
//
// # Guarantees
//
//   - A call that was approved runs as it is recorded, edited or not, and a decision is for one call (C38):
//     TestApproval_TheRecordedCallIsWhatRuns_C38.
//   - A call that cannot be made, is rejected or fails has a result that says so (C46):
//     TestHTTP_ArgumentsGoWhereTheDefinitionSays, TestApproval_TheRecordedCallIsWhatRuns_C38.
//   - A large result is cut for the model and kept whole (C52): TestResult_IsCutAndKeptWhole_C52.
//   - Images stay images: TestResult_ImagesStayImages.
//   - Arguments are parameters of a statement, which has the rights of its role and no other:
//     TestSQL_HasTheRightsOfItsRoleAlone, TestSQL_DeferredTriggersHaveTheRightsOfTheRole.
//   - A definition narrows where its tools go, redirects included: TestHTTP_ADefinitionNarrowsWhereItsToolsMayGo.
//   - Secrets are sent and never recorded, not even where a service repeats them: TestHTTP_SecretsAreSentAndNeverRecorded.
//   - An MCP tool that may have taken effect is not called again by a retry unless its server says that this makes no
//     difference: TestMCP_ACallThatMayHaveRunIsNotRepeated.
//   - A server's request for input waits for a person, on any replica: TestMCP_ARequestForInputWaitsForAPerson.
//
// The package is internal to pgexec: no compatibility is promised.
package tool
