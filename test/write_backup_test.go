package lockd_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that a backup has the rows that were put and nothing else, and that indexes go on above
// the given one.
func TestWriteBackup_G4(t *testing.T) {
	each(t, func(h *harness) {
		h.put("old", "1", 0)
		var b bytes.Buffer
		h.must(lockd.WriteBackup(&b, 1000, func(tx *lockd.Txn) error {
			_, err := tx.Put("k", []byte("v"), &lockd.PutOptions{Flags: 7})
			return errors.Join(err, tx.Catalog().PutNode(catalog.Node{Name: "n", ID: "i"}),
				tx.Catalog().PutService(catalog.Service{Node: "n", Name: "s"}),
				tx.Catalog().PutCheck(catalog.Check{Node: "n", Name: "c", Status: catalog.Passing}))
		}))
		h.must(h.Restore(&b))
		state := h.Snapshot()
		if e := h.entry("k"); string(e.Value) != "v" || e.Flags != 7 || e.ModifyIndex <= 1000 {
			t.Errorf("%+v", e)
		}
		nodes := 0
		for range state.Catalog().Nodes() {
			nodes++
		}
		_, service := state.Catalog().Service("n", "s")
		c, _ := state.Catalog().Check("n", "c")
		if state.Len() != 1 || nodes != 2 || !service || c.Status != catalog.Passing {
			t.Errorf("%d keys, %d nodes, service %v, check %+v", state.Len(), nodes, service, c)
		}
	})
}

// Ensure that a refused call makes no backup, and says why.
func TestWriteBackup_Refused(t *testing.T) {
	var b bytes.Buffer
	err := lockd.WriteBackup(&b, 0, func(tx *lockd.Txn) error {
		_, err := tx.Put("", nil, nil)
		return err
	})
	if !errors.Is(err, lockd.ErrInvalid) || b.Len() > 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
	own := func(*lockd.Txn) error { return errWrite }
	if err := lockd.WriteBackup(&b, 0, own); err != errWrite {
		t.Errorf("its own error, not as it is: %v", err)
	}
	if err := lockd.WriteBackup(io.Discard, 1<<63, nothing); !errors.Is(err, lockd.ErrInvalid) {
		t.Errorf("an index too high: %v", err)
	}
	err = lockd.WriteBackup(failingWriter{}, 0, nothing)
	if !errors.Is(err, errWrite) || !strings.HasPrefix(err.Error(), "lockd: write backup: ") {
		t.Errorf("a writer that fails: %v", err)
	}
}
