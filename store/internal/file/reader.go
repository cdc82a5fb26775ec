package file

import "github.com/lockd/lockd/store/internal/format"

// Reader takes the rows of a file.
type Reader interface {
	// begin is called before the first row, with what the last commit left. Rows that were taken
	// before do not count.
	Begin(index uint64, left format.Tally)

	// rows is called with all rows, table by table and in the order of the keys; those of the log
	// are in their places. The chunk is valid until it returns, and not to be changed.
	Rows(table byte, c *format.Chunk)

	// end is called after the last row, and returns what is wrong with any of them.
	End() error
}
