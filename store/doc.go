// Package store keeps lockd's rows: ordered, versioned tables in memory over a bbolt file.
//
// It makes no promise of compatibility: it is the library's own, exported only so that the
// packages of one module can share it.
//
// # Model
//
// A [Store] has a fixed set of tables. There is one writer: every method that writes, and every
// method that reads what is not published yet, is called under one lock, the caller's. Anybody may
// read what is published, at any time, without a lock: a row by [Table.Get], the whole by the
// snapshot that [Store.Cached] has. The first after a publication has to be made by
// [Store.Snapshot], under the lock.
//
// A write belongs to a transaction, which has one index ([Store.Next]). [Store.Undo] takes the
// whole of it back; [Store.Seal] keeps it, and from then on it waits to be published. In memory
// [Store.Publish] does that at once. In a file, [Store.Take] closes the open batch, [Batch.Write]
// commits it with no lock held while the next batch fills, and then
// [Store.Publish] shows it to readers, or [Store.Drop] takes it back together with the batch that
// was filled meanwhile, which was decided on it.
//
// # Versions
//
// A row is a cell in a hash; the cell points to the newest version, and a version to the newest
// one before it that may still be needed: at most one that is published, one being committed and
// one in the open batch. A reader loads the published index, and walks from the newest version to
// the first that is not above it. The order of the rows is behind the cells: it catches up when
// somebody needs it. A snapshot is a clone of the orders, with the published versions in place of
// those that are not published yet.
//
// What is read from a file stays as it was read, a leaf page at a time, until somebody writes to
// the page: until then its rows have no cells, and are decoded for each reader. So a store opens
// nearly as fast as its rows are verified, and what nobody touches takes little more memory than it
// takes in the file.
//
// When the page is written to, all its rows get cells, in memory of their own, and the page is let
// go. The order has the cells themselves until it is next cloned or read, and so none of the
// versions that are replaced before that. Few versions share their memory, so that who keeps one,
// as a history does, keeps little beside it.
//
// # File
//
// A file has a table as a bucket of bbolt's. A commit writes its rows to a log in the file, which
// is synced once; a checkpoint takes them to the pages of the tables later, in steps, beside the
// commits. The package's README says where all of it is.
//
// The package knows no clock, no rule about sessions or locks, and no waiting.
package store
