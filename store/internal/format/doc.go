// Package format defines how the rows of a database are written in a file: the numbers of the
// tables, and the payloads, the places and the checksums of their rows.
//
// It knows nothing of the pages of a file or of versions in memory. Packages table and file
// exchange its types: a [Write] for each row that a commit changes, a [Chunk] of rows that were
// read, and a [Tally] of all rows.
package format
