package store

import (
	"io"

	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"github.com/lockd/lockd/store/internal/table"
)

// Compact rewrites the file at the path without its free pages, under the file's lock. At every
// moment a whole file is there: the smaller one takes the name when it is on disk. A process that
// waited for the lock of the larger file meanwhile finds out, and opens the smaller one. Compact
// returns [ErrInUse], [ErrCorrupt] and [ErrFormat] as [Store.Open] does, [ErrInvalid] also for a
// file that has more than one name, and fs.ErrNotExist if there is no file. After an error the file
// is as it was, unless the smaller one had the name already: it has the same rows, but it is not
// known whether the name is on disk.
func Compact(path string, opts Options) error {
	rows := New().Load()
	defer rows.Discard()
	return file.Compact(path, opts, rows)
}

// Publish gives a complete file, closed and on disk, the name path, in the same file system. It
// returns an error that is fs.ErrExist if the name is taken. After an error the file does not have
// the name, unless the name could not be removed again, or only closing the file has failed.
func Publish(made, path string, opts Options) error { return file.Publish(made, path, opts) }

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
	writeRows(b, &format.KeyRows, s.Keys)
	writeRows(b, &format.NodeRows, s.Nodes)
	writeRows(b, &format.ServiceRows, s.Services)
	writeRows(b, &format.CheckRows, s.Checks)
	return b.End()
}

func writeRows[T any](b *file.BackupWriter, rows *format.Rows[T], view table.View[T]) {
	var value []byte
	for key, row := range view.Ascend("") {
		value = rows.Append(value[:0], key, row)
		if !b.Row(rows.Table, key, value) {
			return
		}
	}
}
