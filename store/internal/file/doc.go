// Package file has the rows of a database on disk: a file of bbolt's, in which each table is a
// bucket, with a log in it. It opens and locks the file, verifies it page by page before bbolt sees
// it, and commits batches; it compacts, backs up, and recovers what is left of a damaged file. It
// knows no version of a row, and of what a row says only what a backup has.
//
// The README of the package store says where all of it is.
//
// # The log
//
// A commit writes its rows to the log, which is synced once, and not to the pages of the tables,
// which bbolt would have to read, split, write and sync, and then the meta page that makes them
// valid. A checkpoint takes the rows to their tables later, in order, so that neighbours share a
// page, and without those that were written again since.
//
// The log has two segments, each a value of bbolt's that is overwritten in place. Records go to one
// of them, the filling segment. The rows of the other, the settled segment, are taken to the tables
// meanwhile, in steps, each a transaction of bbolt's. When the filling segment is full, nothing in
// the settled one counts any more, and they change places. A record counts from the sync that ends
// its commit until a header is on disk that says so no more.
//
// What has to hold, at any time and after any crash, is one thing: the rows of the last commit are
// those of the tables, with those of the records that count in their places, the newest last. It
// follows from these invariants.
//
//  1. The tables and the header change together. A step and what the header says of it, which
//     records count and how far the checkpoint is, are one transaction of bbolt's, of which a
//     crash leaves all or nothing. A row that a step has taken may stay in its record, which says
//     the same of it; one that a newer record has is not taken, and if such a record comes while
//     the step is under way, it is read after the table.
//  2. A record that counts is not overwritten. A record goes behind the last one in its lane, and
//     to the start of the other segment only after finish: the header that is on disk then says
//     that no record in that segment counts. If a step has failed, and it is not known whether it
//     is in the file, nothing is written any more.
//  3. Only the newest record may be half on disk. A record is begun when the one before is on
//     disk, and commits come one at a time. Each sector has a checksum that covers its place, so a
//     half record is told from a whole one, and from damage. One whose write has failed is
//     withdrawn, and its sectors are empty on disk before the next one is written.
//  4. Records are read in the order of their numbers, which have no gap. A number is used again
//     only for a record that was withdrawn, by invariant 3. So the record after which reading ends
//     is the newest, unless a later one is there: then the disk has lost a write, and the file is
//     refused. The records go to two lanes in turn, which share no page, so that a page that is
//     lost as a whole has the newest record or is found out in this way.
//  5. A segment is known to the commit of bbolt's before the last. If the newest meta page is
//     damaged, the one before it is read, and its tables have no segment that the last commit
//     made. So no record goes to a segment before another commit has followed: see young.
//  6. What this process builds on is on disk. Before it writes anything new, it has the newest
//     record and the newest meta page, which the process before may have left in memory only,
//     written again and synced: see inherit. Writes and syncs come one at a time, so that the
//     error of a sync reaches the commit whose write it is about: see disk.
//
// A log that cannot be made for want of room is done without: its commits go to the tables. A
// commit that is too large for the log goes there too, with all that the log has; its header says
// that no record counts.
package file
