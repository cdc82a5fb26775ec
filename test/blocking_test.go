package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that a watch from an index that the database has not reached is refused.
func TestWatch_B5X15_FutureIndex(t *testing.T) {
	each(t, func(h *harness) {
		newest := h.Snapshot().Index()
		for _, ahead := range []uint64{1, 1000, 1 << 63} {
			h.watches(h.t.Context(), lockd.PrefixScope(""), newest+ahead).ends(lockd.ErrInvalid)
		}
		w := h.watches(h.t.Context(), lockd.PrefixScope(""), newest)
		h.put("k", "v", 0)
		w.want("put k=v")
		w.stop()
	})
}

// Ensure that a watch ends with its context's error, also if the context had ended before and there
// is a change to yield, and leaves no topic behind.
func TestWatch_EndsWithItsContext(t *testing.T) {
	each(t, func(h *harness) {
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		watching := start(func() error {
			for e, err := range h.Watch(ctx, lockd.KeyScope("k"), h.Snapshot().Index()) {
				if err != nil {
					return err
				}
				h.t.Errorf("got %q", told(e))
			}
			return nil
		})
		if err := watching.wait(); !errors.Is(err, context.DeadlineExceeded) {
			h.t.Errorf("got %v", err)
		}
		index := h.Snapshot().Index()
		h.put("k", "v", 0)
		h.watches(ctx, lockd.KeyScope("k"), index).ends(context.DeadlineExceeded)
		if n := h.Topics(); n != 0 {
			h.t.Errorf("%d topics are left", n)
		}
	})
}

// Ensure that a watch has the last events before the database's end, and then ends with ErrClosed.
func TestWatch_EndsWithTheDatabase(t *testing.T) {
	each(t, func(h *harness) {
		h.session(&lockd.SessionOptions{Name: "last"})
		var got []string
		watching := start(func() error {
			newest := h.Snapshot().Index()
			for e, err := range h.Watch(h.t.Context(), lockd.SessionsScope(), newest) {
				if err != nil {
					return err
				}
				got = append(got, told(e))
			}
			return nil
		})
		h.settle()
		h.must(h.Close())
		if err := watching.wait(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("got %v", err)
		}
		if !slices.Equal(got, []string{"session ended last"}) {
			h.t.Errorf("events: got %q", got)
		}
		h.watches(h.t.Context(), lockd.SessionsScope(), h.Snapshot().Index()).ends(lockd.ErrClosed)
	})
}

// Ensure that a loop that is left leaves nothing behind, at whichever event that is.
func TestWatch_LeavesNothingBehind(t *testing.T) {
	each(t, func(h *harness) {
		index := h.Snapshot().Index()
		h.put("k", "1", 0)
		h.put("k", "2", 0)
		for range h.Watch(h.t.Context(), lockd.KeyScope("k"), index) {
			break
		}
		n := 0
		for range h.Watch(h.t.Context(), lockd.KeyScope("k"), index) {
			if n++; n == 2 {
				break
			}
		}
		if topics := h.Topics(); topics != 0 {
			h.t.Errorf("%d topics are left", topics)
		}
	})
}

// answer is what a blocking read returns: the entry, if there is one, and the index to wait from.
type answer struct {
	entry lockd.Entry
	index uint64
}

// blockingGet is Consul's blocking query of a key: it waits until the key's index is above the
// given one, or the context ends, and reads then.
func blockingGet(ctx context.Context, db *lockd.DB, key string, index uint64) answer {
	s, at, err := db.Wait(ctx, lockd.KeyScope(key), index, 0)
	if err != nil {
		s = db.Snapshot()
		at = s.IndexOf(lockd.KeyScope(key))
	}
	entry, _ := s.Get(key)
	return answer{entry, at}
}

// blockingList is blockingGet for the keys with a prefix, folded at a slash.
func blockingList(
	ctx context.Context, db *lockd.DB, prefix string, index uint64,
) (keys []string, at uint64) {
	s, at, err := db.Wait(ctx, lockd.PrefixScope(prefix), index, 0)
	if err != nil {
		return nil, 0
	}
	return slices.Collect(s.Keys(prefix, "/")), at
}

// reader is a blocking read on a goroutine of its own.
type reader struct {
	*call
	got answer
}

func (h *harness) reads(key string, index uint64) *reader {
	r := &reader{}
	r.call = start(func() error {
		r.got = blockingGet(h.t.Context(), h.DB, key, index)
		return nil
	})
	h.settle()
	return r
}

// Ensure that a read from index 0 does not wait, whether the key exists or not, and returns an
// index from which the next read waits.
func TestBlocking_B2(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		for _, key := range []string{"k", "absent"} {
			r := h.reads(key, 0)
			if !r.returned() || r.got.index == 0 {
				h.t.Fatalf("%s: returned %v, %+v", key, r.returned(), r.got)
			}
			if h.reads(key, r.got.index).returned() {
				h.t.Errorf("%s: the next read did not wait", key)
			}
		}
	})
}

// Ensure that a wait is over when the index is above the given one, and at no other time before its
// context ends; and that the reader that wakes sees the change.
func TestBlocking_B4(t *testing.T) {
	each(t, func(h *harness) {
		e := h.put("k", "1", 0)
		r := h.reads("k", e.ModifyIndex)
		h.advance(24 * time.Hour)
		h.writes("elsewhere", 20)
		h.settle()
		if r.returned() {
			h.t.Fatalf("returned without a change: %+v", r.got)
		}
		e = h.put("k", "2", 0)
		h.must(r.wait())
		same(h, "read", r.got.entry, e)
		if r.got.index != e.ModifyIndex {
			h.t.Errorf("index: got %d, want %d", r.got.index, e.ModifyIndex)
		}
		ctx, cancel := context.WithCancel(h.t.Context())
		cancel()
		if got := blockingGet(ctx, h.DB, "k", e.ModifyIndex); got.index != e.ModifyIndex {
			h.t.Errorf("with a context that has ended: %+v", got)
		}
	})
}

// Ensure that an index below the scope's, or one that the store has not reached, does not wait.
func TestBlocking_B5X15(t *testing.T) {
	each(t, func(h *harness) {
		e := h.put("k", "1", 0)
		newest := h.put("elsewhere", "1", 0).ModifyIndex
		for _, index := range []uint64{1, e.ModifyIndex - 1, newest + 1, newest + 1000, 1 << 63} {
			if r := h.reads("k", index); !r.returned() {
				h.t.Errorf("from %d, at %d of %d: waits", index, e.ModifyIndex, newest)
			}
		}
		for _, index := range []uint64{e.ModifyIndex, newest} {
			if r := h.reads("k", index); r.returned() {
				h.t.Errorf("from %d, at %d of %d: does not wait", index, e.ModifyIndex, newest)
			}
		}
	})
}

// Ensure that a key which has not changed makes no other scope wait that has its name: the prefix,
// and a session.
func TestWait_B5_KeyWithTheNameOfTheScope(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		id := s.ID()
		h.put("k", "1", 0)
		index := h.put(string(id[:]), "1", 0).ModifyIndex
		h.put("k/1", "1", 0)
		h.must(s.Close())
		for _, scope := range []lockd.Scope{lockd.PrefixScope("k"), lockd.SessionScope(id)} {
			if !isClosed(h.changed(h.t.Context(), scope, index)) {
				h.t.Errorf("%+v: waits, and has changed", scope)
			}
		}
	})
}

// Ensure that a reader of one key wakes for each change of that key, a delete included, and for
// nothing else.
func TestBlocking_B6B7(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		var l *lockd.Lock
		h.put("k", "v", 0)
		for _, step := range []struct {
			name  string
			do    func() error
			wakes bool
		}{
			{"another key", func() error { h.put("j", "v", 0); return nil }, false},
			{"a longer key", func() error { h.put("kk", "v", 0); return nil }, false},
			{"a key below", func() error { h.put("k/a", "v", 0); return nil }, false},
			{"the same again", func() error { h.put("k", "v", 0); return nil }, false},
			{"a session", func() error { return second(h.NewSession(nil)) }, false},
			{"a set", func() error { h.put("k", "w", 0); return nil }, true},
			{"flags", func() error { h.put("k", "w", 1); return nil }, true},
			{"a lock", func() (err error) { l, err = s.TryLock("k", nil); return err }, true},
			{"a lock again", func() error {
				return h.txn(func(tx *lockd.Txn) error { return second(tx.Lock("k", s.ID(), nil)) })
			}, false},
			{"a refused lock", func() error {
				if _, err := s.TryLock("k", nil); err == nil {
					return errors.New("locked twice")
				}
				return nil
			}, false},
			{"an unlock", func() error { return l.Unlock() }, true},
			{"deletes around", func() error {
				return errors.Join(second(h.DeletePrefix("k/")), second(h.Delete("kk")))
			}, false},
			{"a delete", func() error { return second(h.Delete("k")) }, true},
			{"a delete again", func() error { return second(h.Delete("k")) }, false},
			{"another creation", func() error { h.put("k", "v", 0); return nil }, true},
			{"a delete of the prefix", func() error { return second(h.DeletePrefix("k")) }, true},
		} {
			before := h.Snapshot()
			r := h.reads("k", before.IndexOf(lockd.KeyScope("k")))
			h.must(step.do())
			h.settle()
			if r.returned() != step.wakes {
				h.t.Errorf("%s: woke %v", step.name, !step.wakes)
			}
			if step.wakes && r.got.index != h.Snapshot().Index() {
				h.t.Errorf("%s: index %d, want %d", step.name, r.got.index, h.Snapshot().Index())
			}
		}
	})
}

// Ensure that a reader of an absent key sleeps, from one read to the next, until it is created.
func TestBlocking_B8B9X13(t *testing.T) {
	each(t, func(h *harness) {
		h.put("was", "here", 0)
		h.must(second(h.Delete("was")))
		for _, key := range []string{"never", "was"} {
			index := h.reads(key, 0).got.index
			for range 3 {
				r := h.reads(key, index)
				h.writes("elsewhere", 5)
				h.must(second(h.Delete("elsewhere")))
				h.must(second(h.DeletePrefix(key + "/")))
				h.must(h.session(nil).Close())
				h.settle()
				if r.returned() {
					h.t.Fatalf("%s: woke for others, at %d", key, r.got.index)
				}
				index = h.Snapshot().IndexOf(lockd.KeyScope(key))
			}
			r := h.reads(key, index)
			e := h.put(key, "created", 0)
			h.must(r.wait())
			same(h, key, r.got.entry, e)
		}
	})
}

// Ensure that a reader of a prefix wakes only for keys under it, also if there are none, and for a
// change of a key that the folded listing does not show (B11).
func TestBlocking_B10B11X14(t *testing.T) {
	each(t, func(h *harness) {
		for _, step := range []struct {
			name  string
			do    func() error
			wakes bool
			keys  []string
		}{
			{"neighbours", func() error {
				h.put("dir", "v", 0)
				h.put("dirk/a", "v", 0)
				h.put("a", "v", 0)
				return second(h.Delete("a"))
			}, false, nil},
			{"a first key", func() error { h.put("dir/b/c", "1", 0); return nil }, true,
				[]string{"dir/b/"}},
			{"neighbours again", func() error { h.writes("dirk/a", 3); return nil }, false, nil},
			{"a value below", func() error { h.put("dir/b/c", "2", 0); return nil }, true,
				[]string{"dir/b/"}},
			{"another below", func() error { h.put("dir/b/d", "1", 0); return nil }, true,
				[]string{"dir/b/"}},
			{"one deleted below", func() error { return second(h.Delete("dir/b/d")) }, true,
				[]string{"dir/b/"}},
			{"a shorter prefix deleted", func() error { return second(h.DeletePrefix("di")) }, true,
				nil},
			{"a neighbour's prefix", func() error {
				h.put("dirk/b", "v", 0)
				return second(h.DeletePrefix("dirk/"))
			}, false, nil},
		} {
			index := h.Snapshot().IndexOf(lockd.PrefixScope("dir/"))
			var keys []string
			var at uint64
			r := start(func() error {
				keys, at = blockingList(h.t.Context(), h.DB, "dir/", index)
				return nil
			})
			h.settle()
			h.must(step.do())
			h.settle()
			if r.returned() != step.wakes {
				h.t.Errorf("%s: woke %v", step.name, !step.wakes)
				continue
			}
			if step.wakes && (at != h.Snapshot().Index() || !slices.Equal(keys, step.keys)) {
				h.t.Errorf("%s: got %q at %d, want %q", step.name, keys, at, step.keys)
			}
		}
	})
}

// Ensure that all calls that wait for a scope are woken, that they share one topic, and that calls
// that wait for another scope are not woken.
func TestWait_B12_Shared(t *testing.T) {
	each(t, func(h *harness) {
		index := h.Snapshot().Index()
		var waits []<-chan struct{}
		for range 100 {
			waits = append(waits, h.changed(h.t.Context(), lockd.KeyScope("k"), index))
		}
		elsewhere := h.changed(h.t.Context(), lockd.KeyScope("kk"), index)
		if n := h.Topics(); n != 2 {
			h.t.Errorf("topics: got %d", n)
		}
		h.put("k", "v", 0)
		h.settle()
		for i, wait := range waits {
			if !closed(wait) {
				h.t.Errorf("call %d was not woken", i)
			}
		}
		if closed(elsewhere) {
			h.t.Error("a call that waits elsewhere was woken")
		}
		if n := h.Topics(); n != 1 {
			h.t.Errorf("topics afterwards: got %d", n)
		}
	})
}

// Ensure that no change is missed between the index that a caller has and its Wait, whenever the
// change comes: if one were missed, the caller would wait on.
func TestWait_B12_NoGapToTheIndex(t *testing.T) {
	const rounds = 20_000
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	scope := lockd.KeyScope("k")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := db.Put("k", nil, nil); err != nil {
		t.Fatal(err)
	}

	var from atomic.Uint64 // the index from which the caller waits
	waiting := start(func() (err error) {
		index := db.Snapshot().IndexOf(scope)
		for i := range rounds {
			from.Store(index)
			for range i % 6000 { // a few microseconds, so that the change comes at any step of Wait
			}
			if _, index, err = db.Wait(ctx, scope, index, 0); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range rounds {
		newest := db.Snapshot().IndexOf(scope)
		for from.Load() != newest && ctx.Err() == nil {
			runtime.Gosched()
		}
		if _, err := db.Put("k", fmt.Append(nil, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := waiting.wait(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a topic is given back when the last call that waits for it returns, by its context or
// at once, and not before.
func TestWait_GivesTopicsBack(t *testing.T) {
	each(t, func(h *harness) {
		index := h.Snapshot().Index()
		a, cancelA := context.WithCancel(h.t.Context())
		b, cancelB := context.WithCancel(h.t.Context())
		for i := range 50 {
			scope := lockd.KeyScope(fmt.Sprint(i % 5))
			h.changed(a, scope, index)
			h.changed(b, scope, index)
			h.changed(a, lockd.PrefixScope(fmt.Sprint(i%5)), index)
		}
		if !closed(h.changed(b, lockd.KeyScope("0"), 0)) ||
			!closed(h.changed(b, lockd.KeyScope("0"), 1<<63)) {
			h.t.Error("a call that has nothing to wait for waits")
		}
		c := h.changed(b, lockd.KeyScope("0"), index)
		if n := h.Topics(); n != 10 {
			h.t.Errorf("topics: got %d", n)
		}
		cancelA()
		h.settle()
		if n := h.Topics(); n != 5 {
			h.t.Errorf("after the first context: got %d", n)
		}
		h.put("0", "v", 0)
		h.settle()
		if !closed(c) {
			h.t.Errorf("the other's wait went with it")
		}
		cancelB()
		h.settle()
		if n := h.Topics(); n != 0 {
			h.t.Errorf("after both: got %d", n)
		}
		h.changed(a, lockd.KeyScope("1"), index) // for a context that has ended
		if n := h.Topics(); n != 0 {
			h.t.Errorf("for an ended context: got %d", n)
		}
	})
}

// Ensure that one wait after another with one context leaves no topic behind, and misses nothing.
func TestWait_ManyWithOneContext(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.Sync = lockd.SyncNever
		h.reopen()
		index := uint64(0)
		for i := range 300 {
			changed := h.changed(h.t.Context(), lockd.KeyScope("k"), index)
			index = h.put("k", fmt.Sprint(i), 0).ModifyIndex
			<-changed
		}
		if n := h.Topics(); n != 0 {
			h.t.Errorf("topics: got %d", n)
		}
	})
}

// Ensure that a limit below 0 has passed: the call returns the state at once, and leaves nothing.
func TestWait_LimitThatHasPassed(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		for _, scope := range []lockd.Scope{
			lockd.KeyScope("k"), lockd.PrefixScope("k"), lockd.KeyScope("none"), {},
		} {
			before := h.Snapshot()
			state, at, err := h.Wait(h.t.Context(), scope, before.Index(), -1)
			if err != nil || state.Index() != before.Index() || at != before.IndexOf(scope) {
				h.t.Errorf("%v: got %v, %d, %v", scope, state, at, err)
			}
		}
		if h.Topics() != 0 || h.Deadlines() != 0 {
			h.t.Errorf("left: %d topics, %d deadlines", h.Topics(), h.Deadlines())
		}
	})
}

// Ensure that the end of the database ends every wait, with an error that says so.
func TestWait_EndsWithTheDatabase(t *testing.T) {
	each(t, func(h *harness) {
		scopes := []lockd.Scope{
			lockd.KeyScope("k"), lockd.PrefixScope("k"), lockd.SessionsScope(),
			lockd.CatalogScope(), lockd.SessionScope(lockd.SessionID{1}),
		}
		wait := func(scope lockd.Scope, limit time.Duration) *call {
			return start(func() error {
				_, _, err := h.Wait(h.t.Context(), scope, h.Snapshot().Index(), limit)
				return err
			})
		}
		var waits []*call
		for _, scope := range scopes {
			waits = append(waits, wait(scope, 0), wait(scope, time.Hour))
		}
		h.settle()
		h.must(h.Close())
		for _, scope := range scopes {
			waits = append(waits, wait(scope, 0), wait(scope, time.Hour))
		}
		h.settle()
		for i, wait := range waits {
			if !wait.returned() || !errors.Is(wait.err, lockd.ErrClosed) {
				h.t.Errorf("wait %d: returned %t, %v", i, wait.returned(), wait.err)
			}
		}
		if n := h.Deadlines(); n != 0 {
			h.t.Errorf("%d deadlines are left", n)
		}
		if _, at, err := h.Wait(h.t.Context(), scopes[0], 0, 0); at == 0 || err != nil {
			h.t.Errorf("from 0, after Close: at %d, %v", at, err)
		}
	})
}

// Ensure that a thing that one transaction makes and removes moves no index: no call is woken for
// it, and a read with the index from before waits.
func TestBlocking_B4I12_WhatCameAndWent(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Behavior: lockd.DeleteKeys})
		h.put("dir/other", "v", 0)
		scopes := map[string]lockd.Scope{
			"the key": lockd.KeyScope("dir/k"), "its prefix": lockd.PrefixScope("dir/"),
			"every key": lockd.PrefixScope(""), "the catalog": lockd.CatalogScope(),
			"the sessions": lockd.SessionsScope(),
		}
		put := func(tx *lockd.Txn) error { return second(tx.Put("dir/k", nil, nil)) }
		for name, fn := range map[string]func(tx *lockd.Txn) error{
			"Delete": func(tx *lockd.Txn) error {
				return errors.Join(put(tx), second(tx.Delete("dir/k")))
			},
			"Delete twice": func(tx *lockd.Txn) error {
				return errors.Join(put(tx), second(tx.Delete("dir/k")), put(tx),
					second(tx.Delete("dir/k")))
			},
			"DeletePrefix": func(tx *lockd.Txn) error {
				return errors.Join(put(tx), second(tx.DeletePrefix("dir/k")))
			},
			"PutNode": func(tx *lockd.Txn) error {
				return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "n"}),
					second(tx.Catalog().DeleteNode("n")))
			},
			"Attach": func(tx *lockd.Txn) error {
				return errors.Join(tx.Catalog().Attach(s.ID(), "a", nil),
					second(tx.Catalog().Detach("a")))
			},
		} {
			before := h.indexes(scopes)
			changed := make(map[string]<-chan struct{})
			for of, scope := range scopes {
				changed[of] = h.changed(h.t.Context(), scope, before[of])
			}
			h.must(h.Update(fn))
			h.settle()
			for of, index := range h.indexes(scopes) {
				if index != before[of] || isClosed(changed[of]) {
					h.t.Errorf("%s: the index of %s was %d, is %d; told: %t", name, of,
						before[of], index, isClosed(changed[of]))
				}
			}
		}
	})
}

// Ensure that a key that existed before leaves its tombstone, however often a transaction makes and
// removes it.
func TestIndexOf_I3K26_RemovedAndMadeAnew(t *testing.T) {
	each(t, func(h *harness) {
		for name, remove := range map[string]func(tx *lockd.Txn) error{
			"Delete":       func(tx *lockd.Txn) error { return second(tx.Delete("dir/k")) },
			"DeletePrefix": func(tx *lockd.Txn) error { return second(tx.DeletePrefix("dir/")) },
		} {
			index := h.put("dir/k", "v", 0).ModifyIndex
			changed := h.changed(h.t.Context(), lockd.KeyScope("dir/k"), index)
			h.must(h.Update(func(tx *lockd.Txn) error {
				return errors.Join(remove(tx), second(tx.Put("dir/k", nil, nil)), remove(tx))
			}))
			h.settle()
			now := h.Snapshot()
			key := now.IndexOf(lockd.KeyScope("dir/k"))
			prefix := now.IndexOf(lockd.PrefixScope("dir/"))
			if key != now.Index() || prefix != now.Index() || !isClosed(changed) {
				h.t.Errorf("%s: the indexes are %d and %d, want %d; told: %t", name, key, prefix,
					now.Index(), isClosed(changed))
			}
		}
	})
}

// Ensure that a wait for the scope that covers nothing is over only from index 0, and at Close.
func TestScope_ZeroCoversNothing(t *testing.T) {
	each(t, func(h *harness) {
		none := lockd.Scope{}
		fromZero := h.changed(h.t.Context(), none, 0)
		fromOne := h.changed(h.t.Context(), none, 1)
		h.must(h.session(nil).Close())
		h.put("k", "v", 0)
		h.settle()
		if !isClosed(fromZero) || isClosed(fromOne) || h.Snapshot().IndexOf(none) != 1 {
			h.t.Errorf("from 0 %v, from 1 %v", isClosed(fromZero), isClosed(fromOne))
		}
		h.must(h.Close())
		h.settle()
		if !isClosed(fromOne) {
			h.t.Error("waits after Close")
		}
	})
}
