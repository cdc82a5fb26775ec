package file

import (
	"fmt"
	"os"

	"github.com/lockd/lockd/store/internal/format"
)

// File is rows in a bbolt file, which it has open and locked. One goroutine at a time may use it; a
// step of a checkpoint may run on another.
type File struct {
	tables   *tables
	handle   *os.File // bbolt's own
	path     string   // by which it was opened
	size     int64    // the file has at least that many bytes
	named    bool     // the file system counts its names
	noSync   bool     // see Options
	last     header   // what the last commit left, except the log; its commit is bbolt's last one
	log      commitLog
	stepping *stepping // a step of the checkpoint, which has tables until it has ended; nil: none
	buffer   []byte    // the last record's sectors, to be used again
	tidied   bool      // all that the last commit has left to be done is done or begun
	failed   error     // why nothing may be written any more: see conclude
	opened   *metaPage // the newest meta page at Open; nil: it is on disk, as all else is
	clean    bool      // the file says that it was closed cleanly, and nothing was written since
}

// Commit writes the rows, which come table by table and in order, with the index and the tally. The
// caller must not use the rows after that. Commit returns when they are as durable as
// Options.NoSync says. After an error the file has all of them or nothing: see [File.Index].
func (f *File) Commit(rows []format.Write, index uint64, left format.Tally) error {
	err := f.tables.hooks.Around(func() error {
		return reveal(f.write(rows, header{index: index, tally: left}))
	})
	if err != nil {
		return fmt.Errorf("commit index %d: %w", index, err)
	}
	return nil
}

// Size asks the file system for the size of the file in bytes, its log included. It returns 0 if
// that fails, or if the file is closed. Any goroutine may call it at any time.
func (f *File) Size() int64 {
	info, err := f.handle.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// Close closes the file. Only the first call does anything.
func (f *File) Close() error {
	f.wait()
	f.withdrawAgain()
	f.closeCleanly()
	return f.tables.close()
}
