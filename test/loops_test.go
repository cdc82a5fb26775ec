package lockd_test

import (
	"errors"
	"iter"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// leave begins a loop, and leaves it at its first step.
func leave[T any](loop iter.Seq[T]) (found bool) {
	for range loop {
		return true
	}
	return false
}

// firsts is a loop over the first values of another one.
func firsts[K, V any](loop iter.Seq2[K, V]) iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range loop {
			if !yield(k) {
				return
			}
		}
	}
}

// Ensure that every loop over a list may be left before its end.
func TestLoops_MayBeLeft(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.session(nil), h.session(nil)
		shared := &lockd.LockOptions{Mode: lockd.Shared}
		for _, s := range []*lockd.Session{a, b} {
			h.must(second(s.TryLock("k", shared)))
			h.must(second(s.TryLock("own/"+s.ID().String(), nil)))
		}
		h.must(h.Update(func(tx *lockd.Txn) error {
			c := tx.Catalog()
			var errs []error
			for _, name := range []string{"a", "b"} {
				errs = append(errs, c.PutNode(catalog.Node{Name: name}),
					c.PutService(catalog.Service{Node: "a", ID: name, Name: name}),
					c.PutCheck(catalog.Check{Node: "a", ID: name, Name: name}),
					c.AttachUnowned(name, nil))
			}
			for name, found := range map[string]bool{
				"Txn.Holders":     leave(tx.Holders("k")),
				"Txn.Prefix":      leave(firsts(tx.Prefix(""))),
				"Txn.Attachments": leave(c.Attachments("")),
			} {
				if !found {
					h.t.Errorf("%s is empty", name)
				}
			}
			return errors.Join(errs...)
		}))
		s := h.Snapshot()
		for name, found := range map[string]bool{
			"DB.Locks":             leave(h.Locks()),
			"DB.Sessions":          leave(h.Sessions()),
			"Snapshot.Holders":     leave(s.Holders("k")),
			"Snapshot.Keys":        leave(s.Keys("", "")),
			"Snapshot.Prefix":      leave(firsts(s.Prefix(""))),
			"Snapshot.Sessions":    leave(s.Sessions()),
			"Snapshot.Attachments": leave(s.Catalog().Attachments("")),
			"Snapshot.Checks":      leave(s.Catalog().Checks("a")),
			"Snapshot.Nodes":       leave(s.Catalog().Nodes()),
			"Snapshot.Services":    leave(s.Catalog().Services("a")),
		} {
			if !found {
				h.t.Errorf("%s is empty", name)
			}
		}
	})
}
