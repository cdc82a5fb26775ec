// Package engine has the rules of lockd: what a write may change, and what follows from the write.
//
// It is a deterministic state machine. Its input is an operation and an instant. Its output is rows
// in the tables of the store, effects in the order in which the caller has to tell them, and events
// for the watchers. The same operations at the same instants give the same rows, effects and
// events, because the order of a map decides nothing. The package starts no goroutine, has no
// channel and no mutex, reads no clock and, except in [Engine.Write], does no I/O. Its caller holds
// one lock around every call, unless a method says otherwise.
//
// # Transactions
//
// [Engine.Begin] begins a transaction; only one runs at a time. Each method of [Txn] applies one
// rule to the newest state, which includes the transaction's own writes. [Txn.Undo] takes back what
// the methods did. [Txn.Seal] keeps it: it hands every freed lock to its first waiter, and gives
// the whole transaction one index.
//
// # Batches
//
// In memory, a sealed transaction is published at once. On a file it joins the open [Batch], and is
// published when that batch is durable: [Engine.Take] closes the open batch, and [Engine.Publish]
// or [Engine.Drop] ends it. Drop also drops the batch that was filled meanwhile, because that was
// decided on the taken batch. There are at most two batches: the one that is being committed, and
// the open one.
//
// # Owners
//
// Each [Session], [Hold] and [Waiter] is part of a handle of the caller, its Owner. An [Outcome]
// names them, so that the caller knows which handles to tell.
package engine
