// Package throttle keeps the limits that hold for a kind of nodes in the whole
// fleet: at most so many in flight at once, and at most so many starts in a
// time, for the kind or for each key of it.
//
// What is in flight is counted in slots: rows that a replica takes in batches,
// uses for one node after the other, and gives back when it has no more use for
// them or others starve. No row is common to all replicas, so none is hot. A
// rate is one row for each kind and key in use, from which a replica buys what
// its waiting nodes need, some times a second at most.
//
// # Guarantees
//
//   - Never are more slots taken than a limit has, by primary key; each is used by one
//     node at a time: TestThrottle_NeverMoreThanTheLimit.
//   - The slots of a replica that died are free in the transaction that takes it
//     off the list, and not before; it starts nothing with them then:
//     TestThrottle_BurialFreesSlots, TestThrottle_NoSlotIsUsedUnconfirmed.
//   - A replica that waits gets a slot although others are saturated:
//     TestThrottle_NobodyStarves.
//   - A changed limit is seen within two seconds: TestThrottle_LimitsChange. A
//     higher one holds then; a lower one as nodes end.
//   - In any time T at most burst + rate·T nodes of a rate start, wherever they are,
//     where starts within a tenth of a second are not told apart: TestThrottle_RateHolds. What is
//     bought for nodes that do not start is given back: TestThrottle_UnusedTokensAreGivenBack.
//   - An answer that is lost loses no slot: TestThrottle_LostAnswer.
//   - A parked run that waits for a limit is woken when it may start, whatever else
//     is lost (G4): TestThrottle_SweepWakesTheOldest.
//
// The package is internal to pgexec: no compatibility is promised.
package throttle
