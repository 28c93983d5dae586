// Package database is what every store of Allod stands on: one file per party,
// opened by URL, with migrations, one writer and many readers.
//
// # Writing
//
// [DB.Write] takes a function. One goroutine runs the functions of all callers
// one after another and commits those that had queued up together. Syncing is
// what a commit costs, so a group of 32 costs about as much as one. A caller
// gets its answer after the commit is on the disk, never before:
//
//   - nil: the function's writes are durable.
//   - the function's own error: its writes are undone, those of its neighbours
//     are not. It too is told only after the commit, because the function may
//     have refused for something that a neighbour wrote and that is now durable.
//   - an error of the commit: nothing of the group is acknowledged. Every caller
//     of the group gets this error, even one whose function had failed for a
//     reason of its own. After a crash the group may turn out to be there as a
//     whole, as with any commit whose answer is lost, so callers who try again
//     do so by an identifier of their own.
//
// # Reading
//
// [DB.Read] gives a function one snapshot. What a returned Write wrote is in
// every snapshot begun afterwards.
//
// # Waiting
//
// [DB.Subscribe] signals commits, so that whoever waits for a change need not ask
// again and again. Functions say what they change with [Tx.Tell], and subscribers
// what they wait for.
//
// # What this package refuses to do
//
// It opens no file that another party made, that a newer binary migrated, or
// that is no database. It never changes a schema before a copy of the file is
// on the disk, and never writes over a copy. It interprets no row: what a table
// means is for the store that made it. It does not encrypt: the file is as
// secret as its folder, and mode 0600 is all that it adds.
package database
