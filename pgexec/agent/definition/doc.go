// Package definition is what pgexec.agents holds of an agent, and what a run of
// kind agent is given: the Go form of both, and what is wrong with one that is
// not valid, in words that name the field.
//
// What is valid is said once for each, by a JSON Schema, which this package and
// the triggers of the database interpret alike. It uses the part of JSON Schema
// that this needs, and three things in a sense of its own: a title says what a
// value must be, a field that is writeOnly is never shown, and an alternative is
// told by its discriminator, its type, or the fields it requires.
//
// # Guarantees
//
//   - The Go structs have the fields of the schemas, no more and no fewer: TestSchemas_AreThoseOfTheStructs.
//   - The database refuses what this package refuses, with the same words: TestParse_TheDatabaseSaysTheSame.
//   - Any other validator of JSON Schema finds the same: TestSchemas_MeanWhatJSONSchemaSays, TestSchemas_EveryFieldIsTheSameToAll.
//   - No error shows a secret, not even one in the wrong place: TestParse_ShowsNoSecret.
//
// No compatibility of its Go API is promised, only that of definitions and inputs.
package definition
