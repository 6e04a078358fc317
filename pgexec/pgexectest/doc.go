// Package pgexectest is for tests of node kinds and of agents: a database for
// each test, a replica in the test's own process, and a model that answers as a
// script says.
//
// docs/testing.md shows a whole test.
//
// # Guarantees
//
//   - Each test has a migrated database to itself: TestDB_IsTheTestsOwn.
//   - Run gives the run as it ended, its nodes in the order of the log:
//     TestRun_GivesTheRunAndItsNodes, TestRun_GivesARunThatFailed.
//   - A run that is paused is given as such, not waited for: TestRun_GivesARunThatIsPaused.
//   - Replicas and models are gone when the test is: TestMain, with goleak.
package pgexectest
