// Package store keeps lockd's rows: ordered, versioned tables in memory over a bbolt file.
//
// It makes no promise of compatibility: it is the library's own, exported only so that the
// packages of one module can share it. It puts together two packages of its own that do not know
// each other: internal/table has the rows in memory, and internal/file has them on disk.
//
// # Model
//
// A [Store] has a fixed set of tables. There is one writer: every method that writes, and every
// method that reads what is not published yet, is called under one lock, the caller's. Any
// goroutine may read what is published, at any time, without a lock: a row by the Get of a table,
// the whole by the snapshot that Cached returns. The first snapshot after a publication has to be
// made by Snapshot, under the lock.
//
// A write belongs to a transaction, which has one index (Next). Undo takes the whole of it back;
// Seal keeps it, and from then on it waits to be published. In memory PublishMemory publishes it at
// once. In a file, Take closes the open batch, [Store.Write] commits it with no lock held while the
// next batch fills, and then Publish shows it to readers, or Drop takes it back together with the
// batch that was filled meanwhile, which was decided on it.
//
// The package knows no clock, no rule about sessions or locks, and no waiting.
package store
