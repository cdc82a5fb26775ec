package lockd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/store"
)

// Backup writes the published state to w: keys with their values and flags, nodes, services and
// checks; no sessions, locks or lock-delays. Writes go on meanwhile.
func (db *DB) Backup(w io.Writer) error {
	mustHave(w != nil, "writer")
	return wrap("backup", "", store.WriteBackup(w, db.Snapshot().rows))
}

// Restore replaces the keys, nodes, services and checks by the backup's. It checks the whole backup
// before it changes anything. Every session ends with ErrRestored and its lock-delay, and then one
// transaction writes the difference. Indexes and fences go on rising, above the backup's too (G4,
// G8). The node of this process stays.
//
// It returns ErrCorrupt or ErrFormat for the backup, and ErrInvalid if the backup's index is more
// than 2^62 + 2^61 and above the database's.
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
// memory. The backup's index is above the given index (G4), which is at most 2^62. WriteBackup
// returns fn's error as it is. After an error w has no backup.
func WriteBackup(w io.Writer, index uint64, fn func(tx *Txn) error) error {
	mustHave(w != nil, "writer")
	mustHave(fn != nil, "function")
	if err := checkFloor(index); err != nil {
		return wrap("write backup", "", err)
	}
	db := newTrial(nil)
	defer func() { _ = db.Close() }() // it has nothing to write
	err := db.writer.DoAll(func() error { return db.engine.Raise(index) })
	if err != nil {
		return wrap("write backup", "", err)
	}
	err = db.Update(func(tx *Txn) error {
		if err := fn(tx); err != nil {
			return err
		}
		tx.rules.DeleteNode(db.node)
		return nil
	})
	if err != nil {
		return err // it is fn's: a database in memory has no other
	}
	return wrap("write backup", "", store.WriteBackup(w, db.Snapshot().rows))
}

// Restore makes a new file at the path from a backup. The file's indexes start above the backup's
// index, the given index and the Unix time in microseconds, so fences do not repeat unless the
// clock is behind (G4). The given index, at most 2^62, is the largest fence that a resource may
// have seen since the backup; 0 means that none has. The file appears when it is complete and on
// disk, or not at all.
//
// It returns fs.ErrExist if the path exists, the errors of DB.Restore for the backup, and the file
// system's errors. It uses Options.Clock, FileMode and AllowNetworkFS.
func Restore(path string, r io.Reader, index uint64, opts *Options) error {
	mustHave(r != nil, "reader")
	return wrap("restore", path, restore(path, r, index, opts))
}

// checkFloor refuses an index that a caller names as the bound that the next indexes exceed, if it
// is too large.
func checkFloor(index uint64) error {
	if index > engine.MaxFloor {
		return invalid("index %d is more than %d, and the next indexes would be above it", index,
			uint64(engine.MaxFloor))
	}
	return nil
}

func restore(path string, r io.Reader, index uint64, opts *Options) error {
	options, err := opts.filledFor(path)
	if err == nil {
		err = checkFloor(index)
	}
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
	options.Sync = SyncAlways
	db := newTrial(options.Clock)
	defer func() { _ = db.Close() }() // it has nothing to write
	now := uint64(max(0, db.writer.Time().UnixMicro()))
	err = db.writer.DoAll(func() error {
		if err := db.engine.Raise(max(backup.Index, index, now)); err != nil {
			return err
		}
		return db.writer.Apply(func(tx *engine.Txn) error {
			tx.DeleteNode(db.node)
			return tx.Restore(backup)
		})
	})
	if err != nil {
		return err
	}
	return store.Create(path, db.Snapshot().rows, options.file())
}

// restore does what Restore says. Only the first steps can be refused. It is called by the body of
// writer.DoAll.
func (db *DB) restore(backup *store.Backup) error {
	// The newest index stays raised when the commit of a Restore fails, the published one does not.
	younger := db.rows.Published() < backup.Index
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
	trial := newTrial(nil)
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
// moment, and keeps its owner and mode; a symbolic link is followed. It uses Options.OpenTimeout,
// Sync and AllowNetworkFS.
//
// It fails as Verify does. It returns fs.ErrPermission if the caller may not give the new file to
// the owner of the old one, or may not read the folder, which has to be synced; and ErrInvalid if
// the file has hard links, because the new file could replace only one of them. On Windows, which
// cannot replace an open file, it always fails. In these cases the file is as it was.
func Compact(path string, opts *Options) error {
	options, err := opts.filledFor(path)
	if err == nil {
		// The store does not look at what rows name, and a copy must not replace a damaged file
		// whose rows might still be saved.
		_, err = inspect(path, opts)
	}
	if err == nil {
		err = advised(store.Compact(path, options.file()))
	}
	return wrap("compact", "", err) // err names the file, as Verify's errors do
}

// Verify reads the whole file of a closed database, and returns nil if Open would take it. It
// changes nothing, but needs permission to write to the file. It fails as Open does, and with
// fs.ErrNotExist if there is no file. It uses Options.OpenTimeout and AllowNetworkFS.
func Verify(path string, opts *Options) error {
	_, err := inspect(path, opts)
	return wrap("verify", "", err)
}

// BackupFile is DB.Backup for the file of a closed database. It reads the whole file and closes it
// before it writes, and changes nothing. Its options and errors are Verify's.
func BackupFile(path string, w io.Writer, opts *Options) error {
	mustHave(w != nil, "writer")
	db, err := inspect(path, opts)
	if err == nil {
		err = store.WriteBackup(w, db.rows.Snapshot())
	}
	return wrap("backup", "", err)
}

// inspect returns a database that has the rows of the file, is not started, and has closed the
// file.
func inspect(path string, opts *Options) (*DB, error) {
	options, err := opts.filledFor(path)
	if err != nil {
		return nil, err
	}
	from := options.file()
	from.Existing = true
	db := newDB(&options)
	if err := db.rows.Open(path, from); err != nil {
		return nil, advised(err)
	}
	if err = db.engine.CheckReferences(); err != nil {
		err = advised(fmt.Errorf("read %s: %w", path, err))
	}
	return db, errors.Join(err, db.rows.Close())
}
