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

// Recovery is what Recover could make of a damaged file. If nothing is missing or doubtful, the
// backup is the one that BackupFile would have written before the damage.
type Recovery struct {
	// Index is that of the backup: the highest that was found.
	Index uint64

	// How many rows the backup has.
	Keys, Nodes, Services, Checks int

	// Missing is what was in the file, or may have been, and is not in the backup. What no backup
	// has is told of too, such as sessions.
	Missing []RecoveryRemark

	// Doubtful is what is in the backup, and may be older than what was committed last, or have
	// been deleted since. A newest commit that may never have been whole, and is left out, is told
	// of here too.
	Doubtful []RecoveryRemark
}

// RecoveryRemark is what a Recovery says of one row, or of those of a table, or of the whole file.
type RecoveryRemark struct {
	// Table is what the rows are, such as "keys" or "sessions"; empty: all of them.
	Table string

	// Key is such as a key, or the ID of a session, and empty if it is not known which rows. Of a
	// row whose checksum does not match it is what is there: that may be what is damaged.
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

// Recover writes to w a backup, for Restore, of each row of a damaged file whose checksum holds,
// and returns what it could not read. The file of a closed database may be damaged anywhere, or not
// at all. It is opened for reading only, and not changed; so Recover needs no permission to write
// to it. As in every backup there are keys, nodes, services and checks; no sessions, locks or
// delays.
//
// Where rows are lost, Recover takes older copies of them that the file still has, and tells of
// each one as doubtful. It leaves out, as missing, rows that do not fit without others that are
// missing, such as a service without its node. It reads the whole file before it writes.
//
// It returns ErrInUse as Open does, ErrCorrupt if nothing of lockd's is in the file, ErrFormat if
// it is not lockd's or of a newer format, an error that is fs.ErrNotExist if there is no file, and
// those of w's Write. A nil w panics. A nil opts means the defaults; only OpenTimeout counts.
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
	r := &Recovery{Missing: remarks(found.Missing), Doubtful: remarks(found.Doubtful)}
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

func remarks(found []store.Remark) []RecoveryRemark {
	list := make([]RecoveryRemark, 0, len(found))
	for _, f := range found {
		list = append(list, RecoveryRemark{f.Table, rowName(f.Table, f.Key), f.Text})
	}
	return list
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
