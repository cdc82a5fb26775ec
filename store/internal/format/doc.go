// Package format says what the rows of a database are in a file: the numbers of the tables, the
// payloads of their rows, where in a table they lie, and their checksums.
//
// It knows nothing of pages, of where a file has the rows, nor of versions in memory. The packages
// table and file hand each other what is here: a [Write] for each row that a commit changes, a
// [Chunk] of rows that were read, and a [Tally] of all rows.
package format
