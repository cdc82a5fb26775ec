package lockd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/store"
)

// Recovery says what Recover saved of a damaged file. If Missing and Doubtful are empty, the backup
// is what BackupFile would have written before the damage.
type Recovery struct {
	// Index is the index of the backup: the highest that was found.
	Index uint64

	// The numbers of rows in the backup.
	Keys, Nodes, Services, Checks int

	// Missing is what was in the file, or may have been, and is not in the backup, sessions
	// included.
	Missing []RecoveryRemark

	// Doubtful is what is in the backup and may be older than the last commit, or have been deleted
	// since. It also tells of a newest commit that is left out because it may never have been
	// whole.
	Doubtful []RecoveryRemark
}

// RecoveryRemark is a remark on one row, on the rows of a table, or on the whole file.
type RecoveryRemark struct {
	// Table is the kind of the rows, such as "keys" or "sessions". Empty means all of them.
	Table string

	// Key is the row's key, such as the ID of a session. It is empty if it is not known. If the
	// row's checksum does not match, the key itself may be damaged.
	Key string

	Text string
}

// String returns the remark as one line. The key is quoted.
func (r RecoveryRemark) String() string {
	switch {
	case r.Table == "":
		return r.Text
	case r.Key == "":
		return r.Table + ": " + r.Text
	}
	return fmt.Sprintf("%s: %.200q: %s", r.Table, r.Key, r.Text)
}

// Recover reads a damaged file of a closed database, and writes to w a backup, for Restore, of each
// row whose checksum holds. It opens the file for reading only, reads all of it before it writes,
// and changes nothing. A backup has keys, nodes, services and checks; no sessions, locks or
// lock-delays.
//
// Where rows are lost, it takes older copies that the file still has, as doubtful. It leaves out
// rows that do not fit without missing ones, such as a service without its node, as missing.
//
// It returns ErrInUse as Open does, ErrCorrupt if there is nothing of lockd's in the file,
// ErrFormat if it is not lockd's or of a newer format, an error that is fs.ErrNotExist if there is
// no file, and those of w's Write. A nil opts means the defaults; only OpenTimeout counts.
func Recover(path string, w io.Writer, opts *Options) (*Recovery, error) {
	checkWriter(w)
	r, err := recoverTo(path, w, opts)
	if err != nil {
		return nil, wrap("recover", "", err)
	}
	return r, nil
}

func recoverTo(path string, w io.Writer, opts *Options) (*Recovery, error) {
	if err := engine.CheckName("path", path); err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	found, err := store.Recover(path, opts.file())
	if err != nil {
		return nil, err
	}
	rows := store.New()
	r := new(Recovery)
	for _, missing := range found.Missing {
		r.Missing = append(r.Missing, RecoveryRemark(missing).named())
	}
	for _, doubtful := range found.Doubtful {
		r.Doubtful = append(r.Doubtful, RecoveryRemark(doubtful).named())
	}
	if err := r.sort(found.Backup, rows); err != nil {
		return nil, err
	}
	rows.Seal()
	rows.PublishMemory()
	rows.Raise(found.Index)
	s := rows.Snapshot()
	r.Index, r.Keys, r.Nodes = s.Index(), s.Keys.Len(), s.Nodes.Len()
	r.Services, r.Checks = s.Services.Len(), s.Checks.Len()
	return r, store.WriteBackup(w, s)
}

// sort puts the rows that fit together into the store, and says of the others that they are
// missing. What the rules refuse is found out on a database of its own, as Restore does it.
func (r *Recovery) sort(found *store.Backup, rows *store.Store) error {
	opts := &Options{Node: rand.Text()} // which is no node of the backup
	trial := newDB(opts)
	if err := trial.start(opts); err != nil {
		return err
	}
	err := trial.update(func(tx *engine.Txn) error {
		for _, row := range found.Nodes {
			if r.fits("nodes", row.Name, wrap("put node", row.Name, tx.PutNode(row))) {
				rows.Nodes.Put(engine.Folded(row.Name), row)
			}
		}
		for _, row := range found.Services {
			key := engine.CatalogKey(row.Node, row.ID)
			if r.fits("services", key, wrap("put service", row.ID, tx.PutService(row))) {
				rows.Services.Put(key, row)
			}
		}
		for _, row := range found.Checks {
			key := engine.CatalogKey(row.Node, row.ID)
			if r.fits("checks", key, wrap("put check", row.ID, tx.PutCheck(row))) {
				rows.Checks.Put(key, row)
			}
		}
		for _, row := range found.Keys {
			if r.fits("keys", row.Key, admit(row.Key, row.Value)) {
				rows.Keys.Put(row.Key, row)
			}
		}
		return nil
	})
	return errors.Join(err, trial.Close())
}

// fits notes that a row is missing if it was refused.
func (r *Recovery) fits(table, key string, refused error) bool {
	if refused == nil {
		return true
	}
	name := rowName(table, key)
	r.Missing = append(r.Missing,
		RecoveryRemark{table, name, "it does not fit: " + refused.Error()})
	kept := r.Doubtful[:0]
	for _, doubt := range r.Doubtful {
		if doubt.Table != table || doubt.Key != name {
			kept = append(kept, doubt)
		}
	}
	r.Doubtful = kept
	return false
}

// named is the remark with what a user knows the row by, in place of its key in a file.
func (r RecoveryRemark) named() RecoveryRemark {
	r.Key = rowName(r.Table, r.Key)
	return r
}

// rowName is what a user knows a row by, of one that a file has under the key.
func rowName(table, key string) string {
	const idSize = len(SessionID{})
	switch {
	case table == "sessions" && len(key) >= idSize:
		return SessionID([]byte(key[len(key)-idSize:])).String()
	case table == "services" || table == "checks":
		return strings.Replace(key, "\x00", "/", 1)
	}
	return key
}
