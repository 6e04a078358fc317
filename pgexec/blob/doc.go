// Package blob keeps bytes that are too large for a record: in the database, in a directory, or in a cloud's
// object store. A record holds where they are, how many, and their SHA-256.
//
// # Guarantees
//
//   - A content is stored once in a store, however many runs refer to it: TestPut_SameContentIsStoredOnce.
//   - What is read is what was stored, or it is a [*Fault] that names the blob: TestGet_AlteredOrMissingIsAFault.
//   - A blob that a run refers to is never collected, whatever else happens at the same time:
//     TestCollect_NeverTakesWhatIsReferredTo; and one that comes back is never hit by a collector that was
//     held up: TestCollect_LateRemovalHitsNothingNew.
//   - No record refers to a blob that is not there, wherever a process is killed: TestBlobs_KilledBetweenBlobAndRecord; on
//     a real S3 server, too: TestBlobs_OnS3.
//   - What nobody refers to is collected after the grace time, also what a writer that died left behind:
//     TestCollect_TakesWhatNobodyRefersTo.
//
// # How
//
// A row of pgexec.blobs is there before the first byte is written and until after the last one is removed. The reference of a
// run is committed, with a touch of that row, before the record that refers. A collector dooms rows that were not touched for the
// grace time and that no reference names, under the row's lock and only in the version it has judged; removes the bytes of
// doomed rows; and forgets the rows. A doomed row is dead for good: when its content is stored again it gets another
// URL, so that there is no order in which a removal can hit bytes that somebody needs.
//
// The package is internal to pgexec: no compatibility is promised.
package blob
