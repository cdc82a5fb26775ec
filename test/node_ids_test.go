package lockd_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that a node which got the ID of another node in a transaction that was taken back does not
// have it, and that the other node still does, and is removed when a third node takes the ID.
func TestCatalog_N5_RenamingTakenBack(t *testing.T) {
	each(t, func(h *harness) {
		put := func(tx *lockd.Txn, names ...string) (err error) {
			for _, name := range names {
				err = errors.Join(err, tx.Catalog().PutNode(catalog.Node{Name: name, ID: "x"}))
			}
			return err
		}
		h.must(h.txn(func(tx *lockd.Txn) error { return put(tx, "one") }))
		for _, names := range [][]string{{"two"}, {"other", "two", "one", "two"}} {
			err := h.Update(func(tx *lockd.Txn) error {
				return errors.Join(put(tx, names...), errWrite)
			})
			if !errors.Is(err, errWrite) {
				t.Fatal(err)
			}
		}
		h.must(h.txn(func(tx *lockd.Txn) error { return put(tx, "three") }))
		view := h.Snapshot().Catalog()
		_, one := view.Node("one")
		_, two := view.Node("two")
		_, three := view.Node("three")
		if one || two || !three {
			t.Errorf("one %v, two %v, three %v; want the third alone", one, two, three)
		}
	})
}

// Ensure that writing and restoring a backup of very many nodes with IDs takes time in proportion
// to their number, not to its square.
func TestRestore_ManyNodeIDs(t *testing.T) {
	const nodes = 40_000
	path := filepath.Join(t.TempDir(), "lockd.db")
	done := make(chan error, 1)
	go func() {
		var b bytes.Buffer
		err := lockd.WriteBackup(&b, 0, func(tx *lockd.Txn) (err error) {
			for i := range nodes {
				node := catalog.Node{Name: fmt.Sprintf("n%d", i), ID: fmt.Sprintf("i%d", i)}
				err = errors.Join(err, tx.Catalog().PutNode(node))
			}
			return err
		})
		done <- errors.Join(err, lockd.Restore(path, &b, 0, nil))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on")
	}
}
