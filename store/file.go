package store

import (
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// The tables, by the number that is in the checksum of each of their rows. A number is never
// given to another table.
const (
	tableKeys byte = iota
	tableSessions
	tableNodes
	tableServices
	tableChecks
	tableAttachments
	tableDelays
	tableGraves
	tableMarks
	tableCount
)

// tableName is the name of the table's bucket.
func tableName(table byte) string {
	switch table {
	case tableKeys:
		return "keys"
	case tableSessions:
		return "sessions"
	case tableNodes:
		return "nodes"
	case tableServices:
		return "services"
	case tableChecks:
		return "checks"
	case tableAttachments:
		return "attachments"
	case tableDelays:
		return "delays"
	case tableGraves:
		return "graves"
	case tableMarks:
		return "marks"
	case headerTable:
		return headerBucket
	}
	panic(fmt.Sprintf("store: bug: no table has the number %d", table))
}

// SyncPolicy says when a commit is on disk. The zero value is the safe one, SyncAlways.
type SyncPolicy uint8

const (
	// SyncAlways has every commit on disk before it returns.
	SyncAlways SyncPolicy = iota

	// SyncNever leaves it to the operating system when to write. A crash of the process loses
	// nothing; a power cut may cost the whole file, not only its last commits.
	SyncNever
)

// Hooks are for tests that hold or break a commit, or feign a file system. A nil function does
// nothing, and so does the zero value. Those of a commit are called on the goroutine that commits,
// and Synced and Changed are also on the one that takes a step of a checkpoint meanwhile.
type Hooks struct {
	// BeforeCommit is called before anything is written. Its error fails the commit.
	BeforeCommit func() error

	// AfterCommit is called when the commit is in the file. Its error makes it fail nevertheless,
	// as when a disk reports a write as failed that it has done.
	AfterCommit func() error

	// Synced is called when all that was written is on disk, or would be with SyncAlways. One
	// commit may do it some times. Its error fails the sync, as AfterCommit's does the commit.
	Synced func() error

	// Changed is called when a transaction of bbolt's has all its changes, and has yet to write
	// them.
	Changed func()

	// NetworkFS is asked in place of the system for the name of the network file system, or the
	// like, that the path is on; an empty string means none.
	NetworkFS func(path string) string

	// SyncFolder is called in place of what has the names in the folder on disk, when a file has
	// got its name. Its error is that of the call.
	SyncFolder func(folder string) error
}

// around calls commit between the hooks.
func (h *Hooks) around(commit func() error) error {
	if h.BeforeCommit != nil {
		if err := h.BeforeCommit(); err != nil {
			return err
		}
	}
	if err := commit(); err != nil {
		return err
	}
	if h.AfterCommit != nil {
		return h.AfterCommit()
	}
	return nil
}

func (h *Hooks) changed() {
	if h.Changed != nil {
		h.Changed()
	}
}

func (h *Hooks) synced() error {
	if h.Synced == nil {
		return nil
	}
	return h.Synced()
}

// file is rows in a bbolt file, which it has open and locked. One goroutine at a time may use it;
// a step of a checkpoint is on one of its own.
type file struct {
	tables   *tables
	handle   *os.File // bbolt's own
	size     int64    // that it has at least
	named    bool     // its names are counted
	sync     SyncPolicy
	last     header // what the last commit left, but of the log; its number is bbolt's last one
	log      commitLog
	stepping *stepping // a step of the checkpoint, which has tables until it has ended; nil: none
	buffer   []byte    // the last record's sectors, to be used again
	tidied   bool      // all is done or begun that the last commit has left to be done
	failed   error     // what went wrong in that
	opened   *metaPage // the newest one, when it was opened; nil: that is on disk, as all else is
	clean    bool      // it says that it was closed cleanly, and nothing was written since
}

// rowWrite is one change of a commit.
type rowWrite struct {
	table byte
	key   string
	value []byte // what appendRow made; nil deletes the row, if there is one
}

// commit writes the rows, which come table by table and in order, and the index and tally given.
// The rows are the file's from then on. It returns when that is as durable as the file's SyncPolicy
// says. After an error the file has all of it or nothing: see [file.index].
func (f *file) commit(rows []rowWrite, last header) error {
	err := f.tables.hooks.around(func() error {
		return reveal(f.write(rows, last))
	})
	if err != nil {
		return fmt.Errorf("commit index %d: %w", last.index, err)
	}
	return nil
}

func (r rowWrite) write(bucket *bbolt.Bucket) error {
	key := bytesOf(r.key) // bbolt keeps a copy of its own
	if r.value == nil {
		return bucket.Delete(key)
	}
	return bucket.Put(key, r.value)
}

func errRow(row rowWrite, err error) error {
	return fmt.Errorf("write row %.100q of %s: %w", row.key, tableName(row.table), err)
}

// close gives the file up. Only the first call does anything.
func (f *file) close() error {
	f.wait()
	f.closeCleanly()
	return f.tables.close()
}

func tableBucket(tx *bbolt.Tx, table byte) (*bbolt.Bucket, error) {
	bucket := tx.Bucket([]byte(tableName(table)))
	if bucket == nil {
		return nil, errNoTable(table)
	}
	return bucket, nil
}

func errNoTable(table byte) error {
	return fmt.Errorf("%w: its table of %s is missing", ErrCorrupt, tableName(table))
}
