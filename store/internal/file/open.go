package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Open opens the file at the path and locks it against every other open, of this process and of
// others. If there is none, it creates one whose last index is [schema.FirstIndex], unless
// Options.Existing is set. The path never has half a file, whatever happens (but see
// createInPlace). If several callers create the file at once, only one of them does.
//
// It waits for the lock up to the timeout; then it returns [ErrInUse]. It returns ErrCorrupt or
// [ErrFormat] for a file that it cannot use, and [ErrInvalid] for a file system on which the lock
// cannot be trusted. It does not write to a file that exists. It gives the rows to the reader;
// after an error the reader may have rows that must not be used.
func Open(path string, o Options, reader Reader) (*File, error) {
	start := time.Now() // of a wait for another process, which knows no clock but the real one
	for {
		var f *File
		err := prepare(path, o)
		if err == nil {
			f, err = openExisting(path, o, reader, o.Timeout-time.Since(start))
		}
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, errChanging) && !errors.Is(err, errTaken) ||
			time.Since(start) >= o.Timeout:
			return nil, fmt.Errorf("%s: %w", path, err)
		case errors.Is(err, errTaken):
			time.Sleep(takenPause)
		}
	}
}

// errChanging is returned if the file is created, removed or replaced at this moment. The open may
// be tried again.
var errChanging = fmt.Errorf("%w: it is being replaced", ErrInUse)

// errTaken is returned if the system does not let this process open the file beside another handle:
// see isTaken. The open may be tried again.
var errTaken = fmt.Errorf("%w: another program has it open, and does not share it", ErrInUse)

// takenPause is the time between two tries to open a file that is taken.
const takenPause = 10 * time.Millisecond

// prepare creates the file if there is nothing at the path, and refuses what is not a file.
func prepare(path string, o Options) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().IsRegular():
		return checkPlace(path, o)
	case err == nil: // to open a pipe would wait for its other end
		return fmt.Errorf("%w: it is not a regular file, its mode is %v", ErrFormat, info.Mode())
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look into the folder %s: %w", filepath.Dir(path), cause(err))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("follow the symbolic link: %w", fs.ErrNotExist)
	}
	if o.Existing {
		return cause(err)
	}
	return create(path, o)
}

// openExisting opens the file that is at the path.
func openExisting(path string, o Options, reader Reader, wait time.Duration) (*File, error) {
	var handle *os.File
	var found found
	var suspicion error
	options := o.bolt(wait)
	options.OpenFile = func(name string, flag int, _ fs.FileMode) (*os.File, error) {
		// Without O_CREATE: bbolt would make a file in place of one that has gone meanwhile.
		handle, found, suspicion = openSound(name, flag&^os.O_CREATE, reader)
		return handle, suspicion
	}
	db, err := openBolt(path, o, options)
	switch {
	case suspicion != nil:
		return nil, confirm(path, o, reader, wait, suspicion)
	case err != nil:
		return nil, err
	}
	f := &File{
		tables: &tables{
			db: db, page: db.Info().PageSize, hooks: o.Hooks, disk: make(disk, 1),
		},
		handle: handle, path: path, noSync: o.NoSync,
	}
	if err := checkPath(path, found.info); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	f.named = names(found.info) > 0 // else the file system counts none
	if err := f.settle(found, reader); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// settle takes what was found in the file. It gives the reader the rows again if another process
// wrote to the file before it was locked.
func (f *File) settle(found found, reader Reader) error {
	last, err := f.tables.lastCommit()
	// A process that wrote meanwhile may have been halfway through a sector of the log.
	outdated := found.last.commit != last
	if err == nil && !outdated {
		outdated, err = found.log.outdated(f.handle)
	}
	if err == nil && outdated {
		found, err = inspect(f.handle, reader)
	}
	if err != nil {
		return err
	}
	f.last, f.log, f.size = found.last, found.log, found.info.Size()
	f.opened = &found.meta
	return nil
}

// checkPath returns errChanging if the path names another file than the locked one: a process that
// opens the path later would not find the lock.
func checkPath(path string, locked fs.FileInfo) error {
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(locked, named) {
		return errChanging
	}
	return cause(err)
}

// openSound opens the file if bbolt can be trusted with it.
func openSound(path string, flag int, reader Reader) (*os.File, found, error) {
	f, err := os.OpenFile(path, flag, 0)
	if isTaken(err) {
		return nil, found{}, errTaken
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, found{}, fmt.Errorf("open it to read and write: %w; its owner has to allow it",
			cause(err))
	}
	if err != nil {
		return nil, found{}, cause(err)
	}
	found, err := inspect(f, reader)
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, found, err
	}
	return f, found, nil
}

// confirm returns the error for a file that openSound refused.
//
// openSound has to look at the file before bbolt locks it, because bbolt then maps it at once. So
// another process may be writing to the file, and what looks like damage may be a half-written
// page, or a file that is being made. Therefore confirm looks at the file again under the shared
// lock of a read-only open, which writes nothing, and reads only the two pages that it has seen to
// be there. A file that was sound before the lock needs no second look: it is sound under the lock,
// since a process that writes to it in between holds the lock too.
func confirm(path string, o Options, reader Reader, wait time.Duration, suspicion error) error {
	switch {
	case errors.Is(suspicion, fs.ErrNotExist):
		return errChanging
	case !errors.Is(suspicion, format.ErrCorrupt) && !errors.Is(suspicion, ErrFormat):
		return suspicion
	}
	unlock, err := lockToRead(path, o, wait)
	if err != nil {
		return err
	}
	defer unlock() // it only reads
	f, _, err := openSound(path, os.O_RDONLY, reader)
	if err != nil {
		return err
	}
	_ = f.Close()
	return errChanging
}

// lockToRead keeps every process from opening the file to write to it, until unlock is called. The
// error of bbolt about a file that it opens and then refuses does not matter: bbolt had the lock
// before it looked, so no database has the file open, and none can open it.
func lockToRead(path string, o Options, wait time.Duration) (unlock func() error, err error) {
	db, err := openBolt(path, o, &bbolt.Options{ReadOnly: true, Timeout: max(wait, 1)})
	failed, ofPath := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, ErrInUse):
		return nil, err
	case isTaken(err):
		return nil, errTaken
	case ofPath && failed.Op == "open": // it was never locked
		return nil, cause(err)
	case db == nil:
		return func() error { return nil }, nil
	}
	return db.Close, nil
}

// openBolt opens the file. It returns [ErrInUse] if bbolt does not get the lock in time.
func openBolt(path string, o Options, options *bbolt.Options) (db *bbolt.DB, err error) {
	err = guard(func() (err error) {
		db, err = bbolt.Open(path, 0, options)
		return err
	})
	if !errors.Is(err, berrors.ErrTimeout) {
		return db, err
	}
	waited := "the call did not wait"
	if o.Timeout > 0 {
		waited = fmt.Sprintf("it was not closed within %v", o.Timeout)
	}
	return nil, fmt.Errorf("%w%s: %s; close it where it is open, in this process or another, or "+
		"allow more time", ErrInUse, by(path), waited)
}
