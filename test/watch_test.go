package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// told is an event in words: "12 put k=v held granted", and the cause.
func told(e lockd.Event) string {
	kinds := map[lockd.EventKind]string{
		lockd.KeyPut: "put", lockd.KeyDeleted: "deleted", lockd.SessionCreated: "session",
		lockd.SessionEnded: "session ended",
	}
	parts := map[catalog.ChangeKind]string{
		catalog.NodePut: "node", catalog.NodeDeleted: "node deleted",
		catalog.ServicePut: "service", catalog.ServiceDeleted: "service deleted",
		catalog.CheckPut: "check", catalog.CheckDeleted: "check deleted",
		catalog.AttachmentPut: "attachment", catalog.AttachmentDeleted: "attachment deleted",
	}
	switch e.Kind {
	case lockd.KeyPut:
		return fmt.Sprintf("%s %s=%s", kinds[e.Kind], e.Entry.Key, e.Entry.Value)
	case lockd.KeyDeleted:
		return kinds[e.Kind] + " " + e.Previous.Key
	case lockd.SessionCreated, lockd.SessionEnded:
		return kinds[e.Kind] + " " + e.Session.Name
	}
	return fmt.Sprintf("%s %s/%s", parts[e.Catalog.Kind], e.Catalog.Node, e.Catalog.ID)
}

// What an event may do to a lock: see lockChange.
const (
	lockUnchanged = "unchanged"
	lockGranted   = "granted"
	lockHandedOn  = "handed on"
	lockReleased  = "released"
	lockLost      = "lost"
	lockDeleted   = "deleted"
)

// lockChange is what the event did to the lock of its key.
func lockChange(e lockd.Event) string {
	begins, ends := !e.Granted.ID.IsZero(), !e.Ended.ID.IsZero()
	switch {
	case begins && ends:
		return lockHandedOn
	case begins:
		return lockGranted
	case !ends:
		return lockUnchanged
	case e.Kind == lockd.KeyDeleted || errors.Is(e.Cause, lockd.ErrKeyDeleted):
		return lockDeleted
	case e.Lost:
		return lockLost
	}
	return lockReleased
}

func inWords(events []lockd.Event) []string {
	var words []string
	for _, e := range events {
		words = append(words, told(e))
	}
	return words
}

// Ensure that a watch has every change after its index, in order and once: also changes that a
// woken reader would have missed, and changes from before the watch began.
func TestWatch_B12_EveryChangeInOrder(t *testing.T) {
	each(t, func(h *harness) {
		h.put("a/k", "0", 0)
		index := h.Snapshot().Index()
		var want []string
		var indexes []uint64
		for i := range 40 {
			key := fmt.Sprintf("a/%d", i%3)
			e := h.put(key, fmt.Sprint(i), 0)
			h.put("b/elsewhere", fmt.Sprint(i), 0)
			want = append(want, fmt.Sprintf("put %s=%d", key, i))
			indexes = append(indexes, e.ModifyIndex)
		}
		h.must(second(h.Delete("a/1")))
		want = append(want, "deleted a/1")
		indexes = append(indexes, h.Snapshot().Index())
		events := h.events(lockd.PrefixScope("a/"), index)
		if !slices.Equal(inWords(events), want) {
			h.t.Errorf("got %q, want %q", inWords(events), want)
		}
		for i, e := range events {
			if e.Index != indexes[i] {
				h.t.Errorf("event %d has index %d, want %d", i, e.Index, indexes[i])
			}
		}
		if got := inWords(h.events(lockd.KeyScope("a/1"), indexes[len(indexes)-2])); len(got) != 1 {
			h.t.Errorf("one key from the middle: got %q", got)
		}
	})
}

// Ensure that one transaction is one event for a key, with the net change.
func TestWatch_B12_NetChange(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		before := h.put("twice", "old", 3)
		h.put("gone", "v", 0)
		h.put("same", "v", 0)
		index := h.Snapshot().Index()
		h.must(h.txn(func(tx *lockd.Txn) error {
			put := func(key, value string) { h.must(second(tx.Put(key, []byte(value), nil))) }
			put("twice", "1")
			put("twice", "2")
			put("gone", "1")
			h.must(second(tx.Delete("gone")))
			put("passing", "1")
			h.must(second(tx.Delete("passing")))
			put("new", "1")
			return second(tx.Lock("new", s.ID(), &lockd.LockOptions{Value: []byte("2")}))
		}))
		events := h.events(lockd.PrefixScope(""), index)
		slices.SortFunc(events, func(a, b lockd.Event) int {
			return slices.Compare([]byte(told(a)), []byte(told(b)))
		})
		want := []string{"deleted gone", "put new=2", "put twice=2"}
		if !slices.Equal(inWords(events), want) {
			h.t.Fatalf("got %q, want %q", inWords(events), want)
		}
		gone, made, twice := events[0], events[1], events[2]
		same(h, "previous", twice.Previous, before)
		same(h, "entry", twice.Entry, h.entry("twice"))
		same(h, "made", made.Entry, h.entry("new"))
		if made.Previous.Key != "" || lockChange(made) != lockGranted || gone.Entry.Key != "" ||
			string(gone.Previous.Value) != "v" || lockChange(gone) != lockUnchanged {
			h.t.Errorf("got %+v and %+v", made, gone)
		}
		for _, e := range events {
			if e.Index != index+1 || e.Cause != nil {
				h.t.Errorf("got %+v", e)
			}
		}
	})
}

// lockEvent is what is done to the key "k" whose lock s holds, and the event of it. If waits, a
// call waits for the lock.
type lockEvent struct {
	name  string
	waits bool
	do    func(h *harness, s *lockd.Session, l *lockd.Lock) error
	kind  lockd.EventKind
	lock  string
	cause error
}

var lockEvents = []lockEvent{
	{"Put", false, func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
		return second(h.Put("k", []byte("new"), nil))
	}, lockd.KeyPut, lockUnchanged, nil},
	{"Unlock", false, func(_ *harness, _ *lockd.Session, l *lockd.Lock) error {
		return l.Unlock()
	}, lockd.KeyPut, lockReleased, lockd.ErrUnlocked},
	{"TxnUnlock", false, func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
		return h.txn(func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.ID())) })
	}, lockd.KeyPut, lockReleased, lockd.ErrUnlocked},
	{"UnlockHandedOn", true, func(_ *harness, _ *lockd.Session, l *lockd.Lock) error {
		return l.Unlock()
	}, lockd.KeyPut, lockHandedOn, lockd.ErrUnlocked},
	{"Close", false, func(_ *harness, s *lockd.Session, _ *lockd.Lock) error {
		return s.Close()
	}, lockd.KeyPut, lockReleased, lockd.ErrClosed},
	{"CloseHandedOn", true, func(_ *harness, s *lockd.Session, _ *lockd.Lock) error {
		return s.Close()
	}, lockd.KeyPut, lockHandedOn, lockd.ErrClosed},
	{"EndSession", false, func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
		return h.EndSession(s.ID())
	}, lockd.KeyPut, lockLost, lockd.ErrDestroyed},
	{"Expired", false, func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
		h.advance(time.Second)
		return nil
	}, lockd.KeyPut, lockLost, lockd.ErrExpired},
	{"Forced", false, func(h *harness, _ *lockd.Session, l *lockd.Lock) error {
		return h.ForceUnlock("k", l.Sequencer().Fence, "a test")
	}, lockd.KeyPut, lockLost, lockd.ErrForced},
	{"Deleted", false, func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
		return second(h.Delete("k"))
	}, lockd.KeyDeleted, lockDeleted, lockd.ErrKeyDeleted},
	{"DeletedPrefix", false, func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
		return second(h.DeletePrefix("k"))
	}, lockd.KeyDeleted, lockDeleted, lockd.ErrKeyDeleted},
	{"DeletedHandedOn", true, func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
		return second(h.Delete("k"))
	}, lockd.KeyPut, lockHandedOn, lockd.ErrKeyDeleted},
	{"ReleasedAndDeleted", false, func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
		return h.txn(func(tx *lockd.Txn) error {
			h.must(second(tx.Unlock("k", s.ID())))
			return second(tx.Delete("k"))
		})
	}, lockd.KeyDeleted, lockDeleted, lockd.ErrUnlocked},
	{"DeletedAndMadeAnew", false, func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
		return h.txn(func(tx *lockd.Txn) error {
			h.must(second(tx.Delete("k")))
			return second(tx.Put("k", nil, nil))
		})
	}, lockd.KeyPut, lockDeleted, lockd.ErrKeyDeleted},
	{"ReleasedThenAnotherLost", false, func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
		other := h.session(nil)
		return h.txn(func(tx *lockd.Txn) error {
			h.must(second(tx.Unlock("k", s.ID())))
			h.must(second(tx.Lock("k", other.ID(), nil)))
			return tx.EndSession(other.ID())
		})
	}, lockd.KeyPut, lockReleased, lockd.ErrUnlocked},
	{"ReleasedAndTakenAgain", false, func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
		return h.txn(func(tx *lockd.Txn) error {
			h.must(second(tx.Unlock("k", s.ID())))
			return second(tx.Lock("k", s.ID(), nil))
		})
	}, lockd.KeyPut, lockHandedOn, lockd.ErrUnlocked},
}

// Ensure that an event says what became of the lock, and why, as the holder is told.
func TestWatch_B12_LockChanges(t *testing.T) {
	for _, test := range lockEvents {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{TTL: time.Second})
				index := h.Snapshot().Index()
				l := h.lock(s, "k")
				events := h.events(lockd.KeyScope("k"), index)
				if len(events) != 1 || lockChange(events[0]) != lockGranted ||
					events[0].Cause != nil {
					h.t.Errorf("the grant: got %+v", events)
				}
				if test.waits {
					next := h.session(nil)
					waiting := start(func() error {
						return second(next.Lock(h.t.Context(), "k", nil))
					})
					h.settle()
					defer func() { h.must(waiting.wait()) }()
				}
				index = h.Snapshot().Index()
				before := h.entry("k")
				h.must(test.do(h, s, l))
				h.settle()
				events = h.events(lockd.KeyScope("k"), index)
				if len(events) != 1 {
					h.t.Fatalf("got %d events: %+v", len(events), events)
				}
				e := events[0]
				change := lockChange(e)
				if e.Kind != test.kind || change != test.lock || !errors.Is(e.Cause, test.cause) {
					h.t.Errorf("got %q, lock %v, cause %v; want lock %v, cause %v",
						told(e), change, e.Cause, test.lock, test.cause)
				}
				if ended := change != lockUnchanged; ended != (e.Ended.ID == s.ID()) ||
					e.Time.IsZero() == ended || e.Lost != lockd.Lost(l.Err()) {
					h.t.Errorf("got %+v, and the holder %v", e, l.Err())
				}
				if test.cause != nil {
					h.lost(l, test.cause)
				}
				now, _ := h.Get("k")
				same(h, "previous", e.Previous, before)
				same(h, "entry", e.Entry, now)
			})
		})
	}
}

// Ensure that a RemoveAfter tells that the lock was released, although its key went.
func TestWatch_B12_RemoveAfter(t *testing.T) {
	each(t, func(h *harness) {
		l, err := h.session(nil).TryLock("k", &lockd.LockOptions{Key: lockd.RemoveAfter})
		h.must(err)
		index := h.Snapshot().Index()
		h.must(l.Unlock())
		events := h.events(lockd.KeyScope("k"), index)
		if len(events) != 1 || events[0].Kind != lockd.KeyDeleted ||
			!errors.Is(events[0].Cause, lockd.ErrUnlocked) {
			h.t.Errorf("got %+v", events)
		}
	})
}

// Ensure that sessions and the catalog have events like keys, and no events of keys and shares.
func TestWatch_S40_SessionsAndCatalog(t *testing.T) {
	each(t, func(h *harness) {
		index := h.Snapshot().Index()
		s := h.session(&lockd.SessionOptions{Name: "s"})
		h.must(second(s.TryLock("shared", &lockd.LockOptions{Mode: lockd.Shared})))
		h.register()
		h.must(h.txn(func(tx *lockd.Txn) error { return tx.Catalog().Attach(s.ID(), "note", nil) }))
		h.must(h.session(&lockd.SessionOptions{Name: "other"}).Close())
		h.must(h.txn(func(tx *lockd.Txn) error { return second(tx.Catalog().DeleteNode("db1")) }))
		h.must(h.EndSession(s.ID()))

		events := h.events(lockd.SessionsScope(), index)
		want := []string{"session s", "session other", "session ended other", "session ended s"}
		if !slices.Equal(inWords(events), want) {
			h.t.Errorf("sessions: got %q", inWords(events))
		}
		describes(h, events[0].Session, s.Info())
		if events[0].Cause != nil || !errors.Is(events[2].Cause, lockd.ErrClosed) ||
			!errors.Is(events[3].Cause, lockd.ErrDestroyed) {
			h.t.Errorf("causes: got %+v", events)
		}
		one := inWords(h.events(lockd.SessionScope(s.ID()), index))
		if !slices.Equal(one, []string{"session s", "session ended s"}) {
			h.t.Errorf("one session: got %q", one)
		}
		catalog := inWords(h.events(lockd.CatalogScope(), index))
		want = []string{
			"node db1/", "service db1/mysql", "check db1/disk", "check db1/ping",
			"attachment /note",
			"node deleted db1/", "service deleted db1/mysql", "check deleted db1/disk",
			"check deleted db1/ping",
			"attachment deleted /note",
		}
		if !slices.Equal(catalog, want) {
			h.t.Errorf("catalog: got %q, want %q", catalog, want)
		}
	})
}

// Ensure that there is no event of what one transaction made and removed.
func TestWatch_B12_PassingCatalog(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		index := h.Snapshot().Index()
		h.must(h.txn(func(tx *lockd.Txn) error {
			return errors.Join(
				tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "passing"}),
				second(tx.Catalog().DeleteCheck("db1", "passing")),
				tx.Catalog().PutService(catalog.Service{Node: "db1", Name: "passing"}),
				second(tx.Catalog().DeleteService("db1", "passing")),
				tx.Catalog().PutNode(catalog.Node{Name: "passing"}),
				second(tx.Catalog().DeleteNode("passing")),
				tx.Catalog().AttachUnowned("passing", nil),
				second(tx.Catalog().Detach("passing")),
			)
		}))
		if got := inWords(h.events(lockd.CatalogScope(), index)); len(got) != 0 {
			h.t.Errorf("got %q", got)
		}
	})
}

// Ensure that there is no gap between a snapshot and the watch that begins at its index, whatever
// is written meanwhile: together they are the state.
func TestWatch_B12_NoGapToTheSnapshot(t *testing.T) {
	each(t, func(h *harness) {
		const writers, writes = 4, 50
		var all []*call
		for w := range writers {
			all = append(all, start(func() error {
				for i := range writes {
					key := fmt.Sprintf("k%d", i%7)
					value := fmt.Appendf(nil, "%d of %d", i, w)
					if _, err := h.Put(key, value, nil); err != nil {
						return err
					}
					if i%5 == w {
						if _, err := h.Delete(key); err != nil {
							return err
						}
					}
				}
				return nil
			}))
		}
		snap := h.Snapshot()
		for _, c := range all {
			h.must(c.wait())
		}
		state := make(map[string]lockd.Entry)
		for key, e := range snap.Prefix("") {
			state[key] = e
		}
		last := snap.Index()
		for _, e := range h.events(lockd.PrefixScope(""), snap.Index()) {
			if e.Index <= last {
				h.t.Errorf("index %d after %d", e.Index, last)
			}
			last = e.Index
			if e.Kind == lockd.KeyDeleted {
				delete(state, e.Previous.Key)
				continue
			}
			same(h, "previous", e.Previous, state[e.Entry.Key])
			state[e.Entry.Key] = e.Entry
		}
		for key, e := range h.Snapshot().Prefix("") {
			same(h, key, state[key], e)
			delete(state, key)
		}
		if len(state) > 0 {
			h.t.Errorf("never deleted: %v", state)
		}
	})
}

// watched is a Watch whose events are taken one by one.
type watched struct {
	h    *harness
	next func() (lockd.Event, error, bool)
	stop func()
}

func (h *harness) watches(ctx context.Context, scope lockd.Scope, index uint64) *watched {
	w := &watched{h: h}
	w.next, w.stop = iter.Pull2(h.Watch(ctx, scope, index))
	return w
}

func (w *watched) want(text string) {
	w.h.t.Helper()
	e, err, ok := w.next()
	if err != nil || !ok || told(e) != text {
		w.h.t.Fatalf("got %q, %v, %v, want %q", told(e), err, ok, text)
	}
}

// ends fails the test unless the watch ends with the error, and nothing after it.
func (w *watched) ends(want error) {
	w.h.t.Helper()
	e, err, ok := w.next()
	if !ok || !errors.Is(err, want) || e.Kind != 0 {
		w.h.t.Fatalf("got %q, %v, want %v", told(e), err, want)
	}
	if e, err, ok := w.next(); ok {
		w.h.t.Fatalf("after the end: got %q, %v", told(e), err)
	}
	w.stop()
}

// shortHistory opens the database anew, with room for 10 events.
func (h *harness) shortHistory() {
	h.t.Helper()
	h.opts.History = 10
	h.reopen()
}

// writes makes n changes of the key.
func (h *harness) writes(key string, n int) {
	h.t.Helper()
	for range n {
		h.put(key, fmt.Sprint(h.Snapshot().Index()), 0)
	}
}

// Ensure that a watch from an index of which events are no longer kept ends with ErrCompacted at
// once, and a watch from the oldest that is kept has them all.
func TestWatch_B12_Compacted(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory()
		h.writes("k", 30)
		newest := h.Snapshot().Index()
		for _, scope := range []lockd.Scope{
			lockd.KeyScope("k"), lockd.PrefixScope(""),
			lockd.KeyScope("of which nothing was ever told"),
		} {
			for _, index := range []uint64{0, 1, newest - 20, newest - 11} {
				h.watches(h.t.Context(), scope, index).ends(lockd.ErrCompacted)
			}
		}
		if got := len(h.events(lockd.KeyScope("k"), newest-10)); got != 10 {
			h.t.Errorf("kept: got %d", got)
		}
		if n := h.Topics(); n != 0 {
			h.t.Errorf("%d topics are left", n)
		}
	})
}

// Ensure that events do not keep values that were overwritten or deleted, beyond 64 MiB of them.
func TestWatch_B12_CompactedByLargeValues(t *testing.T) {
	const size = 10 << 20 // twice that for an event: before the change, and after
	inBubble(t, "", func(h *harness) {
		id := h.session(nil).ID()
		for _, test := range []struct {
			scope lockd.Scope
			write func(value []byte) error
		}{
			{lockd.KeyScope("k"), func(value []byte) error {
				return second(h.Put("k", value, nil))
			}},
			{lockd.CatalogScope(), func(value []byte) error {
				return h.Update(func(tx *lockd.Txn) error {
					return tx.Catalog().Attach(id, "a", value)
				})
			}},
			{lockd.CatalogScope(), func(value []byte) error {
				check := catalog.Check{Node: h.Node(), ID: "c", Status: catalog.Passing}
				check.Output = string(value)
				return h.Update(func(tx *lockd.Txn) error { return tx.Catalog().PutCheck(check) })
			}},
		} {
			var indexes []uint64
			for i := range byte(6) {
				h.must(test.write(bytes.Repeat([]byte{'a' + i}, size)))
				indexes = append(indexes, h.Snapshot().Index())
			}
			if got := len(h.events(test.scope, indexes[2])); got != 3 {
				h.t.Errorf("%v: kept: got %d", test.scope, got)
			}
			h.watches(h.t.Context(), test.scope, indexes[1]).ends(lockd.ErrCompacted)
		}
	})
}

// Ensure that everything in a new database can be watched, from before its first change, until the
// first event falls out of the history.
func TestWatch_B12_FromTheBeginning(t *testing.T) {
	each(t, func(h *harness) {
		h.writes("k", 2)
		for index := range uint64(2) {
			if got := len(h.events(lockd.KeyScope("k"), index)); got != 2 {
				h.t.Errorf("from %d: got %d events", index, got)
			}
			if got := len(h.events(lockd.CatalogScope(), index)); got != 1 { // this process's node
				h.t.Errorf("from %d: got %d events of the catalog", index, got)
			}
		}
		h.shortHistory()
		h.writes("k", 11)
		h.watches(h.t.Context(), lockd.KeyScope("k"), 0).ends(lockd.ErrCompacted)
	})
}

// Ensure that a watch of a closed database says that it is closed, whatever else is in its way.
func TestWatch_G12_AfterClose(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory()
		h.writes("k", 30)
		h.must(h.Close())
		for _, index := range []uint64{0, 1, h.Snapshot().Index(), 1 << 40} {
			told := false
			for _, err := range h.Watch(h.t.Context(), lockd.KeyScope("k"), index) {
				told = true
				if !errors.Is(err, lockd.ErrClosed) || errors.Is(err, lockd.ErrCompacted) ||
					!strings.HasSuffix(err.Error(), ": database closed by its owner") {
					h.t.Errorf("from %d: got %v", index, err)
				}
			}
			if !told {
				h.t.Errorf("from %d: the watch ended in silence", index)
			}
		}
		told := false
		for _, err := range h.Observe(h.t.Context(), "") {
			told = true
			if !errors.Is(err, lockd.ErrClosed) || errors.Is(err, lockd.ErrInvalid) {
				h.t.Errorf("observe: got %v", err)
			}
		}
		if !told {
			h.t.Error("the observation ended in silence")
		}
	})
}

// Ensure that after a restart every older index is compacted, and the last one is not.
func TestWatch_B12_CompactedByARestart(t *testing.T) {
	onFile(t, func(h *harness) {
		h.writes("k", 5)
		h.reopen()
		newest := h.Snapshot().Index()
		for _, index := range []uint64{0, 1, newest - 1} {
			h.watches(h.t.Context(), lockd.KeyScope("k"), index).ends(lockd.ErrCompacted)
		}
		w := h.watches(h.t.Context(), lockd.KeyScope("k"), newest)
		h.put("k", "after", 0)
		w.want("put k=after")
		w.stop()
	})
}

// Ensure that a watcher that is too slow is cut off with ErrCompacted and misses nothing silently,
// while no writer waits for it.
func TestWatch_B12_TooSlow(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory()
		w := h.watches(h.t.Context(), lockd.PrefixScope("k"), h.Snapshot().Index())
		h.put("k", "first", 0)
		w.want("put k=first")
		h.writes("k", 11) // it has not come back for more
		w.ends(lockd.ErrCompacted)
	})
}

// Ensure that a watcher that sleeps, or was busy, is not cut off by changes elsewhere, however
// many they are.
func TestWatch_B12_ForeignChangesCutNobodyOff(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory()
		ctx, cancel := context.WithCancel(h.t.Context())
		var got []string
		watching := start(func() error {
			for e, err := range h.Watch(ctx, lockd.KeyScope("k"), h.Snapshot().Index()) {
				if err != nil {
					return err
				}
				got = append(got, told(e))
				h.writes("elsewhere", 25) // while the watcher is busy
			}
			return nil
		})
		h.settle()
		h.writes("elsewhere", 25) // while it sleeps
		h.writes("kk", 25)
		h.put("k", "1", 0)
		h.settle()
		h.writes("elsewhere", 25)
		h.put("k", "2", 0)
		h.settle()
		cancel()
		if err := watching.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("ended: %v", err)
		}
		if !slices.Equal(got, []string{"put k=1", "put k=2"}) {
			h.t.Errorf("got %q", got)
		}
	})
}

// Ensure that a watch whose loop panics leaves no topic behind.
func TestWatch_LoopPanics(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		func() {
			defer func() { _ = recover() }()
			for range h.Watch(h.t.Context(), lockd.KeyScope("k"), h.Snapshot().Index()-1) {
				panic("the loop's own")
			}
		}()
		if n := h.Topics(); n != 0 {
			h.t.Errorf("%d topics are left", n)
		}
	})
}

// wantAll fails the test unless the watch has each of the n keys with the prefix next, in any order
// of its own.
func (w *watched) wantAll(prefix string, n int) {
	w.h.t.Helper()
	seen := make(map[string]bool)
	for range n {
		e, err, ok := w.next()
		if err != nil || !ok || !strings.HasPrefix(e.Key, prefix) || seen[e.Key] {
			w.h.t.Fatalf("after %d of %d events: got %q, %v, %v", len(seen), n, told(e), err, ok)
		}
		seen[e.Key] = true
	}
}

// Ensure that a watcher that is up to date has every change of a transaction that is longer than
// the history, also if the next ones follow at once.
func TestWatch_B12_TransactionLongerThanTheHistory(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory() // 10 events
		w := h.watches(h.t.Context(), lockd.PrefixScope(""), h.Snapshot().Index())
		h.put("k", "first", 0)
		w.want("put k=first")
		before := h.Snapshot().Index()
		h.must(h.Update(func(tx *lockd.Txn) error {
			for i := range 1_000 {
				if _, err := tx.Put(fmt.Sprintf("many/%03d", i), nil, nil); err != nil {
					return err
				}
			}
			return nil
		}))
		h.writes("k", 9)
		w.wantAll("many/", 1_000)
		for range 9 {
			w.wantAll("k", 1)
		}
		w.stop()
		h.writes("k", 1)
		h.watches(h.t.Context(), lockd.PrefixScope(""), before).ends(lockd.ErrCompacted)
	})
}

// Ensure that a watcher that is up to date has every change of one commit for many writers.
func TestWatch_B12_CommitLongerThanTheHistory(t *testing.T) {
	onFile(t, func(h *harness) {
		h.opts.History = 10
		c := h.commits()
		w := h.watches(h.t.Context(), lockd.PrefixScope("crowd/"), h.Snapshot().Index())
		h.put("crowd/first", "", 0)
		w.want("put crowd/first=")
		first := c.held(func() error { return second(h.Put("elsewhere", nil, nil)) })
		calls := h.crowd(200)
		c.release(nil)
		h.must(first.wait())
		for _, call := range calls {
			h.must(call.wait())
		}
		w.wantAll("crowd/", 200)
		w.stop()
	})
}
