// Package engine has the rules of lockd: what a write may change, and what follows from it.
//
// It is a deterministic state machine. An operation and an instant go in. Rows, effects and events
// come out: rows in the tables of the store, effects in the order in which they have to be told,
// and events for those who watch. The same operations at the same instants give the same rows,
// effects and events, for no iteration of a map decides anything. The package starts no goroutine,
// has no channel and no mutex, reads no clock and does no I/O; its caller holds one lock around
// every call, unless a method says otherwise.
//
// # Transactions
//
// [Engine.Begin] begins a transaction, of which there is one at a time. The methods of [Txn] apply
// one rule each to the newest state, the transaction's own writes included. [Txn.Undo] takes all
// of them back. [Txn.Seal] keeps them: it hands every lock that was freed to the first waiter, and
// gives the whole one index.
//
// # Batches
//
// In memory, what is sealed is published at once. On a file it joins the open [Batch], and is
// published when that is durable: [Engine.Take] closes the open batch, and [Engine.Publish] or
// [Engine.Drop] ends it. A batch that is dropped takes the one that was filled meanwhile with it,
// which was decided on it. There are two batches at most: one being committed and the open one.
//
// # Owners
//
// A [Session], a [Hold] and a [Waiter] are part of a handle of the caller's, which is their Owner.
// An [Outcome] names them, so that the caller can tell its handles.
package engine
