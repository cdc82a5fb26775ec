package store

import (
	"io"

	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// Compact rewrites the file at the path without its free pages, under the file's lock. At every
// moment a whole file is there: the smaller one takes the name when it is on disk. A process that
// waited for the lock of the larger file meanwhile finds out, and opens the smaller one. Compact
// returns [ErrInUse], [ErrCorrupt] and [ErrFormat] as [Store.Open] does, [ErrInvalid] also for a
// file that has more than one name, and fs.ErrNotExist if there is no file. After an error the file
// is as it was, unless the smaller one had the name already: it has the same rows, but it is not
// known whether the name is on disk.
func Compact(path string, opts Options) error {
	s := New()
	rows := s.Load()
	defer rows.Discard()
	return file.Compact(path, opts, rows, func(yield func(format.Write) bool) {
		rows.Publish()
		s.Snapshot().Writes()(yield)
	})
}

// Create makes a new file at the path that has the snapshot. The file appears when it is complete
// and on disk, or not at all. Create returns an error that is fs.ErrExist if there is something at
// the path, and [ErrInvalid] as [Store.Open] does.
func Create(path string, s *Snapshot, opts Options) error {
	return file.Create(path, opts, s.Index(), s.Writes())
}

// Remark is a remark on some rows: see [Recover].
type Remark = file.Remark

// Recover reads all rows of the file at the path whose checksums hold, however damaged the file is.
// It opens the file for reading only, and changes nothing. It returns [ErrInUse] as [Store.Open]
// does, and [ErrFormat] or [ErrCorrupt] for a file of a newer format, and for a file that has
// nothing of this package.
//
// Where a page of a table cannot be read, Recover looks for older copies of its rows in pages that
// are no longer in use, and reports them as doubtful.
func Recover(path string, opts Options) (*file.Recovered, error) {
	return file.Recover(path, opts)
}

// Backup is what a stream of a backup holds.
type Backup = file.Backup

// ReadBackup reads a whole stream, and returns it only if all of it is as it was written. It
// returns [ErrCorrupt] for a stream that is damaged, cut off or goes on after its end, [ErrFormat]
// for one that is no backup or of a newer version, and else the errors of r's Read.
func ReadBackup(r io.Reader) (*Backup, error) { return file.ReadBackup(r) }

// WriteBackup writes the snapshot to w. It returns the errors of w's Write.
func WriteBackup(w io.Writer, s *Snapshot) error {
	b := file.NewBackup(w, s.Index())
	for row := range s.Writes() {
		if !b.Row(row) {
			break
		}
	}
	return b.End()
}
