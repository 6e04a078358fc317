// Package schema makes, upgrades and removes everything pgexec keeps in a database: its own
// tables, functions and views, and beside them River's.
//
// Our migrations are the numbered files of migrations/, each applied in a transaction of its own
// together with its row in pgexec.schema_migration. River's migrations are applied by River's own
// migrator, before ours and outside of our transactions, because some of them cannot share one.
//
// The compatibility promise of the module does not cover this package.
//
// # Guarantees
//
//   - Two migrators at once, in one process or several, apply each migration once and both succeed:
//     TestUp_ManyAtOnceApplyEachMigrationOnce, TestUp_TwoProcessesAtOnce.
//   - A migrator neither waits nor holds its lock with a snapshot (C34): TestUp_WaitsForAnotherMigratorWithoutASnapshot,
//     TestUp_HoldsItsLockWithoutASnapshot.
//   - A migration lands whole, with its version row, or not at all: TestUp_AFailedMigrationLeavesNothing.
//   - Up after Down gives the schema that Up alone gives: TestDown_UpDownUpGivesTheSameSchema.
//   - The database may have any name, and the role needs no more than CREATE on it, or an empty
//     schema pgexec of its own: TestUp_DatabaseOfAnyName, TestUp_RoleWithCreateOnDatabase, TestUp_RoleThatOwnsTheSchema.
//   - A run's wake is made in the transaction that inserts the run, one for each, with a right to INSERT and no other (G4):
//     TestRunsInsert_MakesOneWakeInTheCallersTransaction, TestRunsInsert_TenThousandAtOnce, TestInsert_NeedsNoOtherRight.
//   - A signal is in the inbox, and a parked run is woken by it, in the sender's transaction (G4): TestSignalsInsert_WakesAParkedRunOnce.
//   - A request answers in every state of a run, and reaches the whole tree (C15, C41): TestControl_AnswersInEveryState_C15,
//     TestControl_ReachesTheWholeTree_C41.
//   - A signal is sent once with the same dedupe key: TestSignal_DedupeKey; one that nothing can consume is refused: TestControl_Refusals.
//   - What people ask of runs does not read all of them: TestViews_DoNotReadAllRuns. What cannot be is refused in words:
//     TestRunsInsert_RefusesWhatMakesNoSense, TestTasks_UsageIsRefusedInWords.
//   - Requests need the use of the schema, and give no more: TestControl_NeedsOnlyUsageOfTheSchema.
//   - Making partitions never waits for a reader, and appends go on: TestEnsurePartitions_DoesNotWaitForAReader.
//   - Any record, damaged ones and those of later versions included, and any payload is shown in SQL without an error
//     (C29, G9): TestDecode_NeverAnError, TestDecode_SkipsUnknownFields, TestJSONLossy_ShowsWhatJSONBCannotHold.
//   - decode shows every field of the record format: TestDecode_EveryFieldOfTheFormat.
//   - A database that is not as this build needs it is refused with words that say what to do:
//     TestCheck_SaysWhatToDo.
package schema
