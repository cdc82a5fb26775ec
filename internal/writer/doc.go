// Package writer is the one way to write to a database: it orders all writes under one mutex,
// gathers them in batches, commits each batch with one sync, and tells the outcome. It reads the
// clock: when a write begins, when the function of an Update has returned, and around each commit.
// It sets the one timer for what is due. It has no rules: package engine decides what a write does,
// and what is due.
//
// # A write
//
// [Writer.Do] locks the mutex, ends what is due, and runs the write in a transaction of its own.
// The write joins the open batch and unlocks the mutex. The first call to join leads the batch: it
// commits the batch, while other calls decide and join the next one. All calls of a batch return
// when the batch is durable, or with its error. A call that was refused waits too, if the state
// that it saw is not durable.
//
// A batch that cannot be committed is dropped, together with the batch that was filled meanwhile.
// What is due is then tried again, after a backoff.
//
// # The mutex
//
// A call that holds the mutex does no I/O, does not wait, and runs no user code except the methods
// of the clock. While the function of an Update runs, the mutex is free, and no other call writes.
package writer
