// Package file keeps the rows of a database on disk: a bbolt file, in which each table is a bucket,
// with a log in it. It opens and locks the file, verifies it page by page before bbolt opens it,
// commits batches, compacts the file, writes backups, and recovers rows from a damaged file. It
// knows nothing of the versions of a row, and of the content of rows only what a backup has.
//
// The README of package store describes the layout of the file.
//
// # The log
//
// A commit writes its rows to the log, which is synced once. It does not write them to the pages of
// the tables: bbolt would have to read, split, write and sync those, and then the meta page that
// makes them valid. A checkpoint moves the rows to their tables later, in order, so that neighbours
// share a page, and leaves out the rows that were written again since.
//
// The log has two segments, each a value of bbolt's that is overwritten in place. Records go to one
// of them, the filling segment. The rows of the other, the settled segment, are moved to the tables
// meanwhile, in steps, each a transaction of bbolt's. When the filling segment is full, no record
// in the settled one counts any more, and the two change places. A record counts from the sync that
// ends its commit until a header that says otherwise is on disk.
//
// One thing has to hold, at any time and after any crash: the rows of the last commit are the rows
// of the tables, with the rows of the records that count in their places, the newest last. It
// follows from these invariants.
//
//  1. The tables and the header change together. The rows of a step, and the header after the step
//     (which records count, and how far the checkpoint is), are one transaction of bbolt's, of
//     which a crash leaves all or nothing. A row that a step has moved may stay in its record,
//     which has the same content. A step leaves out a row that a newer record has; if such a record
//     comes while the step runs, the record is read after the table.
//  2. A record that counts is not overwritten. A record goes behind the last one in its lane, and
//     to the start of the other segment only after finish: the header that is on disk then says
//     that no record in that segment counts. If a step has failed, and it is not known whether it
//     is in the file, nothing is written any more.
//  3. Only the newest record may be half on disk. A record is begun when the one before is on disk,
//     and commits come one at a time. Each sector has a checksum that covers its place, so a half
//     record can be told from a whole one and from damage. A record whose write has failed is
//     withdrawn, and its sectors are empty on disk before the next record is written.
//  4. Records are read in the order of their numbers, which have no gap. A number is used again
//     only for a record that was withdrawn, by invariant 3. So the record after which reading ends
//     is the newest, unless a later one is there: then the disk has lost a write, and the file is
//     refused. The records go to two lanes in turn, which share no page, so that a page that is
//     lost as a whole had the newest record, or the loss is found out in this way.
//  5. A segment that has records is known to bbolt's commit before the last. If the newest meta
//     page is damaged, the one before it is read, and its tables have no segment that the last
//     commit made. So no record goes to a segment before another commit of bbolt's has followed the
//     one that made the segment: see young.
//  6. What this process builds on is on disk. Before it writes anything new, it writes again and
//     syncs the newest record and the newest meta page, which the previous process may have left
//     unsynced: see inherit. Writes and syncs come one at a time, so that the error of a sync
//     reaches the commit whose write it is about: see disk.
//
// If there is no room to make a log, the commits go to the tables. A commit that is too large for
// the log goes there too, with all rows of the log; its header says that no record counts.
package file
