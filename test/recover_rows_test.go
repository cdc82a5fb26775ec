package lockd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// written makes a file at the path: each function is a transaction.
func written(t *testing.T, path string, transactions ...func(tx *lockd.Txn) error) {
	t.Helper()
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range transactions {
		err = errors.Join(err, db.Update(fn))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// rewrite writes what change makes of the file's content.
func rewrite(t *testing.T, path string, change func(content []byte) []byte) {
	t.Helper()
	if err := os.WriteFile(path, change(readFile(t, path)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// clearPages clears the pages that the function chooses, and returns how many.
func clearPages(t *testing.T, path string, chosen func(page []byte) bool) (cleared int) {
	t.Helper()
	rewrite(t, path, func(content []byte) []byte {
		for page := range slices.Chunk(content, os.Getpagesize()) {
			if chosen(page) {
				clear(page)
				cleared++
			}
		}
		return content
	})
	return cleared
}

// Ensure that a node which was removed because another node took its ID, and of which the file has
// an older copy, does not take that node's place in what Recover saves: the newer node is there
// with its services, and the older one is reported.
func TestRecover_NodeThatLostItsID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	const id = "11111111-2222-3333-4444-555555555555"
	meta := map[string]string{"m": strings.Repeat("x", os.Getpagesize()/12)}
	written(t, path, func(tx *lockd.Txn) error {
		var errs []error
		for i := range 60 {
			name := fmt.Sprintf("n%03d", i)
			errs = append(errs, tx.Catalog().PutNode(catalog.Node{Name: name, Meta: meta}))
		}
		return errors.Join(append(errs,
			tx.Catalog().PutNode(catalog.Node{Name: "zeta", ID: id, Meta: meta}))...)
	}, func(tx *lockd.Txn) error {
		return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "alpha", ID: id}),
			tx.Catalog().PutService(catalog.Service{Node: "alpha", ID: "web", Name: "web"}))
	})
	// The page that zeta was in is lost, so that its older copy is read.
	if clearPages(t, path, func(page []byte) bool {
		return bytes.Contains(page, []byte("n059")) && !bytes.Contains(page, []byte("zeta"))
	}) == 0 {
		t.Fatal("no page was cleared")
	}

	var backup bytes.Buffer
	found, err := lockd.Recover(path, &backup, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := func(text string) bool { return strings.HasPrefix(text, `nodes: "zeta": `) }
	if !slices.ContainsFunc(found.Missing, told) || slices.ContainsFunc(found.Doubtful, told) {
		t.Errorf("zeta is not told of as missing: missing %.200q", found.Missing)
	}
	if !strings.HasPrefix(found.Missing[0], "nodes: rows from ") {
		t.Errorf("the lost rows are not told of: missing %.200q", found.Missing)
	}
	restored := path + ".restored"
	if err := lockd.Restore(restored, &backup, 0, nil); err != nil {
		t.Fatal(err)
	}
	db, err := lockd.Open(restored, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	view := db.Snapshot().Catalog()
	_, alpha := view.Node("alpha")
	_, web := view.Service("alpha", "web")
	_, zeta := view.Node("zeta")
	if !alpha || !web || zeta {
		t.Errorf("alpha %v, its service %v, zeta %v; want the newer node with its service, and "+
			"not the older one", alpha, web, zeta)
	}
	nodes := 0
	for range view.Nodes() {
		nodes++
	}
	if nodes != found.Nodes {
		t.Errorf("%d nodes were restored, and %d recovered", nodes, found.Nodes)
	}
}

// Ensure that a service and a check whose node is lost are reported by the names that a user gave
// them, and left out of the backup, which can be restored.
func TestRecover_NamesWhatHasLostItsNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	meta := map[string]string{"m": "of the node" + strings.Repeat("x", os.Getpagesize())}
	written(t, path, func(tx *lockd.Txn) error {
		c := tx.Catalog()
		return errors.Join(
			c.PutNode(catalog.Node{Name: "a", Meta: meta}),
			c.PutNode(catalog.Node{Name: "b"}),
			c.PutService(catalog.Service{Node: "a", ID: "web/1", Name: "web"}),
			c.PutCheck(catalog.Check{Node: "a", ID: "up", Name: "up"}))
	})
	if clearPages(t, path, func(page []byte) bool {
		return bytes.Contains(page, []byte("of the node"))
	}) == 0 {
		t.Fatal("no page was cleared")
	}
	var backup bytes.Buffer
	found, err := lockd.Recover(path, &backup, nil)
	if err != nil {
		t.Fatal(err)
	}
	if found.Services+found.Checks > 0 {
		t.Errorf("%d services and %d checks without their node", found.Services, found.Checks)
	}
	if err := lockd.Restore(path+".restored", &backup, 0, nil); err != nil {
		t.Errorf("restore what was recovered: %v", err)
	}
	for _, want := range []string{
		`services: "a/web/1": it does not fit: `, `checks: "a/up": it does not fit: `,
	} {
		if !slices.ContainsFunc(found.Missing, func(text string) bool {
			return strings.HasPrefix(text, want)
		}) {
			t.Errorf("%q does not tell of %s", found.Missing, want)
		}
	}
}

// Ensure that a row whose checksum does not hold is reported by the name that a user knows: the ID
// of a session, and a key as it is.
func TestRecover_NamesADamagedRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	options := &lockd.Options{Sync: lockd.SyncNever}
	db, err := lockd.Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	const key = "a key of more than sixteen bytes"
	_, putErr := db.Put(key, []byte("damaged value"), nil)
	s, err := db.NewSession(&lockd.SessionOptions{
		Name: "damaged name", Lifetime: lockd.Independent,
	})
	if err := errors.Join(putErr, err, db.Close(), lockd.Compact(path, options)); err != nil {
		t.Fatal(err)
	}
	rewrite(t, path, func(content []byte) []byte {
		return bytes.ReplaceAll(content, []byte("damaged"), []byte("DAMAGED"))
	})
	found, err := lockd.Recover(path, io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found.Missing)
	want := []string{
		fmt.Sprintf("keys: %q: its checksum does not match", key),
		fmt.Sprintf("sessions: %q: its checksum does not match", s.ID()),
	}
	if !slices.Equal(found.Missing, want) {
		t.Errorf("missing: got %q, want %q", found.Missing, want)
	}
}

// Ensure that the index of what Recover saves, above which a restored database begins, is the
// highest of all rows that are left, also of rows which no backup has: a tombstone, or the fence of
// a share (G4, G8).
func TestRecover_G4_IndexOfAnyRow(t *testing.T) {
	for name, last := range map[string]func(db *lockd.DB) error{
		"Tombstone": func(db *lockd.DB) error {
			_, err := db.Put("gone", nil, nil)
			_, deleteErr := db.Delete("gone")
			return errors.Join(err, deleteErr)
		},
		"Share": func(db *lockd.DB) error {
			var errs []error
			for range 2 { // only the first one's grant is in the row of the key too
				s, err := db.NewSession(&lockd.SessionOptions{Lifetime: lockd.Independent})
				if err != nil {
					return err
				}
				_, err = s.TryLock("k", &lockd.LockOptions{Mode: lockd.Shared})
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lockd.db")
			options := &lockd.Options{Sync: lockd.SyncNever}
			db, err := lockd.Open(path, options)
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.Put("k", []byte("v"), nil)
			if err := errors.Join(err, last(db)); err != nil {
				t.Fatal(err)
			}
			index := db.Snapshot().Index()
			if err := errors.Join(db.Close(), lockd.Compact(path, options)); err != nil {
				t.Fatal(err)
			}
			// Without the header, only the rows tell the last index.
			rewrite(t, path, func(content []byte) []byte {
				return bytes.ReplaceAll(content, []byte("lockd"), []byte("lockD"))
			})
			found, err := lockd.Recover(path, io.Discard, nil)
			if err != nil {
				t.Fatal(err)
			}
			if found.Index < index || len(found.Doubtful) == 0 ||
				!strings.HasPrefix(found.Doubtful[0], "the header cannot be read: ") {
				t.Errorf("got %+v, want the index %d, and a word on the header", found, index)
			}
		})
	}
}
