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

// Compact is store.Compact. The reader is given the rows first, and may refuse them: a copy must
// not take the place of a file whose rows might yet be saved.
func Compact(path string, o Options, reader Reader) (err error) {
	// The file is to be replaced, not a link that leads to it.
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil { // else Open would create the file
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

// copyTo writes a copy, with only what is needed in it and with the owner and mode of like, syncs
// it, and calls publish under the copy's lock. The header is written anew, since it is of another
// commit.
func (f *File) copyTo(
	path string, o Options, like fs.FileInfo, last header, publish func() error,
) error {
	return build(path, o, func(db *bbolt.DB) error {
		if err := giveTo(path, like); err != nil {
			return err
		}
		// The umask may have cleared bits of it.
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
	size int // of the rows in read, in bytes
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

// write writes the rows in read.
func (c *copying) write() {
	const full = 0.9 // as bbolt's own Compact has it, for a few more rows
	if c.err == nil {
		c.err = guard(func() error {
			return c.to.Update(func(tx *bbolt.Tx) error { return writeTables(tx, c.read, full) })
		})
	}
	c.read, c.size = c.read[:0], 0
}

// Publish is store.Publish.
func Publish(made, path string, o Options) (err error) {
	f, err := Open(made, o, nil) // to publish it under its lock, as create does
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Link(made, path); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(path), o); err != nil {
		// A process that waits for the lock meanwhile finds out, as with a compaction.
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
