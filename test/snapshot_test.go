package lockd_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/schema"
)

// indexes returns what IndexOf says of the scopes.
func (h *harness) indexes(scopes map[string]lockd.Scope) map[string]uint64 {
	all := make(map[string]uint64)
	s := h.Snapshot()
	for name, scope := range scopes {
		all[name] = s.IndexOf(scope)
	}
	return all
}

// around are scopes of each kind, of what the tests below write and of what they do not.
func around(ids ...lockd.SessionID) map[string]lockd.Scope {
	scopes := map[string]lockd.Scope{
		"sessions": lockd.SessionsScope(), "catalog": lockd.CatalogScope(),
	}
	for _, key := range []string{"a", "a/1", "a/1/x", "a/2", "ab", "b", "c"} {
		scopes["key "+key] = lockd.KeyScope(key)
	}
	for _, prefix := range []string{"", "a", "a/", "a/1", "a/1/", "b", "z"} {
		scopes["prefix "+prefix] = lockd.PrefixScope(prefix)
	}
	for i, id := range append(ids, lockd.SessionID{7}) {
		scopes[fmt.Sprint("session ", i)] = lockd.SessionScope(id)
	}
	return scopes
}

// Ensure that a new store is at a small index that is not 0, that no scope ever has index 0 or an
// entry index 1, and that the first change of a user comes after that.
func TestIndex_I10I11(t *testing.T) {
	each(t, func(h *harness) {
		first := h.Snapshot().Index()
		for name, index := range h.indexes(around()) {
			want := uint64(schema.FirstIndex)
			if name == "catalog" { // has this process's node
				want = first
			}
			if index != want || index == 0 {
				h.t.Errorf("%s: got %d, want %d", name, index, want)
			}
		}
		e := h.put("k", "v", 0)
		if e.ModifyIndex < 2 || e.ModifyIndex != first+1 || first < 2 {
			h.t.Errorf("first change at %d, after %d", e.ModifyIndex, first)
		}
		if got := h.Snapshot().IndexOf(lockd.Scope{}); got != schema.FirstIndex {
			h.t.Errorf("the zero scope: got %d", got)
		}
	})
}

// Ensure that the index of a key that exists is its ModifyIndex, and can be fed back to a
// compare-and-swap.
func TestIndexOf_I2(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "1", 0)
		h.lock(h.session(nil), "k")
		h.put("elsewhere", "1", 0)
		s := h.Snapshot()
		e, _ := s.Get("k")
		if s.IndexOf(lockd.KeyScope("k")) != e.ModifyIndex {
			h.t.Errorf("got %d, want %d", s.IndexOf(lockd.KeyScope("k")), e.ModifyIndex)
		}
		h.must(second(h.CompareAndSwap("k", s.IndexOf(lockd.KeyScope("k")), []byte("2"), nil)))
	})
}

// Ensure that the index of an absent key, and of a prefix, is the index of the last change or
// deletion there, and that nothing else moves it.
func TestIndexOf_I3I4I5I7I8(t *testing.T) {
	each(t, func(h *harness) {
		for _, step := range []struct {
			name  string
			do    func() error
			moves []string
		}{
			{"put a/1", func() error { h.put("a/1", "v", 0); return nil },
				[]string{"key a/1", "prefix ", "prefix a", "prefix a/", "prefix a/1"}},
			{"put a/1/x", func() error { h.put("a/1/x", "v", 0); return nil }, []string{
				"key a/1/x", "prefix ", "prefix a", "prefix a/", "prefix a/1", "prefix a/1/",
			}},
			{"put b", func() error { h.put("b", "v", 0); return nil },
				[]string{"key b", "prefix ", "prefix b"}},
			{"delete a/1", func() error { return second(h.Delete("a/1")) },
				[]string{"key a/1", "prefix ", "prefix a", "prefix a/", "prefix a/1"}},
			{"put b again", func() error { h.put("b", "w", 0); return nil },
				[]string{"key b", "prefix ", "prefix b"}},
			{"no-op", func() error { h.put("b", "w", 0); return nil }, nil},
			{"delete what is not there", func() error { return second(h.Delete("a/2")) }, nil},
			{"delete prefix without keys", func() error {
				return second(h.DeletePrefix("a/2"))
			}, nil},
			{"delete prefix a/", func() error { return second(h.DeletePrefix("a/")) }, []string{
				"key a/1", "key a/1/x", "key a/2", "prefix ", "prefix a", "prefix a/",
				"prefix a/1", "prefix a/1/",
			}},
			{"put ab", func() error { h.put("ab", "v", 0); return nil },
				[]string{"key ab", "prefix ", "prefix a"}},
			{"session", func() error { return second(h.NewSession(nil)) }, []string{"sessions"}},
			{"node", func() error { h.register(); return nil }, []string{"catalog"}},
			{"delete all", func() error { return second(h.DeleteAll()) }, []string{
				"key a", "key a/1", "key a/1/x", "key a/2", "key ab", "key b", "key c",
				"prefix ", "prefix a", "prefix a/", "prefix a/1", "prefix a/1/", "prefix b",
				"prefix z",
			}},
		} {
			was := h.indexes(around())
			h.must(step.do())
			want := maps.Clone(was)
			for _, name := range step.moves {
				want[name] = h.Snapshot().Index()
			}
			if got := h.indexes(around()); !maps.Equal(got, want) {
				for name := range want {
					if got[name] != want[name] {
						h.t.Errorf("%s: %q was %d, is %d, want %d", step.name, name, was[name],
							got[name], want[name])
					}
				}
			}
			if h.path != "" {
				h.reopen()
				for name, index := range h.indexes(around()) {
					if name != "sessions" && index != want[name] {
						h.t.Errorf("%s, reopened: %q is %d, want %d", step.name, name, index,
							want[name])
					}
				}
			}
		}
	})
}

// Ensure that a key that a listing folds away counts in the index of its prefix.
func TestIndexOf_I6(t *testing.T) {
	each(t, func(h *harness) {
		h.put("jobs/8/pid", "v", 0)
		h.put("jobs/9", "v", 0)
		e := h.put("jobs/8/log", "v", 0)
		s := h.Snapshot()
		keys := slices.Collect(s.Keys("jobs/", "/"))
		if !slices.Equal(keys, []string{"jobs/8/", "jobs/9"}) ||
			s.IndexOf(lockd.PrefixScope("jobs/")) != e.ModifyIndex {
			h.t.Errorf("got %q at %d, want %d", keys, s.IndexOf(lockd.PrefixScope("jobs/")),
				e.ModifyIndex)
		}
	})
}

// Ensure that the index of one session is its beginning's, and then its end's, which stays.
func TestIndexOf_S38_OneSession(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		scope := lockd.SessionScope(s.ID())
		began := h.Snapshot().Index()
		h.lock(s, "k")
		if got := h.Snapshot().IndexOf(scope); got != began {
			h.t.Errorf("living: got %d, want %d", got, began)
		}
		h.must(s.Close())
		ended := h.Snapshot().Index()
		h.put("k", "v", 0)
		h.must(h.session(nil).Close())
		if h.path != "" {
			h.reopen()
		}
		if got := h.Snapshot().IndexOf(scope); h.path != "" && got != ended || got < began {
			h.t.Errorf("ended: got %d, want %d", got, ended)
		}
	})
}

// Ensure that all changes of one transaction have one index, and that a no-op in it keeps the index
// from before.
func TestTxn_I12I13(t *testing.T) {
	each(t, func(h *harness) {
		old := h.put("old", "v", 0)
		s := h.session(nil)
		var noop lockd.Entry
		h.must(h.txn(func(tx *lockd.Txn) (err error) {
			h.must(second(tx.Put("new", []byte("1"), nil)))
			h.must(second(tx.Put("new", []byte("2"), nil)))
			h.must(second(tx.Lock("locked", s.ID(), nil)))
			noop, err = tx.Put("old", []byte("v"), nil)
			return err
		}))
		index := h.Snapshot().Index()
		if e := h.entry("new"); e.CreateIndex != index || e.ModifyIndex != index ||
			string(e.Value) != "2" || h.entry("locked").Fence != index {
			h.t.Errorf("got %+v and %+v, want %d", e, h.entry("locked"), index)
		}
		same(h, "no-op", noop, old)
		same(h, "no-op", h.entry("old"), old)
	})
}

// Ensure that indexes go on after a restart, a crash included.
func TestIndex_I14(t *testing.T) {
	onFile(t, func(h *harness) {
		h.put("k", "1", 0)
		h.must(second(h.Delete("k")))
		for range 3 {
			index := h.Snapshot().Index()
			h.reopen()
			if got := h.Snapshot().Index(); got < index {
				h.t.Errorf("reopened: was %d, is %d", index, got)
			}
			if e := h.put("k", fmt.Sprint(index), 0); e.ModifyIndex != index+1 {
				h.t.Errorf("next: got %d, want %d", e.ModifyIndex, index+1)
			}
		}
		index := h.Snapshot().Index()
		next := h.crash(nil)
		if got := next.Snapshot().Index(); got != index {
			h.t.Errorf("after a crash: was %d, is %d", index, got)
		}
		if e := next.put("k", "2", 0); e.ModifyIndex != index+1 {
			h.t.Errorf("next: got %d, want %d", e.ModifyIndex, index+1)
		}
	})
}

// Ensure that the index of the store is the index of its last change, and that no scope's index
// ever falls or lies above it, whatever happens, restarts included.
func TestIndexOf_I1B13X14_NeverFalls(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.Sync = lockd.SyncNever
		h.reopen()
		random := rand.New(rand.NewPCG(1, 2))
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, Lifetime: lockd.Independent})
		ids := []lockd.SessionID{s.ID()}
		keys := []string{"a", "a/1", "a/1/x", "a/2", "ab", "b"}
		last := h.indexes(around(ids...))
		for i := range 600 {
			key := keys[random.IntN(len(keys))]
			switch random.IntN(12) {
			case 0, 1, 2, 3:
				h.put(key, fmt.Sprint(i), 0)
			case 4, 5:
				h.must(second(h.Delete(key)))
			case 6:
				h.must(second(h.DeletePrefix(key)))
			case 7:
				if _, err := s.TryLock(key, nil); err != nil &&
					!errors.As(err, new(*lockd.LockedError)) {
					h.t.Fatal(err)
				}
			case 8:
				h.must(h.EndSession(s.ID()))
				s = h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
			case 9:
				if h.path != "" {
					h.reopen()
					var err error
					s, err = h.DB.Session(s.ID())
					h.must(err)
				}
			case 10:
				h.advance(5 * time.Second)
			case 11:
				if i%10 == 0 {
					h.must(second(h.DeleteAll()))
				}
			}
			now := h.indexes(around(ids...))
			for name, index := range now {
				if index < last[name] || index > h.Snapshot().Index() {
					h.t.Fatalf("step %d: %q was %d, is %d of %d", i, name, last[name], index,
						h.Snapshot().Index())
				}
			}
			last = now
		}
	})
}

// Ensure that a snapshot shows the same state for ever, whatever is written later, Close included,
// and that two snapshots of one index are alike.
func TestSnapshot_IsImmutable(t *testing.T) {
	each(t, func(h *harness) {
		show := func(s *lockd.Snapshot) string {
			text := fmt.Sprintln(s.Index(), s.Len(), s.IndexOf(lockd.PrefixScope("")))
			for key, e := range s.Prefix("") {
				text += fmt.Sprintln(key, e)
			}
			for info := range s.Sessions() {
				text += fmt.Sprintln(info)
			}
			for n := range s.Catalog().Nodes() {
				text += fmt.Sprintln(n)
			}
			return text
		}
		session := h.session(nil)
		for i := range 100 {
			h.put(fmt.Sprint("k", i), "v", 0)
		}
		s := h.Snapshot()
		was := show(s)
		for i := range 100 {
			if i%2 == 0 {
				h.must(second(h.Delete(fmt.Sprint("k", i))))
			} else {
				h.put(fmt.Sprint("k", i), "w", 1)
			}
			h.put(fmt.Sprint("n", i), "v", 0)
		}
		h.must(session.Close())
		h.register()
		if got := show(s); got != was {
			h.t.Errorf("it changed: got %s, was %s", got, was)
		}
		last := h.Snapshot()
		if a, b := show(last), show(h.Snapshot()); a != b || a == was {
			h.t.Errorf("two of one index: got %s and %s", a, b)
		}
		want := show(last)
		h.must(h.Close())
		if show(s) != was || show(last) != want || show(h.Snapshot()) != want {
			h.t.Errorf("it changed with Close")
		}
	})
}

// Ensure that a prefix goes by bytes and yields its keys in their order, with their entries, and
// that a loop may be left.
func TestSnapshot_Prefix(t *testing.T) {
	each(t, func(h *harness) {
		keys := []string{
			"\x00", "a", "a/", "a/\xff", "a/\xff\xff", "a0", "b", "é", "\xff", "\xff\xff",
		}
		for _, key := range keys {
			h.put(key, "v of "+key, 0)
		}
		s := h.Snapshot()
		for prefix, want := range map[string][]string{
			"":         keys,
			"a":        {"a", "a/", "a/\xff", "a/\xff\xff", "a0"},
			"a/":       {"a/", "a/\xff", "a/\xff\xff"},
			"a/\xff":   {"a/\xff", "a/\xff\xff"},
			"\xff":     {"\xff", "\xff\xff"},
			"\xff\xff": {"\xff\xff"},
			"c":        nil,
			"a0\x00":   nil,
		} {
			var got []string
			for key, e := range s.Prefix(prefix) {
				got = append(got, key)
				if e.Key != key || string(e.Value) != "v of "+key {
					h.t.Errorf("%q: got %+v", key, e)
				}
			}
			if !slices.Equal(got, want) {
				h.t.Errorf("prefix %q: got %q, want %q", prefix, got, want)
			}
			if folded := slices.Collect(s.Keys(prefix, "")); !slices.Equal(folded, want) {
				h.t.Errorf("keys of %q: got %q", prefix, folded)
			}
		}
		n := 0
		for range s.Prefix("") {
			if n++; n == 3 {
				break
			}
		}
		for range s.Keys("", "/") {
			n++
			break
		}
		if n != 4 || s.Len() != len(keys) {
			h.t.Errorf("left after %d of %d", n, s.Len())
		}
	})
}

// Ensure that the memory of what a large transaction deleted is given back when the history has
// forgotten it, and is not kept for the next transaction.
func TestDB_DeletedValuesAreGivenBack(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.History = 1
		h.reopen()
		const n = 200
		values := make([]weak.Pointer[byte], 0, n)
		h.must(h.txn(func(tx *lockd.Txn) error {
			for i := range n {
				e, err := tx.Put(fmt.Sprintf("dir/%03d", i), make([]byte, 1024), nil)
				if err != nil {
					return err
				}
				values = append(values, weak.Make(&e.Value[0]))
			}
			return nil
		}))
		h.must(second(h.DeletePrefix("dir/")))
		h.put("k", "v", 0) // the newest event
		h.Snapshot()       // brings the order of the keys up to date
		runtime.GC()
		kept := 0
		for _, value := range values {
			if value.Value() != nil {
				kept++
			}
		}
		if kept > 1 { // the one that was looked for last
			h.t.Errorf("%d of %d values are kept", kept, n)
		}
	})
}
