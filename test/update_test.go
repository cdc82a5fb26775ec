package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that every method of a Txn and of its catalog panics after its Update, and that so does
// every iterator which was got from them: one whose loop begins then, and one whose loop goes on
// then.
func TestTxn_UsedAfterItsEnd(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		h.lock(h.session(nil), "held")
		var tx *lockd.Txn
		var nodes *catalog.Txn
		loops := make(map[string]func())
		goesOn := func() bool {
			h.t.Error("a loop goes on after the transaction")
			return false
		}
		h.must(h.Update(func(inside *lockd.Txn) error {
			tx, nodes = inside, inside.Catalog()
			h.must(tx.Catalog().AttachUnowned("a", nil))
			h.must(tx.Catalog().AttachUnowned("b", nil))
			h.must(second(tx.Put("l", nil, nil)))
			keys, holders := tx.Prefix(""), tx.Holders("held")
			attachments := tx.Catalog().Attachments("")
			loops["of Prefix"] = func() { keys(func(string, lockd.Entry) bool { return goesOn() }) }
			loops["of Holders"] = func() { holders(func(lockd.Holder) bool { return goesOn() }) }
			loops["of Attachments"] = func() {
				attachments(func(catalog.Attachment) bool { return goesOn() })
			}

			nextKey, stopKeys := iter.Pull2(keys)
			nextHolder, stopHolders := iter.Pull(holders)
			nextAttachment, stopAttachments := iter.Pull(attachments)
			nextKey()
			nextHolder()
			nextAttachment()
			loops["of Prefix, begun before"] = func() { defer stopKeys(); nextKey() }
			loops["of Holders, begun before"] = func() { defer stopHolders(); nextHolder() }
			loops["of Attachments, begun before"] = func() {
				defer stopAttachments()
				nextAttachment()
			}
			return nil
		}))
		found := 0
		for _, methods := range []reflect.Value{reflect.ValueOf(tx), reflect.ValueOf(nodes)} {
			for i := range methods.NumMethod() {
				found++
				method := methods.Method(i)
				args := make([]reflect.Value, method.Type().NumIn())
				for j := range args {
					args[j] = reflect.Zero(method.Type().In(j))
				}
				panics(h, methods.Type().Method(i).Name, func() { method.Call(args) })
			}
		}
		if found < 20 {
			h.t.Errorf("only %d methods: is this test looking at them?", found)
		}
		for what, loop := range loops {
			panics(h, "the loop "+what, loop)
		}
		h.put("k", "w", 0)
	})
}

// Ensure that a Txn panics as soon as its function has returned, while Update waits for the commit:
// what it wrote then would be part of another transaction, or of none.
func TestTxn_UsedDuringItsCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		var tx *lockd.Txn
		update := c.held(func() error {
			return h.Update(func(inside *lockd.Txn) error {
				tx = inside
				return second(inside.Put("a", nil, nil))
			})
		})
		panics(h, "Put", func() { _, _ = tx.Put("b", nil, nil) })
		c.release(nil)
		h.must(update.wait())
		if e, found := h.Get("b"); found {
			t.Errorf("it has written: %+v", e)
		}
	})
}

// Ensure that an Update of nothing panics in words, and that the database goes on.
func TestUpdate_NilFunction(t *testing.T) {
	each(t, func(h *harness) {
		panics(h, "Update", func() { _ = h.Update(nil) })
		h.put("k", "v", 0)
	})
}

// nothing is a transaction that does nothing.
func nothing(*lockd.Txn) error { return nil }

// Ensure that a nil writer, or reader, of a backup panics in words, before anything is done.
func TestBackup_Nil(t *testing.T) {
	onFile(t, func(h *harness) {
		fresh := h.path + ".new"
		panics(h, "Backup", func() { _ = h.Backup(nil) })
		panics(h, "WriteBackup", func() { _ = lockd.WriteBackup(nil, 0, nothing) })
		panics(h, "WriteBackup", func() { _ = lockd.WriteBackup(io.Discard, 0, nil) })
		panics(h, "DB.Restore", func() { _ = h.Restore(nil) })
		panics(h, "Restore", func() { _ = lockd.Restore(fresh, nil, 0, nil) })
		h.must(h.Close())
		panics(h, "BackupFile", func() { _ = lockd.BackupFile(h.path, nil, nil) })
		panics(h, "Recover", func() { _, _ = lockd.Recover(h.path, nil, nil) })
		h.open()
		if _, err := os.Stat(fresh); !errors.Is(err, fs.ErrNotExist) {
			h.t.Errorf("a file was made: %v", err)
		}
		h.put("k", "v", 0)
	})
}

// panics fails the test unless fn panics in words of this package.
func panics(h *harness, what string, fn func()) {
	h.t.Helper()
	defer func() {
		h.t.Helper()
		switch got := recover(); {
		case got == nil:
			h.t.Errorf("%s: did not panic", what)
		case !strings.HasPrefix(fmt.Sprint(got), "lockd: "):
			h.t.Errorf("%s: panicked with %v", what, got)
		}
	}()
	fn()
}

// Ensure that a nil context, or function, is a caller's bug, told before anything is done.
func TestNilContext(t *testing.T) {
	each(t, func(h *harness) {
		var none context.Context
		s := h.session(nil)
		l := h.lock(s, "k")
		k, err := h.NewKeeper(nil)
		h.must(err)
		fn := func(context.Context, lockd.Sequencer) error { return nil }
		before := h.Snapshot().Index()
		panics(h, "Lock", func() { _, _ = s.Lock(none, "free", nil) })
		panics(h, "LockAll", func() { _, _ = s.LockAll(none, []string{"free"}, nil) })
		panics(h, "WithLock", func() { _ = s.WithLock(none, "free", nil, fn) })
		panics(h, "WithLock, function", func() { _ = s.WithLock(h.t.Context(), "free", nil, nil) })
		panics(h, "Campaign", func() { _, _ = s.Campaign(none, "free", nil) })
		panics(h, "Observe", func() { h.Observe(none, "k") })
		panics(h, "Keeper.Session", func() { _, _ = k.Session(none) })
		panics(h, "Lead", func() { _ = k.Lead(none, "free", nil, fn) })
		panics(h, "Lead, function", func() { _ = k.Lead(h.t.Context(), "free", nil, nil) })
		panics(h, "KeepAlive", func() { _ = s.KeepAlive(none) })
		panics(h, "Context", func() { l.Context(none) })
		panics(h, "Watch", func() { h.Watch(none, lockd.KeyScope("k"), 1) })
		panics(h, "Follow", func() { h.Follow(none, "") })
		panics(h, "Wait", func() { _, _, _ = h.Wait(none, lockd.KeyScope("k"), 1, 0) })
		panics(h, "If.Update", func() { _ = h.If(l.Sequencer()).Update(nil) })
		if got := h.Snapshot().Index(); got != before || h.Topics() != 0 {
			h.t.Errorf("index: got %d, want %d; %d topics", got, before, h.Topics())
		}
	})
}

// Ensure that a function which panics, or ends its goroutine, leaves nothing, and a database that
// works.
func TestUpdate_LeavesNothing(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(nil), h.session(nil)
		l := h.lock(s, "held")
		want := h.put("k", "v", 0)
		before := h.Snapshot().Index()
		write := func(tx *lockd.Txn) {
			h.must(second(tx.Put("k", []byte("w"), nil)))
			h.must(second(tx.Lock("other", next.ID(), nil)))
			h.must(tx.EndSession(s.ID()))
		}
		for name, leave := range map[string]func(){
			"panic":  func() { panic("lockd_test: on purpose") },
			"goexit": runtime.Goexit,
		} {
			left := make(chan any)
			go func() {
				defer func() { left <- recover() }()
				_ = h.Update(func(tx *lockd.Txn) error {
					write(tx)
					leave()
					return nil
				})
				h.t.Errorf("%s: Update returned", name)
			}()
			if got := <-left; (got != nil) != (name == "panic") {
				h.t.Errorf("%s: recovered %v", name, got)
			}
			same(h, name, h.entry("k"), want)
			if h.Snapshot().Index() != before || s.Err() != nil || l.Err() != nil {
				h.t.Errorf("%s: index %d, want %d; session %v, lock %v", name,
					h.Snapshot().Index(), before, s.Err(), l.Err())
			}
		}
		h.must(h.lock(next, "other").Unlock())
		h.must(l.Unlock())
	})
}

// faults is an error that cannot be compared, as lists of faults are.
type faults []string

func (f faults) Error() string { return strings.Join(f, ", ") }

// Ensure that the error of the function comes back as it is, whatever its type.
func TestUpdate_ReturnsTheErrorAsItIs(t *testing.T) {
	each(t, func(h *harness) {
		for _, want := range []error{
			errors.New("mine"), faults{"one", "two"}, &lockd.Error{Op: "put", Err: faults{"x"}},
			lockd.ErrClosed,
		} {
			got := h.Update(func(tx *lockd.Txn) error {
				h.must(second(tx.Put("k", nil, nil)))
				return want
			})
			if !reflect.DeepEqual(got, want) {
				h.t.Errorf("got %#v, want %#v", got, want)
			}
		}
		if e, ok := h.Get("k"); ok {
			h.t.Errorf("something remains: %+v", e)
		}
	})
}

// Ensure that DB.Get is legal inside the function, and shows what is published.
func TestUpdate_GetShowsWhatIsPublished(t *testing.T) {
	each(t, func(h *harness) {
		want := h.put("k", "v", 0)
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Put("k", []byte("w"), nil)))
			h.must(second(tx.Put("new", nil, nil)))
			same(h, "inside", h.entry("k"), want)
			if _, ok := h.Get("new"); ok {
				h.t.Errorf("a key that is not published is found")
			}
			return nil
		}))
		if e := h.entry("k"); string(e.Value) != "w" {
			h.t.Errorf("outside: got %+v", e)
		}
	})
}

// Ensure that a transaction may be large: 10,000 operations, and 1,000 locks, at one index.
func TestUpdate_Large(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		const writes, locks = 9_000, 1_000
		var index uint64
		h.must(h.Update(func(tx *lockd.Txn) error {
			index = tx.Index()
			for i := range writes {
				h.must(second(tx.Put(fmt.Sprintf("put/%d", i), []byte("v"), nil)))
			}
			for i := range locks {
				h.must(second(tx.Lock(fmt.Sprintf("lock/%d", i), s.ID(), nil)))
			}
			return nil
		}))
		n := 0
		for key, e := range h.Snapshot().Prefix("") {
			n++
			held := strings.HasPrefix(key, "lock/")
			if e.CreateIndex != index || (e.Fence == index) != held {
				h.t.Fatalf("%s: got %+v", key, e)
			}
		}
		if n != writes+locks {
			h.t.Fatalf("keys: got %d", n)
		}
		h.must(s.Close())
		for key, e := range h.Snapshot().Prefix("lock/") {
			if !e.Session.IsZero() || e.ModifyIndex != index+1 {
				h.t.Fatalf("%s after the end: got %+v", key, e)
			}
		}
	})
}

// doesPanic reports whether fn panics.
func doesPanic(fn func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	fn()
	return false
}
