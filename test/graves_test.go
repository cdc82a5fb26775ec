package lockd_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/schema"
)

// bury deletes n keys that were never there before, in one transaction.
func (h *harness) bury(round, n int) {
	h.t.Helper()
	name := func(i int) string { return fmt.Sprintf("grave/%03d/%04d", round, i) }
	h.must(h.txn(func(tx *lockd.Txn) error {
		for i := range n {
			if _, err := tx.Put(name(i), nil, nil); err != nil {
				return err
			}
		}
		return nil
	}))
	h.must(h.txn(func(tx *lockd.Txn) error {
		for i := range n {
			if _, err := tx.Delete(name(i)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Ensure that the last 10,000 tombstones are kept; that when older ones are dropped, the index of
// what is absent moves once, at most to the newest of those; and that no index ever falls, not
// after a restart either.
func TestIndexOf_I3I9X13X14B13_DroppedTombstones(t *testing.T) {
	each(t, func(h *harness) {
		const n = 500
		h.opts.Sync = lockd.SyncNever
		h.reopen()
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		h.must(h.EndSession(s.ID()))
		h.put("old", "v", 0)
		h.must(second(h.Delete("old")))
		h.put("dir/old", "v", 0)
		h.must(second(h.DeletePrefix("dir/")))
		alive := h.put("alive/k", "v", 0)
		scopes := map[string]lockd.Scope{
			"old": lockd.KeyScope("old"), "never": lockd.KeyScope("never"),
			"in dir": lockd.KeyScope("dir/x"),
			"dir":    lockd.PrefixScope("dir/"), "empty": lockd.PrefixScope("nothing/"),
			"session": lockd.SessionScope(s.ID()),
			"unknown": lockd.SessionScope(lockd.SessionID{1}),
			"alive":   lockd.KeyScope("alive/k"), "near alive": lockd.PrefixScope("alive/"),
			"recent": lockd.KeyScope("grave/020/0000"), "of nothing": {},
		}
		last := h.indexes(scopes)
		first := maps.Clone(last)
		moved := make(map[string]int)
		look := func(when string) {
			h.t.Helper()
			now := h.indexes(scopes)
			for name, index := range now {
				if index < last[name] {
					h.t.Errorf("%s: %q fell from %d to %d", when, name, last[name], index)
				}
				if index > last[name] {
					moved[name]++
				}
			}
			last = now
		}
		const rounds = schema.GraveLimit/n + 1 // so that what may be over the limit is used up
		for round := range rounds {
			h.bury(round, n)
			look(fmt.Sprint("round ", round))
			if h.path != "" && round%5 == 0 {
				h.reopen()
				look(fmt.Sprint("reopened after round ", round))
			}
			if round == rounds-2 && last["old"] != first["old"] {
				h.t.Errorf("dropped before there were %d", schema.GraveLimit)
			}
		}
		floor := last["never"]
		for _, name := range []string{"old", "in dir", "dir", "empty", "session", "unknown"} {
			if moved[name] != 1 || last[name] != floor {
				h.t.Errorf("%q moved %d times, to %d, want once, to %d", name, moved[name],
					last[name], floor)
			}
		}
		if floor >= last["recent"] || floor <= first["old"] {
			h.t.Errorf("the floor is %d", floor)
		}
		if last["alive"] != alive.ModifyIndex {
			h.t.Errorf("a key that is there moved: %d, want %d", last["alive"], alive.ModifyIndex)
		}
		if last["of nothing"] != 1 {
			h.t.Errorf("the scope that covers nothing is at %d", last["of nothing"])
		}
		if got := last["recent"]; got != h.Snapshot().IndexOf(lockd.KeyScope("grave/020/0499")) {
			h.t.Errorf("recent tombstones: got %d", got)
		}
		h.writes("elsewhere", 3)
		before := maps.Clone(last)
		look("after writes elsewhere")
		if !maps.Equal(before, last) {
			h.t.Errorf("moved by writes elsewhere: %v, %v", before, last)
		}
	})
}

// Ensure that the deletion of many keys by their prefix is one tombstone, and drops no other.
func TestIndexOf_I8I9_OneTombstoneForAPrefix(t *testing.T) {
	each(t, func(h *harness) {
		h.put("old", "v", 0)
		h.must(second(h.Delete("old")))
		index := h.Snapshot().Index()
		h.must(h.txn(func(tx *lockd.Txn) error {
			for i := range schema.GraveLimit + 600 {
				if _, err := tx.Put(fmt.Sprintf("dir/%05d", i), nil, nil); err != nil {
					return err
				}
			}
			return nil
		}))
		if n, err := h.DeletePrefix("dir/"); err != nil || n != schema.GraveLimit+600 {
			h.t.Fatalf("deleted %d, %v", n, err)
		}
		if got := h.Snapshot().IndexOf(lockd.KeyScope("old")); got != index {
			h.t.Errorf("old: was %d, is %d", index, got)
		}
		for _, scope := range []lockd.Scope{
			lockd.KeyScope("dir/00000"), lockd.KeyScope("dir/never"), lockd.PrefixScope("dir/0"),
			lockd.PrefixScope("dir"), lockd.PrefixScope("dir/"),
		} {
			if got := h.Snapshot().IndexOf(scope); got != h.Snapshot().Index() {
				h.t.Errorf("%+v: got %d, want %d", scope, got, h.Snapshot().Index())
			}
		}
	})
}

// Ensure that the deletion of a prefix as long as a key may be moves the index of each name that
// begins with it, even of one that cannot be a key.
func TestIndexOf_I8_LongestPrefix(t *testing.T) {
	each(t, func(h *harness) {
		longest := strings.Repeat("k", lockd.MaxKeySize)
		h.put(longest, "", 0)
		if n, err := h.DeletePrefix(longest); err != nil || n != 1 {
			h.t.Fatalf("deleted %d, %v", n, err)
		}
		for _, scope := range []lockd.Scope{
			lockd.KeyScope(longest), lockd.KeyScope(longest + "k"), lockd.PrefixScope(longest),
		} {
			if got := h.Snapshot().IndexOf(scope); got != h.Snapshot().Index() {
				h.t.Errorf("got %d, want %d", got, h.Snapshot().Index())
			}
		}
	})
}

// Ensure that the deletion of a prefix moves the index of a scope in it that was always empty, and
// wakes no call that waits for that scope; and that a call from the old index is answered once.
func TestBlocking_I8B4B8_DeletedAround(t *testing.T) {
	each(t, func(h *harness) {
		h.put("dir/other", "v", 0)
		for _, scope := range []lockd.Scope{
			lockd.KeyScope("dir/never"), lockd.PrefixScope("dir/none/"),
		} {
			h.put("dir/other", "v", 0)
			index := h.Snapshot().IndexOf(scope)
			waiting := h.changed(h.t.Context(), scope, index)
			h.must(second(h.DeletePrefix("dir/")))
			h.settle()
			now := h.Snapshot().IndexOf(scope)
			if isClosed(waiting) || now != h.Snapshot().Index() {
				h.t.Errorf("%v: closed: %t; at %d, was at %d", scope, isClosed(waiting), now, index)
			}
			if !isClosed(h.changed(h.t.Context(), scope, index)) ||
				isClosed(h.changed(h.t.Context(), scope, now)) {
				h.t.Errorf("%v: who waits from %d is told, and from %d is not", scope, index, now)
			}
			h.put("dir/never", "v", 0)
			h.put("dir/none/a", "v", 0)
			h.settle()
			if !isClosed(waiting) {
				h.t.Errorf("%v: open when it is there", scope)
			}
			h.must(second(h.DeleteAll()))
		}
	})
}
