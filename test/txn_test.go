package lockd_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that each operation of a transaction follows the rule of its name.
func TestTxn_T5_Operations(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.put("k", "v", 7)
		h.put("kk", "v", 0)
		h.must(h.Update(func(tx *lockd.Txn) error {
			index := tx.Index()
			was, ok := tx.Get("k")
			if !ok || string(was.Value) != "v" || was.Flags != 7 {
				h.t.Errorf("get: got %+v", was)
			}
			if _, ok := tx.Get("absent"); ok {
				h.t.Errorf("get of an absent key: found one")
			}
			put, err := tx.Put("k", []byte("w"), nil) // K2
			h.must(err)
			swapped, err := tx.CompareAndSwap("k", put.ModifyIndex, []byte("x"), nil) // K8
			h.must(err)
			if put.ModifyIndex != index || swapped.ModifyIndex != index {
				h.t.Errorf("index: got %d and %d, want %d", put.ModifyIndex,
					swapped.ModifyIndex, index)
			}
			locked, err := tx.Lock("k", s.ID(), nil) // K14
			h.must(err)
			unlocked, err := tx.Unlock("k", s.ID()) // K21
			h.must(err)
			if locked.Session != s.ID() || !unlocked.Session.IsZero() || locked.Fence != index {
				h.t.Errorf("lock and unlock: got %+v and %+v", locked, unlocked)
			}
			if n, err := tx.DeletePrefix("kk"); n != 1 || err != nil { // K31
				h.t.Errorf("delete prefix: got %d, %v", n, err)
			}
			if ok, err := tx.Delete("kk"); ok || err != nil { // K27
				h.t.Errorf("delete of what is gone: got %v, %v", ok, err)
			}
			if ok, err := tx.CompareAndDelete("k", index); !ok || err != nil { // K29
				h.t.Errorf("compare and delete: got %v, %v", ok, err)
			}
			if n, err := tx.DeleteAll(); n != 0 || err != nil {
				h.t.Errorf("delete all of nothing: got %d, %v", n, err)
			}
			return nil
		}))
		if h.Snapshot().Len() != 0 {
			h.t.Errorf("left: %v", listed(h, "", ""))
		}
	})
}

// Ensure that a check of a sequencer holds when it should, and changes nothing.
func TestTxn_T5_CheckSequencer(t *testing.T) {
	each(t, func(h *harness) {
		q := h.lock(h.session(nil), "held").Sequencer()
		stale := q
		stale.Fence--
		before := h.Snapshot().Index()
		for _, tt := range []struct {
			name string
			q    lockd.Sequencer
			want error
		}{
			{"holds", q, nil},
			{"stale", stale, lockd.ErrNotHeld},
			{"zero", lockd.Sequencer{}, lockd.ErrNotHeld},
		} {
			err := h.Update(func(tx *lockd.Txn) error { return tx.CheckSequencer(tt.q) })
			if !errors.Is(err, tt.want) {
				h.t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
		if got := h.Snapshot().Index(); got != before {
			h.t.Errorf("the checks moved the index from %d to %d", before, got)
		}
	})
}

// Ensure that a prefix in a transaction has what was written in it, in order, and that its loop
// may write, ahead and behind.
func TestTxn_T5_Prefix(t *testing.T) {
	each(t, func(h *harness) {
		for i := range 200 { // more than what is read at a time
			h.put(fmt.Sprintf("p/%03d", i), "v", 0)
		}
		h.put("q", "v", 0)
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Put("p/", []byte("first"), nil)))
			h.must(second(tx.Delete("p/199")))
			var seen []string
			for key, e := range tx.Prefix("p/") {
				if seen = append(seen, key); e.Key != key {
					h.t.Errorf("key %q comes with %+v", key, e)
				}
				if key == "p/010" {
					h.must(second(tx.Put("p/150", []byte("ahead"), nil)))
					h.must(second(tx.Delete("p/160")))
					h.must(second(tx.Delete("p/011")))
					h.must(second(tx.Delete("p/001")))
				}
				if key == "p/150" && string(e.Value) != "ahead" {
					h.t.Errorf("p/150, written ahead of the loop: got %q", e.Value)
				}
			}
			if len(seen) != 198 || !slices.IsSorted(seen) || seen[0] != "p/" ||
				slices.Contains(seen, "p/160") || slices.Contains(seen, "p/011") {
				h.t.Errorf("the loop: %d keys, %v", len(seen), seen)
			}
			for range tx.Prefix("p/") {
				break
			}
			return nil
		}))
		if got := len(listed(h, "p/", "")); got != 197 {
			h.t.Errorf("keys after it: got %d", got)
		}
	})
}

// Ensure that each operation sees the effects of those before it, and that all have one index.
func TestTxn_T7_InOrder(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		next := h.session(nil)
		var index uint64
		h.must(h.Update(func(tx *lockd.Txn) error {
			index = tx.Index()
			h.must(second(tx.CompareAndSwap("k", 0, []byte("1"), nil)))
			if e, _ := tx.Get("k"); e.ModifyIndex != index {
				h.t.Errorf("modify index: got %d, want %d", e.ModifyIndex, index)
			}
			e, err := tx.Lock("k", s.ID(), nil)
			h.must(err)
			h.must(tx.CheckSequencer(e.Sequencer()))
			h.must(tx.EndSession(s.ID()))
			h.heldIn(tx, "k", lockd.SessionID{})
			h.must(second(tx.Lock("k", next.ID(), nil)))
			h.must(second(tx.Delete("gone")))
			return nil
		}))
		e := h.entry("k")
		if e.CreateIndex != index || e.ModifyIndex != index || e.LockIndex != 2 ||
			e.Session != next.ID() || h.Snapshot().Index() != index {
			h.t.Fatalf("got %+v at %d, want index %d", e, h.Snapshot().Index(), index)
		}
	})
}

// stuck is a clock whose timers never fire.
type stuck struct {
	*clock.Mock
	never *clock.Mock
}

func (c stuck) AfterFunc(d time.Duration, f func()) *clock.Timer { return c.never.AfterFunc(d, f) }

// Ensure that sessions that are due end before the transaction begins, at indexes of their own,
// whatever the timer does and whatever becomes of the transaction.
func TestTxn_T7_EndsWhatIsDueFirst(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.Close())
		h.opts.Clock = stuck{h.clock, clock.NewMock()}
		h.open()
		var due [2]*lockd.Session
		for i, key := range []string{"k0", "k1"} {
			due[i] = h.session(&lockd.SessionOptions{
				TTL: time.Second, LockDelay: lockd.NoLockDelay,
			})
			h.lock(due[i], key)
		}
		next := h.session(nil)
		before := h.Snapshot().Index()
		h.advance(time.Second)
		if due[0].Err() != nil || due[1].Err() != nil {
			h.t.Fatalf("nothing has woken the database, and yet sessions ended")
		}
		mine := errors.New("mine")
		err := h.Update(func(tx *lockd.Txn) error {
			if tx.Index() != before+3 {
				h.t.Errorf("index: got %d, want %d", tx.Index(), before+3)
			}
			h.must(second(tx.Lock("k0", next.ID(), nil)))
			h.must(second(tx.Lock("k1", next.ID(), nil)))
			return mine
		})
		if !errors.Is(err, mine) {
			h.t.Fatalf("update: got %v", err)
		}
		for i, s := range due {
			if !errors.Is(s.Err(), lockd.ErrExpired) {
				h.t.Errorf("session %d: got %v", i, s.Err())
			}
			e := h.entry(fmt.Sprint("k", i))
			if e.ModifyIndex != before+1+uint64(i) || !e.Session.IsZero() {
				h.t.Errorf("key %d: got %+v", i, e)
			}
		}
	})
}

// Ensure that an error undoes everything, and that a refused operation is no error of the
// transaction: the function may go on.
func TestTxn_T8_AllOrNothing(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		want := h.put("k", "v", 0)
		before := h.Snapshot().Index()
		mine := errors.New("mine")
		err := h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Put("k", []byte("w"), nil)))
			h.must(second(tx.Lock("k", s.ID(), nil)))
			h.must(second(tx.Put("new", nil, nil)))
			h.must(tx.Catalog().PutNode(catalog.Node{Name: "n"}))
			h.must(tx.Catalog().Attach(s.ID(), "attached", nil))
			h.must(tx.EndSession(s.ID()))
			h.must(second(tx.DeleteAll()))
			return fmt.Errorf("of the caller: %w", mine)
		})
		if !errors.Is(err, mine) || err.Error() != "of the caller: mine" {
			h.t.Fatalf("error: got %v", err)
		}
		same(h, "the key", h.entry("k"), want)
		if _, ok := h.Snapshot().Catalog().Node("n"); ok || h.Snapshot().Index() != before ||
			s.Err() != nil {
			h.t.Fatalf("something of it remains: index %d after %d", h.Snapshot().Index(), before)
		}
		h.lock(s, "k") // no delay is left of it (X8)

		h.must(h.Update(func(tx *lockd.Txn) error {
			if _, err := tx.CompareAndSwap("k", 1, []byte("x"), nil); err == nil {
				h.t.Errorf("the swap is not refused")
			}
			if _, err := tx.Lock("k", lockd.SessionID{1}, nil); err == nil {
				h.t.Errorf("the lock is not refused")
			}
			return second(tx.Put("after", nil, nil))
		}))
		if e := h.entry("k"); string(e.Value) != "v" || e.Session != s.ID() {
			h.t.Fatalf("what was refused has changed %+v", e)
		}
		h.entry("after")
	})
}

// Ensure that an attachment which changes hands, or comes and goes, in a transaction that is undone
// dies with the session that has it after all.
func TestTxn_T8_Attachments(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error { return tx.Catalog().Attach(s.ID(), "x", nil) }))
		mine := errors.New("mine")
		err := h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Catalog().Detach("x")))
			h.must(tx.Catalog().Attach(other.ID(), "x", nil))
			h.must(tx.Catalog().Attach(other.ID(), "y", nil))
			h.must(second(tx.Catalog().Detach("y")))
			return mine
		})
		if !errors.Is(err, mine) {
			h.t.Fatalf("update: got %v", err)
		}
		h.must(other.Close())
		if a, ok := h.Snapshot().Catalog().Attachment("x"); !ok || a.Session != s.ID() {
			h.t.Errorf("after the end of another session: got %+v", a)
		}
		h.must(s.Close())
		if _, ok := h.Snapshot().Catalog().Attachment("x"); ok {
			h.t.Errorf("after the end of its session it is there")
		}
	})
}

// Ensure that an operation is judged when it runs, not before those in front of it.
func TestTxn_T9_NothingIsCheckedAhead(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(nil), h.session(nil)
		h.lock(s, "k")
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Delete("k")))
			h.must(second(tx.CompareAndSwap("k", 0, nil, nil)))
			return second(tx.Lock("k", next.ID(), nil))
		}))
		if e := h.entry("k"); e.Session != next.ID() || e.LockIndex != 1 {
			h.t.Fatalf("got %+v", e)
		}
	})
}

// Ensure that EndSession in a transaction has all effects of a session's end (X28).
func TestTxn_T2_EndSession(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: time.Second})
		l := h.lock(s, "k")
		var index uint64
		h.must(h.Update(func(tx *lockd.Txn) error {
			index = tx.Index()
			h.must(tx.Catalog().Attach(s.ID(), "attached", nil))
			return tx.EndSession(s.ID())
		}))
		if !errors.Is(s.Err(), lockd.ErrDestroyed) || !errors.Is(l.Err(), lockd.ErrDestroyed) {
			h.t.Errorf("session: %v, lock: %v", s.Err(), l.Err())
		}
		if e := h.entry("k"); e.ModifyIndex != index || !e.Session.IsZero() {
			h.t.Errorf("key: got %+v, want index %d", e, index)
		}
		if _, ok := h.Snapshot().Catalog().Attachment("attached"); ok {
			h.t.Errorf("the attachment outlived its session")
		}
		var locked *lockd.LockedError
		_, err := h.session(nil).TryLock("k", nil)
		if !errors.As(err, &locked) || locked.Remaining != time.Second {
			h.t.Errorf("the lock after it: got %v", err)
		}
	})
}

// Ensure that the catalog can be written in a transaction, and that a critical check ends its
// sessions within it.
func TestTxn_T13_Catalog(t *testing.T) {
	each(t, func(h *harness) {
		check := catalog.Check{Node: "n", Name: "c", Status: catalog.Passing, ServiceID: "web"}
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(tx.Catalog().PutNode(catalog.Node{Name: "n"}))
			h.must(tx.Catalog().PutService(catalog.Service{Node: "n", Name: "web"}))
			return tx.Catalog().PutCheck(check)
		}))
		s := h.session(&lockd.SessionOptions{Node: "n", Checks: []string{"c"},
			LockDelay: lockd.NoLockDelay})
		next := h.session(nil)
		l := h.lock(s, "k")
		check.Status = catalog.Critical
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(tx.Catalog().PutCheck(check))
			h.heldIn(tx, "k", lockd.SessionID{})
			if e, _ := tx.Get("k"); e.ModifyIndex != tx.Index() {
				h.t.Errorf("the key in the transaction: got %+v", e)
			}
			if err := tx.EndSession(s.ID()); !errors.Is(err, lockd.ErrNoSession) {
				h.t.Errorf("the session in the transaction: got %v", err)
			}
			return second(tx.Lock("k", next.ID(), nil))
		}))
		if !errors.Is(l.Err(), catalog.ErrCheckCritical) ||
			!errors.Is(s.Err(), catalog.ErrCheckCritical) {
			h.t.Errorf("lock: %v, session: %v", l.Err(), s.Err())
		}
		if e := h.entry("k"); e.Session != next.ID() || e.LockIndex != 2 {
			h.t.Errorf("the key: got %+v", e)
		}
	})
}

// Ensure that a key that is set twice in a transaction has its index, and the last value.
func TestTxn_I12_OneIndex(t *testing.T) {
	each(t, func(h *harness) {
		was := h.put("old", "v", 0)
		var index uint64
		h.must(h.Update(func(tx *lockd.Txn) error {
			index = tx.Index()
			for _, value := range []string{"first", "last"} {
				for _, key := range []string{"old", "new"} {
					h.must(second(tx.Put(key, []byte(value), nil)))
				}
			}
			return nil
		}))
		same(h, "the new key", h.entry("new"), lockd.Entry{Key: "new", Value: []byte("last"),
			CreateIndex: index, ModifyIndex: index})
		same(h, "the old key", h.entry("old"), lockd.Entry{Key: "old", Value: []byte("last"),
			CreateIndex: was.CreateIndex, ModifyIndex: index})
		if h.Snapshot().Index() != index {
			h.t.Errorf("index: got %d, want %d", h.Snapshot().Index(), index)
		}
	})
}

func TestTxn_I13_NoOp(t *testing.T) {
	each(t, func(h *harness) {
		want := h.put("k", "v", 1)
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Put("other", nil, nil)))
			got, err := tx.Put("k", []byte("v"), &lockd.PutOptions{Flags: 1})
			same(h, "the result", got, want)
			return err
		}))
		same(h, "the key", h.entry("k"), want)
	})
}
