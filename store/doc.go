// Package store keeps lockd's rows: ordered, versioned tables in memory over a bbolt file.
//
// The package promises no compatibility: it is exported only so that the packages of lockd can
// share it. It joins two packages that do not import each other: internal/table has the rows in
// memory, and internal/file has them on disk.
//
// # Model
//
// A [Store] has a fixed set of tables. The caller has one lock, and holds it for every method that
// writes, and for every method that reads what is not published yet. Any goroutine may read what is
// published, at any time, without the lock: one row by a table's Get, all rows by the snapshot that
// Cached returns. After a publication Cached returns nil until Snapshot, called under the lock, has
// made the new snapshot.
//
// A write belongs to a transaction, which has one index (Next). Undo takes the transaction back.
// Seal keeps it, unpublished, in the open batch. Without a file, PublishMemory publishes it at
// once. With a file, Take closes the open batch, and [Store.Write] commits it, without the lock,
// while the next batch fills. Then Publish publishes the batch; or, if the commit failed, Drop
// takes it back, together with the next batch, which was decided on it.
//
// The package has no rules about sessions, locks or waiters. It reads a clock only to wait for the
// lock of a file.
package store
