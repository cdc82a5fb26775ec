// Package table has the rows of a database in memory: ordered, versioned tables. It knows no file:
// a [Batch] says what a commit is to write, and a [Loading] takes what was read.
//
// # Versions
//
// A row is a cell in a hash table; the cell points to the newest version, and each version to the
// newest one before it that may still be needed. There are at most three: one that is published,
// one that is being committed and one in the open batch. A reader loads the published index, and
// walks from the newest version to the first that is not above it. The order of the rows is behind
// the cells: it catches up when it is read. A snapshot is a clone of the orders, with the published
// versions in place of those that are not published yet.
//
// A leaf that was read from a file stays as it was read until the writer looks for a key in it:
// until then its rows have no cells, and are decoded for each reader. So a database opens nearly as
// fast as its rows are verified, and rows that the writer never looks for take little more memory
// than in the file.
//
// Then all rows of the leaf get cells, in memory of their own, and the leaf is freed. The order has
// the cells themselves until it is next cloned or read, and so none of the versions that are
// replaced before that. Few versions share memory, so that a history that keeps one version keeps
// little beside it.
package table
