// Package table has the rows of a database in memory: ordered, versioned tables. It has no file: a
// [Batch] says what a commit has to write, and a [Loading] takes what was read.
//
// # Versions
//
// A row is a cell in a hash table; the cell points to the newest version, and each version to the
// newest one before it that may still be needed. There are at most three: one that is published,
// one that is being committed and one in the open batch. A reader loads the published index, and
// walks from the newest version to the first that is not above it. The order of a table's rows lags
// behind the cells, and catches up when it is read. A snapshot is a clone of the orders of all
// tables, with the published versions in place of those that are not published yet.
//
// A leaf that was read from a file stays as it was read until the writer looks for a key in it.
// Until then its rows have no cells, and are decoded for each reader. So a database opens nearly as
// fast as its rows are verified, and rows that the writer never looks for take little more memory
// than in the file.
//
// When the writer looks for a key in a leaf, all rows of the leaf get cells, in memory of their
// own, and the leaf is freed. Until the order is next cloned or read, it refers to the cells, and
// not to their versions; so versions that are replaced before that are freed. Few versions share a
// piece of memory, so that a history that keeps one version keeps few others alive.
package table
