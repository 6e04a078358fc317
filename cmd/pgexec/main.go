// Command pgexec migrates a database, serves runs, starts and shows them.
//
// # Guarantees
//
//   - The first SIGTERM or SIGINT drains a replica and exits 0, also during
//     start-up; the second one ends it at once: TestServe_SignalInStartUpExitsZero,
//     TestServe_SecondSignalEndsAtOnce.
//   - The pool closes last, after everything in flight is recorded (C20):
//     TestServe_DrainRecordsWhatIsInFlight.
//   - Readiness fails from the first moment of a drain: TestServe_NotReadyFromTheFirstMomentOfADrain.
//   - What goes wrong with a database is said with what to do about it, and never
//     with a password: TestExplain.
//   - An interrupted demo leaves no process and no folder: TestDemo_InterruptLeavesNothing.
package main

import "os"

func main() {
	os.Exit(execute(catchSignals(), os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
