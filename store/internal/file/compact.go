package file

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// compactTransaction is how many bytes a compaction copies at a time.
const compactTransaction = 1 << 20

// Compact is that of package store. The reader is given the rows before, and may refuse them: a
// copy must not take the place of what might yet be saved.
func Compact(path string, o Options, reader Reader) (err error) {
	// Not the link is to be replaced that leads to the file, but the file.
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil { // else Open makes one
		return err
	}
	o.Mode = 0o600 // until the copy is like the file
	f, err := Open(path, o, reader)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.handle.Stat() // as it is after the wait for the lock
	if err != nil {
		return err
	}
	if n := names(info); n > 1 {
		return fmt.Errorf("%s: %w: it has %d names (hard links), and only one of them would be "+
			"that of the smaller file; remove the others first: a crash may have left one in "+
			"its folder, as .lockd-….new or in a folder of such a name", path, ErrInvalid, n)
	}
	other := filepath.Join(filepath.Dir(path), ".lockd-"+rand.Text()+".new")
	last := header{index: f.last.index, tally: f.Tally()}
	err = f.copyTo(other, o, info, last, func() error {
		if err := os.Rename(other, path); err != nil {
			return err
		}
		// Still under the lock of the copy: no database can commit to it while a power cut may
		// bring the larger file back.
		return syncFolder(filepath.Dir(path), o)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// copyTo writes a copy, with nothing in it that is not needed and the owner and mode that it is to
// be like, has it on disk, and calls publish while it has the copy's lock. The header is written
// anew, since it is of another commit.
func (f *File) copyTo(
	path string, o Options, like fs.FileInfo, last header, publish func() error,
) error {
	return build(path, o, func(db *bbolt.DB) error {
		if err := giveTo(path, like); err != nil {
			return err
		}
		// The umask may have taken from it.
		if err := os.Chmod(path, like.Mode().Perm()); err != nil {
			return err
		}
		found, err := inspect(f.handle, &copying{to: db, last: last})
		if err := errors.Join(err, found.err); err != nil {
			return err
		}
		return db.Update(func(tx *bbolt.Tx) error {
			last.commit = uint64(tx.ID())
			return writeHeader(tx, last)
		})
	}, publish)
}

// copying is a Reader that writes the rows to another file, in transactions of some size. It
// verifies them once more: what is copied is what it reads, not what was read before.
type copying struct {
	to   *bbolt.DB
	last header // what the file has
	read []format.Write
	size int // of them, in bytes
	done format.Tally
	err  error
}

func (c *copying) Begin(uint64, format.Tally) {}

func (c *copying) Rows(table byte, from *format.Chunk) {
	for i := 0; i < from.Len() && c.err == nil; i++ {
		row, keySize := from.At(i)
		if _, err := format.VerifyRow(table, row, keySize); err != nil {
			c.err = format.RowError(table, string(row[:keySize]), err)
			return
		}
		c.done.Add(format.StoredChecksum(row))
		row = bytes.Clone(row)
		key, value := format.StringOf(row[:keySize]), row[keySize:]
		c.read = append(c.read, format.Write{Table: table, Key: key, Value: value})
		c.size += len(row)
	}
	if c.size >= compactTransaction {
		c.write()
	}
}

func (c *copying) End() error {
	c.write()
	if c.err == nil && c.done != c.last.tally {
		c.err = corrupt("it has changed while it was copied")
	}
	return c.err
}

// write writes the rows that have come.
func (c *copying) write() {
	const full = 0.9 // as bbolt's own Compact has it, for a few more rows
	if c.err == nil {
		c.err = guard(func() error {
			return c.to.Update(func(tx *bbolt.Tx) error { return writeTables(tx, c.read, full) })
		})
	}
	c.read, c.size = c.read[:0], 0
}

// Publish is that of package store.
func Publish(made, path string, o Options) (err error) {
	f, err := Open(made, o, nil) // under its lock, as create does it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Link(made, path); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(path), o); err != nil {
		// Who waits for the lock meanwhile finds out, as with a compaction.
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
