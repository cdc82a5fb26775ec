// Package writer is the one way to write to a database: it orders all writes under one mutex,
// gathers them in batches, commits each batch with one sync, and tells the outcome. It reads the
// clock, once for each write, and sets the one timer. It knows no rule: package engine decides what
// a write does, and what is due.
//
// # A write
//
// [Writer.Do] locks the mutex, ends what is due, and runs the write in a transaction of its own.
// The write joins the open batch and unlocks the mutex. The first to join leads the batch: it
// commits it, while others decide and join the next one. All of them return when the batch is
// durable, or with its error. A write that was refused waits too, if what it saw is not durable.
//
// A batch that cannot be committed is dropped, together with the batch that was filled meanwhile.
// What is due is then tried again, after a backoff.
//
// # The mutex
//
// Under the mutex there is no I/O, no waiting, and no user code except the methods of the clock.
// The mutex is not locked while the function of an Update runs, and nothing else is written then.
package writer
