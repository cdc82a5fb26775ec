package lockd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Recovery says what Recover saved.
type Recovery struct {
	// Index is the index of the backup: the highest that was found.
	Index uint64

	// The numbers of rows in the backup.
	Keys, Nodes, Services, Checks int

	// Missing is what was in the file, or may have been, and is not in the backup, sessions
	// included. An example is `keys: "color": its checksum does not match`. The name of the key may
	// be damaged too.
	Missing []string

	// Doubtful is what is in the backup and may be out of date. It also names a newest commit that
	// is left out because it may never have been whole.
	Doubtful []string
}

// Recover reads a damaged file of a closed database, and writes to w a backup, for Restore, of each
// row whose checksum holds. It leaves the file as it is. Where rows are lost, it takes older copies
// that the file still has, and reports them as doubtful. A row that needs a missing row, as a
// service needs its node, is missing too.
//
// It returns ErrInUse or ErrFormat as Open does, ErrCorrupt if there is nothing of lockd's in the
// file, and fs.ErrNotExist if there is no file. It uses Options.OpenTimeout.
func Recover(path string, w io.Writer, opts *Options) (*Recovery, error) {
	mustHave(w != nil, "writer")
	r, err := recoverTo(path, w, opts)
	return result(r, "recover", "", err)
}

func recoverTo(path string, w io.Writer, opts *Options) (*Recovery, error) {
	options, err := opts.filledFor(path)
	if err != nil {
		return nil, err
	}
	found, err := store.Recover(path, options.file())
	if err != nil {
		return nil, err
	}
	rows := store.New()
	refused := sortOut(found.Backup, rows)
	missing := append(found.Missing, refused...)
	type place struct{ table, key string }
	without := make(map[place]bool)
	for _, r := range refused {
		without[place{r.Table, r.Key}] = true
	}
	doubtful := slices.DeleteFunc(found.Doubtful, func(doubt store.Remark) bool {
		return without[place{doubt.Table, doubt.Key}]
	})
	r := &Recovery{Missing: texts(missing), Doubtful: texts(doubtful)}
	rows.Seal()
	rows.PublishMemory()
	rows.Raise(found.Index)
	s := rows.Snapshot()
	r.Index, r.Keys, r.Nodes = s.Index(), s.Keys.Len(), s.Nodes.Len()
	r.Services, r.Checks = s.Services.Len(), s.Checks.Len()
	return r, store.WriteBackup(w, s)
}

// texts returns the remarks, with the name by which a user knows a row in place of its key.
func texts(remarks []store.Remark) (texts []string) {
	for _, r := range remarks {
		text := r.Text
		if r.Table != "" && r.Key != "" {
			text = fmt.Sprintf("%.200q: %s", rowName(r.Table, r.Key), text)
		}
		if r.Table != "" {
			text = r.Table + ": " + text
		}
		texts = append(texts, text)
	}
	return texts
}

// sortOut puts the rows that fit together into the store, and returns a remark on each other one.
func sortOut(found *store.Backup, rows *store.Store) (refused []store.Remark) {
	trial := newTrial(nil)
	defer func() { _ = trial.Close() }() // it has nothing to write
	fits := func(table, key string, refusal error) bool {
		if refusal != nil {
			text := "it does not fit: " + refusal.Error()
			refused = append(refused, store.Remark{Table: table, Key: key, Text: text})
		}
		return refusal == nil
	}
	newest := newestByID(found.Nodes)
	trial.writer.DoSoon(func(tx *engine.Txn) { // and at once, in memory
		for _, row := range found.Nodes {
			var refusal error
			if last, ok := newest[row.ID]; ok && last.Name != row.Name {
				refusal = fmt.Errorf("node %q took its ID", last.Name)
			} else {
				refusal = wrap("put node", row.Name, tx.PutNode(row))
			}
			key := engine.Folded(row.Name)
			if fits("nodes", key, refusal) {
				rows.Nodes.Put(key, row)
			}
		}
		for _, row := range found.Services {
			key := engine.CatalogKey(row.Node, row.ID)
			if fits("services", key, wrap("put service", row.ID, tx.PutService(row))) {
				rows.Services.Put(key, row)
			}
		}
		for _, row := range found.Checks {
			key := engine.CatalogKey(row.Node, row.ID)
			if fits("checks", key, wrap("put check", row.ID, tx.PutCheck(row))) {
				rows.Checks.Put(key, row)
			}
		}
		for _, row := range found.Keys {
			if fits("keys", row.Key, admit(row.Key, row.Value)) {
				rows.Keys.Put(row.Key, row)
			}
		}
	})
	return refused
}

// newestByID returns, for each ID of a node, the node that had it last. That node was registered
// with the ID of the others, and so they were removed (N5).
func newestByID(nodes []schema.Node) map[string]schema.Node {
	newest := make(map[string]schema.Node)
	for _, row := range nodes {
		if row.ID != "" && row.ModifyIndex >= newest[row.ID].ModifyIndex {
			newest[row.ID] = row
		}
	}
	return newest
}

// rowName is the name by which a user knows the row that a file has under the key.
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
