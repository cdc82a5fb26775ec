package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// compactTransaction is how many bytes a compaction copies at a time.
const compactTransaction = 1 << 20

// Compact rewrites the file at the path without the free pages in it, while it has its lock. The
// file is there, whole, at every moment: the smaller one takes its name when it is on disk, and
// who waited for the lock of the larger one meanwhile finds out and opens the smaller. It returns
// [ErrInUse], [ErrCorrupt] and [ErrFormat] as [Store.Open] does, and fs.ErrNotExist if there is no
// file; after an error the file is as it was.
func Compact(path string, opts Options) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	o := opts.file()
	o.mode = info.Mode().Perm()
	f, err := openFile(path, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	// A damaged row is found before a copy takes the place of what might yet be saved.
	rows := New()
	if err := rows.load(f); err != nil {
		return fmt.Errorf("compact %s: %w", path, err)
	}
	other := filepath.Join(filepath.Dir(path), ".lockd-"+rand.Text()+".new")
	defer func() {
		if removeErr := os.Remove(other); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	if err := f.copyTo(other, o, header{index: rows.index, tally: rows.inFile}); err != nil {
		return fmt.Errorf("compact %s: %w", path, err)
	}
	if err := os.Rename(other, path); err != nil {
		return fmt.Errorf("compact %s: %w", path, err)
	}
	return syncFolder(filepath.Dir(path), o.sync)
}

// copyTo writes a copy, with nothing in it that is not needed, and has it on disk. The header is
// written anew, since it is of another commit.
func (f *file) copyTo(path string, o fileOptions, last header) (err error) {
	options := o.bolt(o.timeout)
	options.NoSync = true // once, when it is complete
	db, err := bbolt.Open(path, o.permissions(), options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = guard(func() error { return bbolt.Compact(db, f.db, compactTransaction) })
	if err != nil {
		return err
	}
	if err := db.Update(func(tx *bbolt.Tx) error { return writeHeader(tx, last) }); err != nil {
		return err
	}
	if o.sync == SyncAlways {
		return db.Sync()
	}
	return nil
}

// Publish gives a complete file, closed and on disk, the name path, in the same file system. It
// returns an error that is fs.ErrExist if the name is taken.
func Publish(made, path string) error {
	if err := os.Link(made, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path), SyncAlways)
}
