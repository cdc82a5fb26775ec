// Package file has the rows of a database on disk: a file of bbolt's, in which each table is a
// bucket, with a log in it. It opens and locks the file, verifies it page by page before bbolt sees
// it, and commits batches; it compacts, backs up, and recovers what is left of a damaged file. It
// knows nothing of the versions of a row, and of its content only what a backup has.
//
// The README of the package store says where all of it is.
//
// # The log
//
// A commit writes its rows to the log, which is synced once. It does not write them to the pages of
// the tables: bbolt would have to read, split, write and sync those, and then the meta page that
// makes them valid. A checkpoint takes the rows to their tables later, in order, so that neighbours
// share a page, and without the rows that were written again since.
//
// The log has two segments, each a value of bbolt's that is overwritten in place. Records go to one
// of them, the filling segment. The rows of the other, the settled segment, are taken to the tables
// meanwhile, in steps, each a transaction of bbolt's. When the filling segment is full, nothing in
// the settled one counts any more, and they change places. A record counts from the sync that ends
// its commit until a header that says otherwise is on disk.
//
// One thing has to hold, at any time and after any crash: the rows of the last commit are the rows
// of the tables, with the rows of the records that count in their places, the newest last. It
// follows from these invariants.
//
//  1. The tables and the header change together. A step, and what the header says after it (which
//     records count, and how far the checkpoint is), are one transaction of bbolt's, of which a
//     crash leaves all or nothing. A row that a step has taken may stay in its record, which says
//     the same of it. A row that a newer record has is not taken; if such a record comes while the
//     step is under way, the record is read after the table.
//  2. A record that counts is not overwritten. A record goes behind the last one in its lane, and
//     to the start of the other segment only after finish: the header that is on disk then says
//     that no record in that segment counts. If a step has failed, and it is not known whether it
//     is in the file, nothing is written any more.
//  3. Only the newest record may be half on disk. A record is begun when the one before is on disk,
//     and commits come one at a time. Each sector has a checksum that covers its place, so a half
//     record is told from a whole one, and from damage. A record whose write has failed is
//     withdrawn, and its sectors are empty on disk before the next record is written.
//  4. Records are read in the order of their numbers, which have no gap. A number is used again
//     only for a record that was withdrawn, by invariant 3. So the record after which reading ends
//     is the newest, unless a later one is there: then the disk has lost a write, and the file is
//     refused. The records go to two lanes in turn, which share no page, so that a page that is
//     lost as a whole had the newest record, or the loss is found out in this way.
//  5. A segment that has records is known to bbolt's commit before the last. If the newest meta
//     page is damaged, the one before it is read, and its tables have no segment that the last
//     commit made. So no record goes to a segment before another commit has followed: see young.
//  6. What this process builds on is on disk. Before it writes anything new, it writes again and
//     syncs the newest record and the newest meta page, which the process before may have left in
//     memory only: see inherit. Writes and syncs come one at a time, so that the error of a sync
//     reaches the commit whose write it is about: see disk.
//
// If there is no room to make a log, the file does without: its commits go to the tables. A commit
// that is too large for the log goes there too, with all that the log has; its header says that no
// record counts.
package file
