// Package ownership pins runs to replicas. A replica holds one advisory lock on
// one session; a run belongs to the replica that runs.owner names for as long
// as that lock is held. The lock proves that the owner lives, the log fences
// the owner when it does not.
//
// The package is internal to pgexec: no compatibility is promised.
package ownership
