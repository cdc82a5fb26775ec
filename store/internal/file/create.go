package file

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// create makes a new file at the path, or leaves what another process put there meanwhile.
//
// The file is complete, and on disk, under another name in the same folder before it gets its own
// by a link, which fails if the name is taken. So no process ever finds half a file, and of several
// processes that create it one wins. A crash may leave the other name behind, ".lockd-….new", which
// can be removed.
func create(path string, o Options) error {
	other := filepath.Join(filepath.Dir(path), ".lockd-"+rand.Text()+".new")
	err := build(other, o, nil, func() error {
		if err := os.Link(other, path); err != nil {
			return err
		}
		// Still under the lock: no database can commit to a file that a power cut may unlink.
		return syncFolder(filepath.Dir(path), o)
	})
	if err == nil {
		// If this fails the file has two names, which only Compact minds.
		_ = os.Remove(other)
		return nil
	}
	if _, unlinked := errors.AsType[*os.LinkError](err); unlinked && !errors.Is(err, fs.ErrExist) {
		return createInPlace(path, o)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// createInPlace is create for a file system without links. Only one of several processes can create
// the file here too, and one that opens it waits for its lock. But for a moment the file is there,
// empty and not yet locked: an open just then returns [ErrCorrupt], and a crash before it is
// complete leaves a file to be removed by hand, since it cannot be told from a damaged one.
func createInPlace(path string, o Options) error {
	err := build(path, o, nil, func() error { return syncFolder(filepath.Dir(path), o) })
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// build makes a complete file at the path, where there must be none: the empty tables, and what
// write adds, unless that is nil. It syncs the file, and calls publish under the file's lock. After
// an error there is no file, unless publish gave it another name.
func build(
	path string, o Options, write func(db *bbolt.DB) error, publish func() error,
) (err error) {
	made := false
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
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.Update(fill); err != nil {
		return fmt.Errorf("create: %w", reveal(err))
	}
	if write != nil {
		if err := write(db); err != nil {
			return err
		}
	}
	if !o.NoSync {
		if err := db.Sync(); err != nil {
			return fmt.Errorf("create: sync: %w", err)
		}
	}
	return publish()
}

// notCreated returns why there is no new file in the folder. err has a name of the file that nobody
// knows.
func notCreated(folder string, err error) error {
	if _, missing := os.Stat(folder); errors.Is(missing, fs.ErrNotExist) {
		return notExist(fmt.Sprintf("its folder %s does not exist: make that first", folder))
	}
	return fmt.Errorf("create a file in the folder %s: %w", folder, cause(err))
}

// fill writes the empty tables.
func fill(tx *bbolt.Tx) error {
	for table := range format.TableCount {
		if _, err := tx.CreateBucket([]byte(format.TableName(table))); err != nil {
			return err
		}
	}
	if _, err := tx.CreateBucket([]byte(format.HeaderBucket)); err != nil {
		return err
	}
	return writeHeader(tx, header{
		commit: uint64(tx.ID()), index: schema.FirstIndex,
	})
}

// syncFolder syncs the names in the folder. Windows offers no such thing, and syncs a name with its
// file.
func syncFolder(folder string, o Options) error {
	switch {
	case o.NoSync:
		return nil
	case o.Hooks.SyncFolder != nil:
		return o.Hooks.SyncFolder(folder)
	case runtime.GOOS == "windows":
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
