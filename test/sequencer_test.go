package lockd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockd/lockd"
)

// proved fails the test unless every method agrees on whether the sequencer holds: the check, the
// check of a transaction, and a write that depends on the sequencer.
func (h *harness) proved(what string, q lockd.Sequencer, want error) {
	h.t.Helper()
	index := h.Snapshot().Index()
	if err := h.CheckSequencer(q); !errors.Is(err, want) {
		h.t.Errorf("%s: check: got %v, want %v", what, err, want)
	}
	err := h.Update(func(tx *lockd.Txn) error { return tx.CheckSequencer(q) })
	if !errors.Is(err, want) {
		h.t.Errorf("%s: check in a transaction: got %v, want %v", what, err, want)
	}
	held := h.If(q)
	if err := second(held.CompareAndSwap("written", 0, nil, nil)); !errors.Is(err, want) {
		h.t.Errorf("%s: compare and swap: got %v, want %v", what, err, want)
	}
	err = held.Update(func(tx *lockd.Txn) error { return second(tx.Put("written", nil, nil)) })
	if !errors.Is(err, want) {
		h.t.Errorf("%s: update: got %v, want %v", what, err, want)
	}
	if err := second(held.Delete("nothing")); !errors.Is(err, want) {
		h.t.Errorf("%s: delete: got %v, want %v", what, err, want)
	}
	if err := second(held.Put("written", []byte("v"), nil)); !errors.Is(err, want) {
		h.t.Errorf("%s: put: got %v, want %v", what, err, want)
	}
	_, written := h.Get("written")
	if written != (want == nil) || want != nil && h.Snapshot().Index() != index {
		h.t.Errorf("%s: written is %v, index %d after %d", what, written,
			h.Snapshot().Index(), index)
	}
	h.must(second(h.Delete("written")))
}

// Ensure that a sequencer holds for as long as its grant does, whatever else is written.
func TestSequencer_K41_HoldsWhileTheGrantDoes(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		h.must(h.lock(s, "k").Unlock())
		q := h.lock(s, "k").Sequencer()
		e := h.entry("k")
		want := lockd.Sequencer{Key: "k", Session: s.ID(), LockIndex: 2, Fence: e.ModifyIndex}
		if q != want || e.Sequencer() != want {
			h.t.Fatalf("got %+v and %+v, want %+v", q, e.Sequencer(), want)
		}
		h.proved("at once", q, nil)
		h.put("k", "by a stranger", 9)
		h.proved("after a write", q, nil)
		h.must(h.Update(func(tx *lockd.Txn) error {
			return second(tx.Lock("k", s.ID(), &lockd.LockOptions{Value: []byte("x")}))
		}))
		h.proved("after K15", q, nil)
		h.must(s.Renew())
		h.advance(time.Minute - 1)
		h.proved("at the end of the TTL", q, nil)
		h.advance(1)
		h.proved("after it", q, lockd.ErrNotHeld)
	})
}

func TestSequencer_K41_EndsWithTheGrant(t *testing.T) {
	for name, end := range map[string]func(h *harness, s *lockd.Session, l *lockd.Lock) error{
		"Unlock": func(_ *harness, _ *lockd.Session, l *lockd.Lock) error { return l.Unlock() },
		"Delete": func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
			return second(h.Delete("k"))
		},
		"DeleteAll": func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
			return second(h.DeleteAll())
		},
		"EndSession": func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
			return h.EndSession(s.ID())
		},
		"ForceUnlock": func(h *harness, _ *lockd.Session, l *lockd.Lock) error {
			return h.ForceUnlock("k", l.Sequencer().Fence, "")
		},
		"a new grant to it": func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
			return h.Update(func(tx *lockd.Txn) error {
				h.must(second(tx.Unlock("k", s.ID())))
				return second(tx.Lock("k", s.ID(), nil))
			})
		},
		"the key made anew and granted to it": func(
			h *harness, s *lockd.Session, _ *lockd.Lock,
		) error {
			h.must(second(h.Delete("k")))
			return second(s.TryLock("k", nil)) // LockIndex is the same as before
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
				l := h.lock(s, "k")
				h.proved("before", l.Sequencer(), nil)
				h.must(end(h, s, l))
				h.proved("after", l.Sequencer(), lockd.ErrNotHeld)
			})
		})
	}
}

// Ensure that all four fields of a sequencer count, and that the zero sequencer proves nothing.
func TestSequencer_K41_AllOfIt(t *testing.T) {
	each(t, func(h *harness) {
		s, stranger := h.session(nil), h.session(nil)
		q := h.lock(s, "k").Sequencer()
		h.lock(stranger, "j")
		h.put("free", "v", 0)
		for name, change := range map[string]func(q *lockd.Sequencer){
			"another key":     func(q *lockd.Sequencer) { q.Key = "j" },
			"an absent key":   func(q *lockd.Sequencer) { q.Key = "absent" },
			"a free key":      func(q *lockd.Sequencer) { q.Key = "free" },
			"no key":          func(q *lockd.Sequencer) { q.Key = "" },
			"another session": func(q *lockd.Sequencer) { q.Session = stranger.ID() },
			"no session":      func(q *lockd.Sequencer) { q.Session = lockd.SessionID{} },
			"LockIndex below": func(q *lockd.Sequencer) { q.LockIndex-- },
			"LockIndex above": func(q *lockd.Sequencer) { q.LockIndex++ },
			"Fence below":     func(q *lockd.Sequencer) { q.Fence-- },
			"Fence above":     func(q *lockd.Sequencer) { q.Fence++ },
			"everything":      func(q *lockd.Sequencer) { *q = lockd.Sequencer{} },
		} {
			changed := q
			change(&changed)
			h.proved(name, changed, lockd.ErrNotHeld)
		}
		// A sequencer that proves nothing must not match the key of a lock that was never taken.
		h.proved("only the key of a free one", lockd.Sequencer{Key: "free"}, lockd.ErrNotHeld)
		h.proved("what the entry of a free one gives", h.entry("free").Sequencer(),
			lockd.ErrNotHeld)
		h.proved("the one it was", q, nil)
	})
}

// Ensure that a grant in one transaction comes after the grants before it, even if the key is
// deleted in between: also after a share that joined a lock of an earlier transaction.
func TestSequencer_K41R2_ShareThatIsDeleted(t *testing.T) {
	for _, mode := range []lockd.LockMode{lockd.Exclusive, lockd.Shared} {
		each(t, func(h *harness) {
			for range 3 {
				h.must(h.lock(h.session(nil), "k").Unlock())
			}
			h.must(second(h.session(nil).TryLock("k", &lockd.LockOptions{Mode: lockd.Shared})))
			s := h.session(nil)
			h.must(h.Update(func(tx *lockd.Txn) error {
				grant := func(mode lockd.LockMode) (q lockd.Sequencer) {
					h.must(second(tx.Lock("k", s.ID(), &lockd.LockOptions{Mode: mode})))
					for holder := range tx.Holders("k") {
						if holder.Session.ID == s.ID() {
							q = holder.Grant
						}
					}
					return q
				}
				first := grant(lockd.Shared)
				h.must(second(tx.Delete("k")))
				next := grant(mode)
				if next.Fence != first.Fence || next.LockIndex <= first.LockIndex {
					t.Errorf("%v: %v comes after %v", mode, next, first)
				}
				return nil
			}))
		})
	}
}

// Ensure that the refusal of a write to one key names the key whose lock was to prove it, when that
// key is gone, as after the release of a slot.
func TestIf_NamesTheKeyThatIsGone(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		slot, err := s.TryAcquire("pool", 1)
		h.must(err)
		h.must(slot.Release())
		_, err = h.If(slot.Sequencer()).Put("data", nil, nil)
		text := `key "pool/` + s.ID().String() + `" does not exist`
		if !errors.Is(err, lockd.ErrNotHeld) || !strings.Contains(err.Error(), text) {
			h.t.Errorf("got %v, want %s", err, text)
		}
	})
}

// Ensure that a write can depend on the lock of any key, also on one that its own transaction
// takes, and that the refusal says which fence has passed.
func TestIf_K41(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		old := h.lock(s, "leader")
		held := h.If(old.Sequencer())
		want, err := held.Put("data", []byte("v"), &lockd.PutOptions{Flags: 3})
		h.must(err)
		if want.Flags != 3 {
			h.t.Errorf("flags: got %d", want.Flags)
		}
		h.must(second(held.Put("leader", []byte("v"), nil)))
		h.must(old.Unlock())
		now := h.lock(s, "leader")
		h.nothingMoves("a late write", func() {
			_, err := held.Put("data", []byte("late"), nil)
			text := "the lock is held with fence"
			if !errors.Is(err, lockd.ErrNotHeld) || !strings.Contains(err.Error(), text) {
				h.t.Errorf("a late write: got %v", err)
			}
			// A write that would change nothing is refused as well.
			if err := second(held.Put("data", want.Value, nil)); !errors.Is(err,
				lockd.ErrNotHeld) {
				h.t.Errorf("a late no-op: got %v", err)
			}
			_, err = held.CompareAndSwap("data", want.ModifyIndex, []byte("late"), nil)
			if !errors.Is(err, lockd.ErrNotHeld) {
				h.t.Errorf("a late compare and swap: got %v", err)
			}
			if _, err := held.Delete("data"); !errors.Is(err, lockd.ErrNotHeld) {
				h.t.Errorf("a late delete: got %v", err)
			}
			err = held.Update(func(*lockd.Txn) error {
				h.t.Error("the function of a late update is called")
				return nil
			})
			if !errors.Is(err, lockd.ErrNotHeld) {
				h.t.Errorf("a late update: got %v", err)
			}
		})
		same(h, "data", h.entry("data"), want)
		h.must(now.Unlock())
		h.must(h.Update(func(tx *lockd.Txn) error {
			e, err := tx.Lock("leader", s.ID(), nil)
			h.must(err)
			h.must(tx.CheckSequencer(e.Sequencer()))
			h.must(second(tx.Put("data", []byte("in it"), nil)))
			h.must(second(tx.Unlock("leader", s.ID())))
			if err := tx.CheckSequencer(e.Sequencer()); !errors.Is(err, lockd.ErrNotHeld) {
				h.t.Errorf("after the unlock in it: got %v", err)
			}
			return nil
		}))
		if e := h.entry("data"); string(e.Value) != "in it" {
			h.t.Errorf("data: got %+v", e)
		}
	})
}

// Ensure that a guard admits the newest grant that it has seen and no older one, and that a refusal
// leaves the guard as it was.
func TestGuard(t *testing.T) {
	grant := func(key string, fence uint64) lockd.Sequencer {
		return lockd.Sequencer{Key: key, Session: lockd.SessionID{byte(fence)}, LockIndex: 1,
			Fence: fence}
	}
	noSession, noFence, noMode := grant("k", 30), grant("k", 0), grant("k", 30)
	noSession.Session, noFence.Session = lockd.SessionID{}, lockd.SessionID{1}
	noMode.Mode = lockd.Shared + 1
	var g lockd.Guard
	for i, tt := range []struct {
		q    lockd.Sequencer
		want error
	}{
		{lockd.Sequencer{}, lockd.ErrInvalid},
		{noSession, lockd.ErrInvalid},
		{noFence, lockd.ErrInvalid},
		{noMode, lockd.ErrInvalid},
		{grant("k", 10), nil}, // none of those before has set the key or the fence
		{grant("k", 10), nil},
		{grant("k", 9), lockd.ErrNotHeld},
		{grant("j", 20), lockd.ErrInvalid},
		{grant("k", 15), nil}, // 20 was not taken
		{grant("k", 10), lockd.ErrNotHeld},
		{noSession, lockd.ErrInvalid},
		{grant("k", 15), nil},
		{grant("k", 1<<64-1), nil},
		{grant("k", 15), lockd.ErrNotHeld},
	} {
		if err := g.Check(tt.q); !errors.Is(err, tt.want) {
			t.Errorf("check %d of %v: got %v, want %v", i, tt.q, err, tt.want)
		}
	}
}

// Ensure that two grants of one key in one transaction, which share a fence, have two sequencers
// whose lock indexes rise, and that a guard that has seen the second refuses the first: also if the
// transaction deletes the key between them, which sets the lock index of a key back.
func TestGuard_G8_TwoGrantsInOneTransaction(t *testing.T) {
	type txn = lockd.Txn
	unlock := func(tx *txn, s lockd.SessionID) error { return second(tx.Unlock("k", s)) }
	remove := func(tx *txn, _ lockd.SessionID) error { return second(tx.Delete("k")) }
	for name, between := range map[string]func(tx *txn, holder lockd.SessionID) error{
		"Unlock": unlock,
		"Delete": remove,
		"DeletePrefix": func(tx *txn, _ lockd.SessionID) error {
			return second(tx.DeletePrefix("k"))
		},
		"Unlock, Delete": func(tx *txn, holder lockd.SessionID) error {
			return errors.Join(unlock(tx, holder), remove(tx, holder))
		},
		"Delete, Put": func(tx *txn, holder lockd.SessionID) error {
			return errors.Join(remove(tx, holder), second(tx.Put("k", []byte("v"), nil)))
		},
		"Delete, Put, Delete": func(tx *txn, holder lockd.SessionID) error {
			return errors.Join(remove(tx, holder), second(tx.Put("k", nil, nil)),
				remove(tx, holder))
		},
	} {
		for _, before := range []int{0, 3} {
			for _, holders := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%d before/%d holders", name, before, holders),
					func(t *testing.T) {
						each(t, func(h *harness) {
							sessions := h.sessions(2)[:holders]
							for range before {
								h.must(h.lock(sessions[0], "k").Unlock())
							}
							h.regrants(sessions, between)
						})
					})
			}
		}
	}
}

// regrants has one transaction lock the key three times, and fails the test unless the sequencers
// of these grants tell which is later.
func (h *harness) regrants(
	sessions []*lockd.Session, between func(tx *lockd.Txn, holder lockd.SessionID) error,
) {
	h.t.Helper()
	var grants []lockd.Sequencer
	h.must(h.Update(func(tx *lockd.Txn) error {
		for i := range 3 {
			if i > 0 {
				h.must(between(tx, grants[i-1].Session))
			}
			e, err := tx.Lock("k", sessions[i%len(sessions)].ID(), nil)
			h.must(err)
			grants = append(grants, e.Sequencer())
			h.must(tx.CheckSequencer(e.Sequencer()))
			for _, earlier := range grants[:i] {
				if err := tx.CheckSequencer(earlier); !errors.Is(err, lockd.ErrNotHeld) {
					h.t.Errorf("%v in the transaction, after %v: got %v", earlier, e.Sequencer(),
						err)
				}
			}
		}
		return nil
	}))
	last := len(grants) - 1
	h.must(h.CheckSequencer(grants[last]))
	for i, earlier := range grants[:last] {
		later := grants[i+1]
		if earlier.Fence != later.Fence || earlier.LockIndex >= later.LockIndex {
			h.t.Errorf("grants: %v, and then %v", earlier, later)
		}
		var guard lockd.Guard
		h.must(guard.Check(earlier))
		h.must(guard.Check(later))
		if err := guard.Check(earlier); !errors.Is(err, lockd.ErrNotHeld) {
			h.t.Errorf("guard: %v after %v: got %v, want ErrNotHeld", earlier, later, err)
		}
		h.must(guard.Check(later))
		if err := h.CheckSequencer(earlier); !errors.Is(err, lockd.ErrNotHeld) {
			h.t.Errorf("check of %v: got %v, want ErrNotHeld", earlier, err)
		}
	}
}

// Ensure that the next transaction does not depend on what one has seen of a key: a key that is
// made anew starts at lock index 1 again.
func TestTxn_K13_LockIndexStartsAgain(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		undone := errors.New("undone")
		lock := func(tx *lockd.Txn) lockd.Entry {
			e, err := tx.Lock("k", s.ID(), nil)
			h.must(err)
			return e
		}
		for _, want := range []error{undone, nil} {
			var gone uint64 // the fence of grants of which nothing is left
			err := h.Update(func(tx *lockd.Txn) error {
				for range 3 {
					gone = lock(tx).Fence
					h.must(second(tx.Delete("k")))
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Fatalf("update: got %v, want %v", err, want)
			}
			h.must(h.Update(func(tx *lockd.Txn) error {
				e := lock(tx)
				if e.LockIndex != 1 {
					t.Errorf("lock index of a new key: got %d, want 1", e.LockIndex)
				}
				if want == nil && e.Fence <= gone {
					t.Errorf("fence %d after %d", e.Fence, gone)
				}
				return second(tx.Delete("k"))
			}))
		}
	})
}

// Ensure that a guard tells the grants of one transaction apart by lock index, and heeds no lock
// index of an older fence.
func TestGuard_G8_LockIndexCountsWithinAFence(t *testing.T) {
	grant := func(fence, lockIndex uint64) lockd.Sequencer {
		return lockd.Sequencer{Key: "k", Session: lockd.SessionID{1}, LockIndex: lockIndex,
			Fence: fence}
	}
	var g lockd.Guard
	for i, tt := range []struct {
		q    lockd.Sequencer
		want error
	}{
		{grant(10, 7), nil},
		{grant(10, 6), lockd.ErrNotHeld},
		{grant(10, 8), nil},
		{grant(10, 7), lockd.ErrNotHeld},
		{grant(9, 9), lockd.ErrNotHeld},
		{grant(11, 1), nil}, // the key was deleted, and made anew
		{grant(10, 8), lockd.ErrNotHeld},
	} {
		if err := g.Check(tt.q); !errors.Is(err, tt.want) {
			t.Errorf("check %d of %v: got %v, want %v", i, tt.q, err, tt.want)
		}
	}
}

// Ensure that no goroutine passes a guard with a lower fence once another has with a higher one.
func TestGuard_ManyGoroutines(t *testing.T) {
	var g lockd.Guard
	var wg sync.WaitGroup
	id := lockd.SessionID{1}
	for range 4 {
		wg.Go(func() {
			for fence := uint64(1); fence <= 100; fence++ {
				passed := g.Check(lockd.Sequencer{Key: "k", Session: id, Fence: fence}) == nil
				lower := lockd.Sequencer{Key: "k", Session: id, Fence: fence - 1}
				if passed && g.Check(lower) == nil {
					t.Errorf("fence %d passed after %d", fence-1, fence)
				}
			}
		})
	}
	wg.Wait()
}

// sequencers draws any sequencer, those that no lock ever has included.
func sequencers() *rapid.Generator[lockd.Sequencer] {
	return rapid.Custom(func(t *rapid.T) lockd.Sequencer {
		key := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[a-z/%: +.\\]{0,8}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(t, "key")
		q := lockd.Sequencer{
			Key:       key,
			LockIndex: rapid.Uint64().Draw(t, "lock index"),
			Fence:     rapid.Uint64().Draw(t, "fence"),
		}
		if rapid.Bool().Draw(t, "has a session") {
			copy(q.Session[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "session"))
		}
		if rapid.Bool().Draw(t, "shared") {
			q.Mode = lockd.Shared
		}
		return q
	})
}

// Ensure that the text form, by each of its methods, gives back what it was made from, and that no
// two sequencers share one.
func TestSequencer_TextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := sequencers().Draw(t, "sequencer")
		zero := q == lockd.Sequencer{}
		parsed, err := lockd.ParseSequencer(q.String())
		if parsed != q || (err == nil) == zero { // the zero one has a text, but not to be parsed
			t.Fatalf("parse %q: got %+v, %v, want %+v", q, parsed, err, q)
		}
		data, err := json.Marshal(map[string]lockd.Sequencer{"q": q})
		if err != nil {
			t.Fatal(err)
		}
		read := map[string]lockd.Sequencer{}
		if err := json.Unmarshal(data, &read); (err == nil) == zero || read["q"] != q {
			t.Fatalf("unmarshal %s: got %+v, %v", data, read, err)
		}
		for _, r := range q.String() {
			if r <= ' ' || r > '~' {
				t.Fatalf("the text %q cannot travel in a header", q)
			}
		}
		next := sequencers().Draw(t, "another")
		if (q == next) != (q.String() == next.String()) {
			t.Fatalf("one text for %+v and %+v", q, next)
		}
	})
}

// Ensure that the text form is the one that is documented.
func TestSequencer_Text(t *testing.T) {
	id, err := lockd.ParseSessionID("0f8fad5b-d9cb-469f-a165-70867728950e")
	if err != nil {
		t.Fatal(err)
	}
	q := lockd.Sequencer{Key: "service/my sql:5%/ä", Session: id, LockIndex: 3, Fence: 71}
	const want = "71:3:exclusive:0f8fad5b-d9cb-469f-a165-70867728950e:service/my%20sql:5%25/%C3%A4"
	if got := q.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (lockd.Sequencer{}).String(); got != "" {
		t.Errorf("the zero value: got %q", got)
	}
}

// Ensure that a lost sequencer is an error where it is read, and is not taken for one that asks for
// nothing; a field that is left out is no text.
func TestSequencer_LostOneIsRefused(t *testing.T) {
	was := lockd.Sequencer{Key: "as it was"}
	var message struct{ Seq lockd.Sequencer }
	message.Seq = was
	for _, text := range []string{`{"Seq":""}`, `{"Seq":"0:0:exclusive::"}`} {
		err := json.Unmarshal([]byte(text), &message)
		if !errors.Is(err, lockd.ErrInvalid) || message.Seq != was {
			t.Errorf("%s: got %+v, %v", text, message, err)
		}
	}
	var optional struct {
		Seq lockd.Sequencer `json:",omitzero"`
	}
	text, err := json.Marshal(optional)
	if err == nil {
		err = json.Unmarshal(text, &optional)
	}
	if err != nil || string(text) != "{}" {
		t.Errorf("left out: got %s, %v", text, err)
	}
}

// Ensure that the text of a refusal does not have all of a long text, which may be anybody's.
func TestParseSequencer_LongTexts(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	for _, text := range []string{
		long, long + ":2:shared::k", "1:" + long + ":shared::k", "1:2:" + long + "::k",
		"1:2:shared:" + long + ":k", "01:2:shared::" + long,
	} {
		_, err := lockd.ParseSequencer(text)
		if !errors.Is(err, lockd.ErrInvalid) || len(err.Error()) > 400 {
			t.Errorf("%.20s: got %.500v", text, err)
		}
	}
}

// Ensure that a text that is no sequencer is refused with what is wrong with it.
func TestParseSequencer_Invalid(t *testing.T) {
	const id = "0f8fad5b-d9cb-469f-a165-70867728950e"
	for _, tt := range []struct{ text, want string }{
		{"x", "fence:lockindex:mode:session:key"},
		{"1:2:exclusive:" + id, "fence:lockindex:mode:session:key"},
		{"1:2:" + id + ":k", "fence:lockindex:mode:session:key"},
		{"1:2:" + id + ":k:k", "mode"},
		{"x:2:exclusive:" + id + ":k", "fence"},
		{"-1:2:exclusive:" + id + ":k", "fence"},
		{"18446744073709551616:2:exclusive:" + id + ":k", "fence"},
		{":2:exclusive:" + id + ":k", "fence"},
		{"1:x:exclusive:" + id + ":k", "lock index"},
		{"1:-2:exclusive:" + id + ":k", "lock index"},
		{"1:2:shared:session:k", "session"},
		{"1:2:shared:00000000-0000-0000-0000-000000000000:k", "session"},
		{"1:2:shared:{" + id + "}:k", "session"},
		{"1:2:shared:urn:uuid:" + id, "session"},
		{"1:2:exclusive:" + id + ":%zz", "key"},
		{"1:2:exclusive:" + id + ":%", "key"},
		{"1:2:exclusive:" + id + ":a%2Fb", "not in the form"},
		{"1:2:exclusive:" + id + ":a b", "not in the form"},
		{"1:2:exclusive:" + id + ":%61", "not in the form"},
		{"1:2:exclusive:" + strings.ToUpper(id) + ":k", "not in the form"},
		{"+1:2:exclusive:" + id + ":k", "fence"},
		{"01:2:exclusive:" + id + ":k", "not in the form"},
		{"1:02:exclusive:" + id + ":k", "not in the form"},
		{"", "fence:lockindex:mode:session:key"},
		{"0:0:exclusive::", "not in the form"},
	} {
		got, err := lockd.ParseSequencer(tt.text)
		if !errors.Is(err, lockd.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %s", tt.text, err, tt.want)
		}
		if got != (lockd.Sequencer{}) {
			t.Errorf("%q: got %+v with the error", tt.text, got)
		}
		was := lockd.Sequencer{Key: "as it was"}
		q := was
		if err := q.UnmarshalText([]byte(tt.text)); err == nil || q != was {
			t.Errorf("unmarshal %q: got %+v, %v", tt.text, q, err)
		}
	}
}

// FuzzSequencer looks for a text that is accepted and is not the text of the result, and for a text
// that is refused with another error than ErrInvalid.
func FuzzSequencer(f *testing.F) {
	f.Add("")
	f.Add("71:3:exclusive:0f8fad5b-d9cb-469f-a165-70867728950e:service/my%20sql")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := lockd.ParseSequencer(text)
		switch {
		case err != nil && !errors.Is(err, lockd.ErrInvalid):
			t.Errorf("%q: got %v", text, err)
		case err != nil && q != lockd.Sequencer{}:
			t.Errorf("%q: got %+v with an error", text, q)
		case err == nil && q.String() != text:
			t.Errorf("%q: got %+v, whose text is %q", text, q, q)
		}
	})
}

// Ensure that no lock is said to be held in a database that was closed, though the file keeps it.
func TestCheckSequencer_AfterClose(t *testing.T) {
	each(t, func(h *harness) {
		l := h.lock(h.session(&lockd.SessionOptions{Lifetime: lockd.Independent}), "k")
		h.must(h.Close())
		if err := h.CheckSequencer(l.Sequencer()); !errors.Is(err, lockd.ErrClosed) {
			t.Fatalf("got %v, want ErrClosed", err)
		}
	})
}
