package lockd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/store"
)

// Backup writes the published state to w: keys with their values and flags, nodes, services and
// checks; no sessions, locks or lock-delays. Writes go on meanwhile.
func (db *DB) Backup(w io.Writer) error {
	mustHave(w != nil, "writer")
	return wrap("backup", "", store.WriteBackup(w, db.Snapshot().rows))
}

// Restore replaces the keys, nodes, services and checks by those of a backup, which is checked
// before anything changes. Every session ends with ErrRestored and its lock-delay, and then one
// transaction writes the difference. Indexes and fences go on rising, above those of the backup too
// (G4, G8). The node of this process stays.
//
// It returns ErrCorrupt or ErrFormat for the backup, and ErrInvalid if its index is new here and
// more than 2^62.
func (db *DB) Restore(r io.Reader) error {
	mustHave(r != nil, "reader")
	if err := db.writer.Refused(); err != nil {
		return wrap("restore", "", err) // before a long backup is read for nothing
	}
	backup, err := readBackup(r)
	if err != nil {
		return wrap("restore", "", db.refused(err))
	}
	err = db.writer.DoAll(func() error { return db.restore(backup) })
	return wrap("restore", "", err)
}

// WriteBackup writes to w a backup of the keys, nodes, services and checks that fn writes, to
// import another system's state by Restore. fn runs in a transaction of a temporary database in
// memory. The backup's index is above the given one (G4), at most 2^62. It returns fn's error too.
// After an error w has no backup.
func WriteBackup(w io.Writer, index uint64, fn func(tx *Txn) error) error {
	mustHave(w != nil, "writer")
	mustHave(fn != nil, "function")
	db, err := newTrial()
	if err != nil {
		return wrap("write backup", "", err)
	}
	defer func() { _ = db.Close() }() // which has nothing to write
	err = db.writer.DoAll(func() error { return db.engine.Raise(index) })
	if err == nil {
		err = db.Update(func(tx *Txn) error {
			if err := fn(tx); err != nil {
				return err
			}
			tx.rules.DeleteNode(db.node)
			return nil
		})
	}
	if err == nil {
		err = db.Backup(w)
	}
	return wrap("write backup", "", err)
}

// Restore makes a new file at the path from a backup. Its indexes start above the backup's, the
// given one, and the Unix time in microseconds: so fences do not repeat unless the clock is behind
// (G4). The given index is the largest fence beyond the backup's that a resource may have seen, at
// most 2^62, or 0. The file appears when it is complete and on disk, or not at all.
//
// It returns fs.ErrExist if the path exists, ErrCorrupt or ErrFormat for the backup, and the file
// system's errors. Of the options Clock, FileMode and AllowNetworkFS count.
func Restore(path string, r io.Reader, index uint64, opts *Options) error {
	mustHave(r != nil, "reader")
	return wrap("restore", path, restore(path, r, index, opts))
}

func restore(path string, r io.Reader, index uint64, opts *Options) (err error) {
	options, err := opts.filledFor(path)
	if err != nil {
		return err
	}
	switch _, err := os.Lstat(path); {
	case err == nil:
		return fs.ErrExist
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	backup, err := readBackup(r)
	if err != nil {
		return err
	}
	options, _ = (&Options{ // which has been validated
		Clock: options.Clock, FileMode: options.FileMode, AllowNetworkFS: options.AllowNetworkFS,
	}).filled()
	folder := filepath.Join(filepath.Dir(path), ".lockd-"+rand.Text()+".new")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	made := filepath.Join(folder, filepath.Base(path))
	if err := fill(made, backup, index, &options); err != nil {
		return err
	}
	return store.Publish(made, path, options.file())
}

// fill makes the file.
func fill(path string, backup *store.Backup, index uint64, options *Options) error {
	db := newDB(options)
	if err := db.rows.Open(path, options.file()); err != nil {
		return err
	}
	now := uint64(max(0, db.writer.Time().UnixMicro()))
	if err := db.engine.Raise(max(backup.Index, index, now)); err != nil {
		return errors.Join(err, db.rows.Close())
	}
	if err := db.start(options); err != nil {
		return errors.Join(err, db.rows.Close())
	}
	err := db.update(func(tx *engine.Txn) error {
		tx.MarkRestored() // so that the file has the index, even if the backup is empty
		return tx.Restore(backup)
	})
	return errors.Join(err, db.Close())
}

// restore does what Restore says. Only the first steps can be refused. It is called by a body of
// the writer's.
func (db *DB) restore(backup *store.Backup) error {
	younger := db.rows.Index() < backup.Index
	if err := db.engine.Raise(backup.Index); err != nil {
		return err
	}
	every := func(*engine.Session) bool { return true }
	if err := db.endEach(every, endWith(ErrRestored)); err != nil {
		return err
	}
	return db.writer.Apply(func(tx *engine.Txn) error {
		if younger {
			tx.MarkRestored() // so that a file has the index, whatever differs
		}
		return tx.Restore(backup)
	})
}

// readBackup reads a backup, and checks that its rows fit together.
func readBackup(r io.Reader) (*store.Backup, error) {
	backup, err := store.ReadBackup(r)
	if err != nil {
		return nil, err
	}
	trial, err := newTrial()
	if err != nil {
		return nil, err
	}
	err = trial.update(func(tx *engine.Txn) error {
		for _, row := range backup.Keys {
			if err := admit(row.Key, row.Value); err != nil {
				return err
			}
		}
		return tx.RestoreCatalog(backup)
	})
	if err := errors.Join(err, trial.Close()); err != nil {
		return nil, fmt.Errorf("%w: its rows do not fit together: %w", ErrCorrupt, err)
	}
	return backup, nil
}

// Compact rewrites the file of a closed database without its free pages. The file is whole at every
// moment, and keeps its owner and mode; a symbolic link is followed. Of the options OpenTimeout,
// Sync and AllowNetworkFS count. It fails as Verify does, with fs.ErrPermission if the caller may
// not give the new file to the owner, with ErrInvalid if the file has hard links, of which it could
// replace one only, and always on Windows, which cannot replace an open file; then the file is as
// it was.
func Compact(path string, opts *Options) error {
	options, err := opts.filledFor(path)
	if err == nil {
		err = advised(store.Compact(path, options.file()))
	}
	return wrap("compact", "", err) // which names the file, as those of Verify do
}

// Verify reads the whole file of a closed database, and returns nil if Open would take it. It
// changes nothing, but needs permission to write to the file. It fails as Open does, and with
// fs.ErrNotExist if there is no file. Of the options OpenTimeout and AllowNetworkFS count.
func Verify(path string, opts *Options) error {
	return wrap("verify", "", inspect(path, opts, func(*DB) error { return nil }))
}

// BackupFile is DB.Backup for the file of a closed database. It reads the whole file before it
// writes, and changes nothing. Its options and errors are Verify's.
func BackupFile(path string, w io.Writer, opts *Options) error {
	mustHave(w != nil, "writer")
	return wrap("backup", "", inspect(path, opts, func(db *DB) error {
		return store.WriteBackup(w, db.rows.Snapshot())
	}))
}

// inspect calls fn on a database that has the rows of the file, and is not started.
func inspect(path string, opts *Options, fn func(*DB) error) error {
	options, err := opts.filledFor(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db := newDB(&options)
	if err := db.rows.Open(path, options.file()); err != nil {
		return advised(err)
	}
	err = db.engine.CheckReferences()
	if err != nil {
		err = advised(fmt.Errorf("read %s: %w", path, err))
	} else {
		err = fn(db)
	}
	return errors.Join(err, db.rows.Close())
}
