package lockd_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/lockd/lockd"
)

// keyRule is a row of the table of operations: what is done to the key "k", in which state, and
// what comes of it.
type keyRule struct {
	rule, on string
	given    func(w *world)
	do       rule
	want     func(w *world, before lockd.Entry, index uint64) lockd.Entry // nil: refused
	result   any                                                          // nil: the entry after
	err      error                                                        // why it is refused
	refused  func(w *world, err error)                                    // looks at the error
}

// world is where the rules are tried: two sessions that live, and one that does not.
type world struct {
	*harness
	a, b, ended *lockd.Session
}

const other = "kk" // a key that no rule touches, and that begins with the rules' key

// run tries every rule in a database of its own, in memory and on a file.
func run(t *testing.T, rules []keyRule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.rule+"_"+r.on, func(t *testing.T) { each(t, r.try) })
	}
}

func (r keyRule) try(h *harness) {
	w := &world{harness: h}
	w.a, w.b = h.session(&lockd.SessionOptions{Name: "a"}), h.session(nil)
	w.ended = h.session(nil)
	h.must(w.ended.Close())
	if r.given != nil {
		r.given(w)
	}
	before, _ := h.Get("k")
	was := h.scopes()
	woken := h.watch("k")
	neighbour := h.watch(other)

	got, err := r.do(w)
	h.settle()

	after, exists := h.Get("k")
	now := h.scopes()
	if closed(neighbour) {
		h.t.Errorf("the watcher of another key woke")
	}
	if r.want == nil {
		if err == nil || r.err != nil && !errors.Is(err, r.err) {
			h.t.Fatalf("error: got %v, want %v", err, r.err)
		}
		if !isZero(got) {
			h.t.Errorf("result of a refusal: got %v", got)
		}
		if r.refused != nil {
			r.refused(w, err)
		}
	}
	if err != nil && r.want != nil {
		h.t.Fatalf("error: got %v", err)
	}
	want := before
	if r.want != nil {
		want = r.want(w, before, h.Snapshot().Index())
	}
	same(h, "the entry after", after, want)
	if exists != (want.Key != "") {
		h.t.Errorf("exists: got %v", exists)
	}
	switch {
	case r.want == nil:
	case r.result == nil:
		same(h, "the result", got.(lockd.Entry), want)
	case got != r.result:
		h.t.Errorf("result: got %v, want %v", got, r.result)
	}
	r.checkMoves(h, was, now, !reflect.DeepEqual(plain(before), plain(want)), closed(woken))
}

// checkMoves checks which indexes moved and which calls were woken: all, or none.
func (r keyRule) checkMoves(h *harness, was, now map[string]uint64, moves, woke bool) {
	h.t.Helper()
	if !moves {
		if !maps.Equal(was, now) {
			h.t.Errorf("nothing should have moved: was %v, is %v", was, now)
		}
		if woke {
			h.t.Errorf("the watcher woke without a change")
		}
		return
	}
	index := now["store"]
	if index <= was["store"] {
		h.t.Errorf("index of the store: was %d, is %d", was["store"], index)
	}
	for _, scope := range []string{"key", "prefix", "all"} {
		if now[scope] != index {
			h.t.Errorf("index of the %s: got %d, want %d", scope, now[scope], index)
		}
	}
	for _, scope := range []string{"other", "sessions"} {
		if now[scope] != was[scope] {
			h.t.Errorf("index of the %s: was %d, is %d", scope, was[scope], now[scope])
		}
	}
	if !woke {
		h.t.Errorf("the watcher did not wake")
	}
}

// scopes returns the index of the store, and of everything around the key "k".
func (h *harness) scopes() map[string]uint64 {
	s := h.Snapshot()
	return map[string]uint64{
		"store":    s.Index(),
		"key":      s.IndexOf(lockd.KeyScope("k")),
		"prefix":   s.IndexOf(lockd.PrefixScope("k")),
		"all":      s.IndexOf(lockd.PrefixScope("")),
		"other":    s.IndexOf(lockd.KeyScope(other)),
		"sessions": s.IndexOf(lockd.SessionsScope()),
	}
}

// watch returns a channel that is closed by the next change of the key.
func (h *harness) watch(key string) <-chan struct{} {
	scope := lockd.KeyScope(key)
	return h.changed(h.t.Context(), scope, h.Snapshot().IndexOf(scope))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func isZero(v any) bool { return v == nil || reflect.ValueOf(v).IsZero() }

// plain makes entries comparable: no value and an empty one are the same.
func plain(e lockd.Entry) lockd.Entry {
	if len(e.Value) == 0 {
		e.Value = nil
	}
	return e
}

func same(h *harness, what string, got, want lockd.Entry) {
	h.t.Helper()
	if !reflect.DeepEqual(plain(got), plain(want)) {
		h.t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// The states of the key.

func free(w *world) {
	w.put("k", "old", 7)
	w.must(w.lock(w.b, "k").Unlock())
}

func heldByA(w *world) {
	free(w)
	w.lock(w.a, "k")
}

func heldByB(w *world) {
	free(w)
	w.lock(w.b, "k")
}

func (h *harness) put(key, value string, flags uint64) lockd.Entry {
	h.t.Helper()
	e, err := h.Put(key, []byte(value), &lockd.PutOptions{Flags: flags})
	h.must(err)
	return e
}

// What is left of the entry after a write.

func unchanged(_ *world, before lockd.Entry, _ uint64) lockd.Entry { return before }
func gone(*world, lockd.Entry, uint64) lockd.Entry                 { return lockd.Entry{} }

// created is the key made anew, by a write of the value.
func created(_ *world, _ lockd.Entry, index uint64) lockd.Entry {
	return lockd.Entry{Key: "k", Value: []byte("new"), Flags: 9, CreateIndex: index,
		ModifyIndex: index}
}

// rewritten is the key with another value, and all else as it was.
func rewritten(_ *world, before lockd.Entry, index uint64) lockd.Entry {
	before.Value, before.Flags, before.ModifyIndex = []byte("new"), 9, index
	return before
}

func set(w *world) (any, error) {
	return w.Put("k", []byte("new"), &lockd.PutOptions{Flags: 9})
}

func setSame(w *world) (any, error) {
	return w.Put("k", []byte("old"), &lockd.PutOptions{Flags: 7})
}

// cas swaps at the key's ModifyIndex plus off.
func cas(off int) func(w *world) (any, error) {
	return func(w *world) (any, error) {
		index := int(w.entry("k").ModifyIndex) + off
		return w.CompareAndSwap("k", uint64(index), []byte("new"), &lockd.PutOptions{Flags: 9})
	}
}

func casAt(index uint64) func(w *world) (any, error) {
	return func(w *world) (any, error) {
		return w.CompareAndSwap("k", index, []byte("new"), &lockd.PutOptions{Flags: 9})
	}
}

func TestPut_K1K2K3(t *testing.T) {
	run(t, []keyRule{
		{rule: "K1", on: "absent", do: set, want: created},
		{rule: "K2", on: "free", given: free, do: set, want: rewritten},
		{rule: "K2", on: "held", given: heldByB, do: set, want: rewritten},
		{rule: "K2", on: "other flags only", given: free,
			do: func(w *world) (any, error) {
				return w.Put("k", []byte("old"), nil)
			},
			want: func(_ *world, before lockd.Entry, index uint64) lockd.Entry {
				before.Flags, before.ModifyIndex = 0, index
				return before
			}},
		{rule: "K3", on: "free", given: free, do: setSame, want: unchanged},
		{rule: "K3", on: "held", given: heldByB, do: setSame, want: unchanged},
		{rule: "K3", on: "empty and nil",
			given: func(w *world) { w.put("k", "", 0) },
			do:    func(w *world) (any, error) { return w.Put("k", nil, nil) },
			want:  unchanged},
	})
}

func TestCompareAndSwap_K4K5K6K7K8(t *testing.T) {
	run(t, []keyRule{
		{rule: "K4", on: "absent", do: casAt(0), want: created},
		{rule: "K5", on: "free", given: free, do: casAt(0), err: lockd.ErrConflict},
		{rule: "K5", on: "held", given: heldByA, do: casAt(0), err: lockd.ErrConflict},
		{rule: "K6", on: "absent", do: casAt(1), err: lockd.ErrConflict},
		{rule: "K7", on: "an older index", given: free, do: cas(-1), err: lockd.ErrConflict},
		{rule: "K7", on: "a newer index", given: heldByA, do: cas(1), err: lockd.ErrConflict},
		{rule: "K8", on: "free", given: free, do: cas(0), want: rewritten},
		{rule: "K8", on: "held", given: heldByB, do: cas(0), want: rewritten},
		{rule: "K8", on: "same value and flags", given: heldByB,
			do: func(w *world) (any, error) {
				e := w.entry("k")
				return w.CompareAndSwap("k", e.ModifyIndex, e.Value,
					&lockd.PutOptions{Flags: e.Flags})
			},
			want: unchanged},
	})
}

// Ensure that a delete and a compare-and-delete tell three outcomes apart (X19).
func TestDelete_K26K27K28K29K30(t *testing.T) {
	del := func(w *world) (any, error) { return w.Delete("k") }
	delAt := func(index uint64) func(w *world) (any, error) {
		return func(w *world) (any, error) { return w.CompareAndDelete("k", index) }
	}
	delOff := func(off int) func(w *world) (any, error) {
		return func(w *world) (any, error) {
			return w.CompareAndDelete("k", uint64(int(w.entry("k").ModifyIndex)+off))
		}
	}
	run(t, []keyRule{
		{rule: "K26", on: "free", given: free, do: del, want: gone, result: true},
		{rule: "K26", on: "held", given: heldByB, do: del, want: gone, result: true},
		{rule: "K27", on: "absent", do: del, want: gone, result: false},
		{rule: "K28", on: "absent, 0", do: delAt(0), want: gone, result: false},
		{rule: "K28", on: "absent, 1", do: delAt(1), want: gone, result: false},
		{rule: "K29", on: "free", given: free, do: delOff(0), want: gone, result: true},
		{rule: "K29", on: "held", given: heldByB, do: delOff(0), want: gone, result: true},
		{rule: "K30", on: "an older index", given: free, do: delOff(-1), err: lockd.ErrConflict},
		{rule: "K30", on: "a newer index", given: free, do: delOff(1), err: lockd.ErrConflict},
		{rule: "K30", on: "index 0", given: heldByB, do: delAt(0), err: lockd.ErrConflict},
	})
}

// Ensure that a delete that found nothing leaves an absent key without a tombstone, and a delete
// that found the key leaves one.
func TestDelete_K26K27_Tombstone(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		deleted, err := h.Delete("k")
		h.must(err)
		at := h.Snapshot().Index()
		h.put("other", "v", 0)
		if _, err := h.Delete("k"); err != nil {
			t.Fatal(err)
		}
		if got := h.Snapshot().IndexOf(lockd.KeyScope("k")); !deleted || got != at {
			h.t.Fatalf("index of the absent key: got %d, want %d", got, at)
		}
		if got := h.Snapshot().IndexOf(lockd.KeyScope("never")); got != 1 {
			h.t.Fatalf("index of a key that never was: got %d, want 1", got)
		}
	})
}

// Ensure that the deletion of a prefix leaves one tombstone, which counts for the keys that it
// covers, and that the deletion of a prefix without keys leaves none.
func TestDeletePrefix_K31K32(t *testing.T) {
	each(t, func(h *harness) {
		for _, key := range []string{"a", "p/1", "p/2", "p/3", "q"} {
			h.put(key, "v", 0)
		}
		held := h.lock(h.session(nil), "p/2")
		before := h.Snapshot().Index()

		n, err := h.DeletePrefix("p/nothing")
		h.must(err)
		if n != 0 || h.Snapshot().Index() != before {
			h.t.Fatalf("K32: got %d deleted, index %d after %d", n, h.Snapshot().Index(), before)
		}
		n, err = h.DeletePrefix("p/")
		h.must(err)
		at := h.Snapshot().Index()
		if n != 3 || at <= before {
			h.t.Fatalf("K31: got %d deleted, index %d after %d", n, at, before)
		}
		if got := listed(h, "", ""); !slices.Equal(got, []string{"a", "q"}) {
			h.t.Fatalf("keys: got %v", got)
		}
		h.put("q", "w", 0)
		for _, key := range []string{"p/1", "p/2", "p/never", "p/"} {
			if got := h.Snapshot().IndexOf(lockd.KeyScope(key)); got != at {
				h.t.Errorf("index of %q: got %d, want %d", key, got, at)
			}
		}
		if got := h.Snapshot().IndexOf(lockd.KeyScope("p")); got != 1 {
			h.t.Errorf("index of %q, which the prefix does not cover: got %d", "p", got)
		}
		if !errors.Is(held.Err(), lockd.ErrKeyDeleted) {
			h.t.Errorf("the lock under the prefix: got %v", held.Err())
		}
	})
}

// Ensure that a prefix is of bytes, not of a path, and that only DeleteAll deletes all keys (X18).
func TestDeletePrefix_K40(t *testing.T) {
	each(t, func(h *harness) {
		keys := []string{"q", "r", "r/a", "r2", "rs/b", "s"}
		for _, key := range keys {
			h.put(key, "v", 0)
		}
		before := h.Snapshot().Index()
		if _, err := h.DeletePrefix(""); !errors.Is(err, lockd.ErrInvalid) {
			h.t.Fatalf("the empty prefix: got %v", err)
		}
		if h.Snapshot().Index() != before || h.Snapshot().Len() != len(keys) {
			h.t.Fatalf("the refusal changed something")
		}
		n, err := h.DeletePrefix("r")
		h.must(err)
		if got := listed(h, "", ""); n != 4 || !slices.Equal(got, []string{"q", "s"}) {
			h.t.Fatalf("prefix r: %d deleted, left %v", n, got)
		}
		s := h.session(nil)
		l := h.lock(s, "s")
		n, err = h.DeleteAll()
		h.must(err)
		if n != 2 || h.Snapshot().Len() != 0 {
			h.t.Fatalf("all: %d deleted, left %v", n, listed(h, "", ""))
		}
		if !errors.Is(l.Err(), lockd.ErrKeyDeleted) || s.Err() != nil {
			h.t.Fatalf("lock: %v, session: %v", l.Err(), s.Err())
		}
		h.lock(s, "s") // no delay
		h.must(second(h.DeleteAll()))
		before = h.Snapshot().Index()
		if n, err = h.DeleteAll(); n != 0 || err != nil || h.Snapshot().Index() != before {
			h.t.Fatalf("nothing left to delete: got %d, %v", n, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Ensure that the same value and flags are a no-op whatever the LockIndex is, so that a heartbeat
// has to write something new (X4).
func TestPut_K9_NoOpAtEveryLockIndex(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		want := h.put("k", "v", 1)
		for range 3 {
			index := h.Snapshot().Index()
			same(h, "no-op", h.put("k", "v", 1), want)
			if h.Snapshot().Index() != index {
				h.t.Fatalf("a no-op at LockIndex %d moved the index", want.LockIndex)
			}
			h.must(h.lock(s, "k").Unlock())
			want = h.entry("k")
		}
	})
}

// Ensure that any caller may write to a locked key, without the lock and without taking it.
func TestPut_K10_LocksAreAdvisory(t *testing.T) {
	each(t, func(h *harness) {
		l := h.lock(h.session(nil), "k")
		h.put("k", "by a stranger", 0)
		_, err := h.CompareAndSwap("k", h.entry("k").ModifyIndex, []byte("again"), nil)
		h.must(err)
		if err := l.Err(); err != nil || h.entry("k").Sequencer() != l.Sequencer() {
			h.t.Fatalf("the lock after the writes: %v, %+v", err, h.entry("k"))
		}
	})
}

// Ensure that a refused write uses no index: the next write has the next one (X32).
func TestKeys_K11_RefusalUsesNoIndex(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		before := h.put("k", "v", 0)
		refusals := []error{
			second(h.CompareAndSwap("k", 0, nil, nil)),
			second(h.CompareAndDelete("k", 1)),
			second(h.Put("", nil, nil)),
			h.Update(func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.ID())) }),
			h.EndSession(lockd.SessionID{1}),
		}
		for i, err := range refusals {
			if err == nil {
				h.t.Errorf("refusal %d: no error", i)
			}
		}
		if got := h.put("k", "w", 0).ModifyIndex; got != before.ModifyIndex+1 {
			h.t.Fatalf("the next index: got %d, want %d", got, before.ModifyIndex+1)
		}
	})
}

// Ensure that no plain write lets the same grant be had twice: holder, LockIndex and Fence stay
// through a set and a cas (X1), and only a delete starts LockIndex again, with a larger Fence.
func TestPut_K12_KeepsTheGrant(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.must(h.lock(s, "k").Unlock())
		grant := h.lock(s, "k").Sequencer()
		if grant.LockIndex != 2 {
			h.t.Fatalf("LockIndex: got %d", grant.LockIndex)
		}
		h.put("k", "x", 1)
		_, err := h.CompareAndSwap("k", h.entry("k").ModifyIndex, []byte("y"), nil)
		h.must(err)
		if got := h.entry("k").Sequencer(); got != grant {
			h.t.Fatalf("after a set and a cas: got %v, want %v", got, grant)
		}
		h.must(second(h.Delete("k")))
		again := h.lock(s, "k").Sequencer()
		if again.LockIndex != 1 || again.Fence <= grant.Fence {
			h.t.Fatalf("after a delete: got %v, was %v", again, grant)
		}
	})
}

// Ensure that a key can be locked however it was made, and with whatever flags (X3).
func TestPut_X3_FlagsMarkNothing(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0x2ddccbc058a50c18) // the flag by which another client marks semaphores
		h.lock(h.session(nil), "k")
	})
}

// Ensure that values are the caller's: changing the slice after the call changes nothing stored.
func TestPut_ClonesItsValue(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		value := []byte("as it was")
		opts := &lockd.LockOptions{Value: value}
		h.must(second(h.Put("put", value, nil)))
		h.must(second(h.CompareAndSwap("cas", 0, value, nil)))
		h.must(second(s.TryLock("lock", opts)))
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Put("tx put", value, nil)))
			h.must(second(tx.Lock("tx lock", s.ID(), opts)))
			return tx.Catalog().Attach(s.ID(), "attached", value)
		}))
		copy(value, "different")
		for _, key := range []string{"put", "cas", "lock", "tx put", "tx lock"} {
			if got := h.entry(key).Value; !bytes.Equal(got, []byte("as it was")) {
				h.t.Errorf("%s: got %q", key, got)
			}
		}
		if a, _ := h.Snapshot().Catalog().Attachment("attached"); string(a.Value) != "as it was" {
			h.t.Errorf("attachment: got %q", a.Value)
		}
	})
}

// Ensure that a key of the greatest size is accepted, and that keys are bytes.
func TestPut_Bounds(t *testing.T) {
	each(t, func(h *harness) {
		long := string(bytes.Repeat([]byte{0xff}, lockd.MaxKeySize))
		for _, key := range []string{"\x00", "ä", " ", "/", "//", "\xff\xfe", long} {
			h.put(key, "v:"+key[:1], 0)
			if got := h.entry(key).Key; got != key {
				h.t.Errorf("key: got %q, want %q", got, key)
			}
		}
		got := listed(h, "", "")
		if len(got) != 7 || !slices.IsSorted(got) {
			h.t.Errorf("keys in order of their bytes: got %q", got)
		}
	})
}

func listed(h *harness, prefix, separator string) []string {
	return slices.Collect(h.Snapshot().Keys(prefix, separator))
}

func TestSnapshot_H10_FoldedListing(t *testing.T) {
	each(t, func(h *harness) {
		for _, key := range []string{
			"jobs/9", "jobs/8/pid", "jobs/8/log", "jobs/7", "jobs2", "a--b--c", "a-b", "b//c",
		} {
			h.put(key, "v", 0)
		}
		for _, tt := range []struct {
			prefix, separator string
			want              []string
		}{
			{"jobs/", "/", []string{"jobs/7", "jobs/8/", "jobs/9"}},
			{"jobs", "/", []string{"jobs/", "jobs2"}},
			{"jobs/8", "/", []string{"jobs/8/"}},
			{"jobs/8/", "/", []string{"jobs/8/log", "jobs/8/pid"}},
			{"jobs/8/log", "/", []string{"jobs/8/log"}},
			{"jobs/", "", []string{"jobs/7", "jobs/8/log", "jobs/8/pid", "jobs/9"}},
			{"a", "--", []string{"a--", "a-b"}},
			{"a--", "--", []string{"a--b--"}},
			{"b", "/", []string{"b/"}},
			{"b/", "/", []string{"b//"}},
			{"", "b", []string{"a--b", "a-b", "b", "job"}},
			{"none", "/", nil},
		} {
			if got := listed(h, tt.prefix, tt.separator); !slices.Equal(got, tt.want) {
				h.t.Errorf("prefix %q, separator %q: got %q, want %q", tt.prefix, tt.separator,
					got, tt.want)
			}
		}
	})
}

// Ensure that the example of the rule holds for its own keys, and that a loop may be left.
func TestSnapshot_H10_AsTheRuleSays(t *testing.T) {
	each(t, func(h *harness) {
		for _, key := range []string{"jobs/7", "jobs/8/log", "jobs/8/pid", "jobs/9"} {
			h.put(key, "v", 0)
		}
		if got := listed(h, "jobs", "/"); !slices.Equal(got, []string{"jobs/"}) {
			h.t.Errorf("got %q", got)
		}
		for key := range h.Snapshot().Keys("jobs/", "/") {
			if key != "jobs/7" {
				h.t.Errorf("first: got %q", key)
			}
			break
		}
		keys := 0
		for key, e := range h.Snapshot().Prefix("jobs/8") {
			if e.Key != key || fmt.Sprint(e.Value) != fmt.Sprint([]byte("v")) {
				h.t.Errorf("prefix: got %q %+v", key, e)
			}
			if keys++; keys == 1 {
				break
			}
		}
		if keys != 1 {
			h.t.Errorf("a loop that was left: %d keys", keys)
		}
	})
}
