package store

import (
	"io"

	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// Compact rewrites the file at the path without its free pages, under the file's lock. At every
// moment the path names a whole file: the new file takes the name when it is on disk. A process
// that waited for the lock of the old file meanwhile notices, and opens the new one. Compact
// returns [ErrInUse], [ErrCorrupt] and [ErrFormat] as [Store.Open] does, [ErrInvalid] also for a
// file that has hard links, and fs.ErrNotExist if there is no file. After an error the file is as
// it was, unless the new file had the name already. That file has the same rows, but its name may
// not be on disk.
func Compact(path string, opts Options) error {
	s := New()
	rows := s.Load()
	defer rows.Discard()
	return file.Compact(path, opts, rows, func(yield func(format.Write) bool) {
		rows.Publish()
		s.Snapshot().Writes()(yield)
	})
}

// Create makes a new file at the path, with the rows of the snapshot. The file appears when it is
// complete and on disk, or not at all. Create returns fs.ErrExist if the path exists, and
// [ErrInvalid] as [Store.Open] does.
func Create(path string, s *Snapshot, opts Options) error {
	return file.Create(path, opts, s.Index(), s.Writes())
}

// Remark is a remark on some rows: see [Recover].
type Remark = file.Remark

// Recover reads all rows whose checksums hold from the file at the path, however damaged the file
// is. It opens the file for reading only, and changes nothing. It returns [ErrInUse] as
// [Store.Open] does, [ErrFormat] for a file of a newer format, and [ErrFormat] or [ErrCorrupt] for
// a file that has nothing of this package.
//
// If Recover cannot read a page of a table, it looks for older copies of the page's rows in pages
// that are no longer in use, and reports them as doubtful.
func Recover(path string, opts Options) (*file.Recovered, error) {
	return file.Recover(path, opts)
}

// Backup is what a stream of a backup holds.
type Backup = file.Backup

// ReadBackup reads a whole stream, and returns its backup only if all of it is as it was written.
// It returns [ErrCorrupt] for a stream that is damaged, is cut off or goes on after its end,
// [ErrFormat] for one that is no backup or has a newer version, and otherwise the error of r's
// Read.
func ReadBackup(r io.Reader) (*Backup, error) { return file.ReadBackup(r) }

// WriteBackup writes the snapshot to w. It returns the errors of w's Write.
func WriteBackup(w io.Writer, s *Snapshot) error {
	return file.WriteBackup(w, s.Index(), s.Writes())
}
