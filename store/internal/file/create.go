package file

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// Create makes a new file at the path, with the given last index and rows. It is fastest if the
// rows of each table are in order. It returns fs.ErrExist if the path exists. After an error there
// is no new file at the path, unless only the close of the file has failed.
//
// The file is first completed and synced under another name in the same folder. Then it gets its
// own name by a link, which fails if the name is taken. So no process ever finds half a file, and
// of several processes that create it one succeeds. A crash may leave the other name,
// ".lockd-….new", which can be removed.
func Create(path string, o Options, index uint64, rows iter.Seq[format.Write]) error {
	if err := checkPlace(filepath.Dir(path), o); err != nil {
		return err
	}
	other := newName(path)
	err := build(other, o, nil, index, rows, func() error {
		if err := os.Link(other, path); err != nil {
			return err
		}
		// Still under the lock: no database may commit to a file that a power cut could unlink. A
		// process that waits for the lock of a file that is removed here notices.
		if err := syncFolder(filepath.Dir(path), o); err != nil {
			return errors.Join(err, os.Remove(path))
		}
		return nil
	})
	_ = os.Remove(other) // if this fails the file has two names, which only Compact minds
	return err
}

// newName returns a name beside the path that no file has.
func newName(path string) string {
	return filepath.Join(filepath.Dir(path), ".lockd-"+rand.Text()+".new")
}

// create makes an empty file at the path, or leaves what another process put there meanwhile.
func create(path string, o Options) error {
	err := Create(path, o, schema.FirstIndex, none)
	_, unlinked := errors.AsType[*os.LinkError](err)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case unlinked:
		return createInPlace(path, o)
	}
	return err
}

// createInPlace is create for a file system without links. Here too only one of several processes
// can create the file, and a process that opens the file waits for its lock. But for a moment the
// file is empty and not yet locked: an open at that moment returns ErrCorrupt. A crash before the
// file is complete leaves a file that has to be removed by hand, because it looks like a damaged
// one.
func createInPlace(path string, o Options) error {
	err := build(path, o, nil, schema.FirstIndex, none, func() error {
		return syncFolder(filepath.Dir(path), o)
	})
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// none yields no rows.
func none(func(format.Write) bool) {}

// build makes a complete file at the path, which must not exist. Unless like is nil, the file gets
// the owner and the mode of like. build syncs the file, and calls publish under the file's lock.
// After an error there is no file, unless publish gave it another name, or only the close of the
// file has failed.
func build(
	path string, o Options, like fs.FileInfo, index uint64, rows iter.Seq[format.Write],
	publish func() error,
) (err error) {
	if err := checkFolder(filepath.Dir(path), o); err != nil {
		return err
	}
	made := false // and to be removed
	options := o.bolt(o.Timeout)
	options.NoSync = true // one sync, when the file is complete
	options.OpenFile = func(name string, flag int, mode fs.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag|os.O_EXCL, mode)
		made = err == nil
		return f, err
	}
	defer func() {
		if err != nil && made {
			_ = os.Remove(path) // the first error is the one to tell
		}
	}()
	db, err := bbolt.Open(path, cmp.Or(o.Mode, 0o600), options)
	if err != nil {
		return notCreated(filepath.Dir(path), err)
	}
	t := &tables{db: db, disk: make(disk, 1)} // the hooks are for commits
	defer func() {
		// Under the lock, where the system allows it: a process that waits for the lock must not
		// commit to a file that then loses its name.
		made = err != nil && os.Remove(path) != nil
		err = errors.Join(err, t.close())
	}()
	if like != nil { // before the sync, which is for this too
		if err := giveTo(path, like); err != nil {
			return fmt.Errorf("give the new file the owner of the old one: %w", cause(err))
		}
		// The umask may have cleared bits of the mode.
		if err := os.Chmod(path, like.Mode().Perm()); err != nil {
			return fmt.Errorf("give the new file the mode of the old one: %w", cause(err))
		}
	}
	if err := t.fill(index, rows); err != nil {
		return fmt.Errorf("create: %w", system(reveal(err))) // path may be a temporary name
	}
	if !o.NoSync {
		if err := db.Sync(); err != nil {
			return fmt.Errorf("create: sync: %w", system(err))
		}
	}
	return publish()
}

// checkFolder returns an error if the folder cannot be synced because it cannot be read. Then no
// file may get a name in it: see syncName.
func checkFolder(folder string, o Options) error {
	if o.NoSync || runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(folder)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("read the folder %s, to sync it: %w", folder, cause(err))
	}
	if err == nil {
		_ = f.Close() // it was only looked for
	}
	return nil
}

// notCreated returns the error of a create that failed in the folder, without the temporary name in
// err.
func notCreated(folder string, err error) error {
	if _, missing := os.Stat(folder); errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("its folder %s does not exist: make that first%.0w", folder,
			fs.ErrNotExist)
	}
	return fmt.Errorf("create a file in the folder %s: %w", folder, cause(err))
}

// fillTransaction is how many bytes of rows a transaction of fill has, or a little more.
const fillTransaction = 1 << 20

// fill makes the tables with the rows, in transactions of some size. Each leaves a whole file.
func (t *tables) fill(index uint64, rows iter.Seq[format.Write]) error {
	const full = 0.9 // as bbolt's own Compact has it, for a few more rows
	var left format.Tally
	var next []format.Write
	size := 0
	change := func(tx *bbolt.Tx) error {
		if err := makeTables(tx); err != nil {
			return err
		}
		if err := writeTables(tx, next, full); err != nil {
			return err
		}
		return writeHeader(tx, header{commit: uint64(tx.ID()), index: index, tally: left})
	}
	write := func() error { return t.attempt(func() error { return t.update(change) }) }
	for row := range rows {
		left.Add(format.StoredChecksum(row.Value))
		next, size = append(next, row), size+len(row.Key)+len(row.Value)
		if size < fillTransaction {
			continue
		}
		if err := write(); err != nil {
			return err
		}
		next, size = next[:0], 0
	}
	return write()
}

// makeTables makes the buckets that are not there.
func makeTables(tx *bbolt.Tx) error {
	for table := range format.TableCount {
		if _, err := tx.CreateBucketIfNotExists([]byte(format.TableName(table))); err != nil {
			return err
		}
	}
	_, err := tx.CreateBucketIfNotExists([]byte(format.HeaderBucket))
	return err
}

// syncFolder syncs the names in the folder. Windows has no such call, and syncs a name with its
// file.
func syncFolder(folder string, o Options) error {
	if o.NoSync {
		return nil
	}
	if o.Hooks.SyncFolder != nil {
		if err := o.Hooks.SyncFolder(folder); err != nil {
			return err
		}
	}
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that cannot sync it is no worse for that
	}
	return errors.Join(err, f.Close())
}
