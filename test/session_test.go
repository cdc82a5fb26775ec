package lockd_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/store"
)

// Ensure that a session is what its options say, and the defaults where they say nothing; and
// that a session of the file is so after a restart too.
func TestNewSession_S1S4(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		plain := h.session(nil)
		describes(h, plain.Info(), lockd.SessionInfo{
			ID: plain.ID(), Node: "local", LockDelay: 15 * time.Second,
			CreateIndex: h.Snapshot().Index(),
		})
		full := h.session(&lockd.SessionOptions{
			Name: "worker", TTL: 10 * time.Second, Grace: 2 * time.Second,
			LockDelay: 3 * time.Second, Behavior: lockd.DeleteKeys,
			Lifetime: lockd.Independent, Node: "db1", Checks: []string{"disk", "ping"},
			Meta: map[string]string{"host": "alpha", "": ""},
		})
		want := lockd.SessionInfo{
			ID: full.ID(), Name: "worker", Node: "db1", TTL: 10 * time.Second,
			Grace: 2 * time.Second, LockDelay: 3 * time.Second, Behavior: lockd.DeleteKeys,
			Lifetime: lockd.Independent, Checks: []string{"disk", "ping"},
			Meta:        map[string]string{"host": "alpha", "": ""},
			CreateIndex: h.Snapshot().Index(),
		}
		describes(h, full.Info(), want)
		info, ok := h.Snapshot().Session(full.ID())
		describes(h, info, want)
		if !ok {
			h.t.Errorf("the session is not there")
		}
		if h.path == "" {
			return
		}
		h.reopen()
		again, err := h.DB.Session(full.ID())
		h.must(err)
		describes(h, again.Info(), want)
	})
}

func describes(h *harness, got, want lockd.SessionInfo) {
	h.t.Helper()
	if len(got.Checks) == 0 {
		got.Checks = nil
	}
	if !reflect.DeepEqual(got, want) {
		h.t.Errorf("session: got %+v, want %+v", got, want)
	}
}

// Ensure that IDs are random UUIDs in lower case, and that sessions are listed in their order.
func TestNewSession_S2(t *testing.T) {
	each(t, func(h *harness) {
		var made []string
		for range 50 {
			made = append(made, h.session(nil).ID().String())
		}
		for _, text := range made {
			id, err := uuid.Parse(text)
			if err != nil || id.Version() != 4 || text != strings.ToLower(text) || len(text) != 36 {
				h.t.Errorf("ID %q: %v, version %d", text, err, id.Version())
			}
		}
		var listed []string
		for info := range h.Snapshot().Sessions() {
			listed = append(listed, info.ID.String())
		}
		slices.Sort(made)
		if !slices.Equal(listed, slices.Compact(made)) || len(listed) != 50 {
			h.t.Errorf("listed: got %v, want %v", listed, made)
		}
	})
}

// Ensure that neither renewals nor locks move a session: no index, no watcher, no write.
func TestSession_S3(t *testing.T) {
	each(t, func(h *harness) {
		commits := 0
		if h.path != "" {
			h.hook(store.Hooks{BeforeCommit: func() error { commits++; return nil }})
		}
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		one, all := lockd.SessionScope(s.ID()), lockd.SessionsScope()
		before, index := commits, h.Snapshot().Index()
		wokenOne := h.changed(h.t.Context(), one, h.Snapshot().IndexOf(one))
		wokenAll := h.changed(h.t.Context(), all, h.Snapshot().IndexOf(all))
		for range 100 {
			h.advance(9 * time.Second)
			h.must(s.Renew())
		}
		if h.Snapshot().Index() != index || commits != before {
			h.t.Errorf("renewals: index %d to %d, %d commits", index, h.Snapshot().Index(),
				commits-before)
		}
		h.must(h.lock(s, "k").Unlock())
		if got := h.Snapshot().IndexOf(one); got != s.Info().CreateIndex {
			h.t.Errorf("index of the session: got %d, want %d", got, s.Info().CreateIndex)
		}
		h.settle()
		if closed(wokenOne) || closed(wokenAll) {
			h.t.Errorf("woken: one %v, all %v", closed(wokenOne), closed(wokenAll))
		}
	})
}

// Ensure that a session is bound to the checks that it names, and to no other.
func TestNewSession_S7(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		bound := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		unbound := h.session(&lockd.SessionOptions{Node: "db1"})
		sick := func(id string) {
			h.must(h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{
					Node: "db1", Name: id, Status: catalog.Critical,
				})
			}))
		}
		sick("ping")
		sick("unheard of")
		if bound.Err() != nil || unbound.Err() != nil {
			h.t.Errorf("ended by a check that is not theirs: %v, %v", bound.Err(), unbound.Err())
		}
		sick("disk")
		if !errors.Is(bound.Err(), catalog.ErrCheckCritical) || unbound.Err() != nil {
			h.t.Errorf("after disk: got %v, %v", bound.Err(), unbound.Err())
		}
	})
}

// badSessions are bad options, and what the error says of each: the field, and what is wrong.
var badSessions = []struct {
	rule, name string
	opts       lockd.SessionOptions
	err        error
	text       string
}{
	{"S11", "behavior", lockd.SessionOptions{Behavior: 2}, lockd.ErrInvalid,
		"SessionOptions.Behavior is 2"},
	{"S28", "lifetime", lockd.SessionOptions{Lifetime: 2}, lockd.ErrInvalid,
		"SessionOptions.Lifetime is 2"},
	{"S13", "TTL below 0", lockd.SessionOptions{TTL: -1}, lockd.ErrInvalid,
		"SessionOptions.TTL is -1ns, below 0"},
	{"S13", "TTL without its unit", lockd.SessionOptions{TTL: 10}, lockd.ErrInvalid,
		"SessionOptions.TTL is 10ns, below 1ms; was a unit forgotten, as in 10 * time.Second?"},
	{"S13", "TTL just too short", lockd.SessionOptions{TTL: lockd.MinTTL - 1}, lockd.ErrInvalid,
		"SessionOptions.TTL is 999.999µs, below 1ms"},
	{"S13", "grace below 0", lockd.SessionOptions{TTL: time.Second, Grace: -1}, lockd.ErrInvalid,
		"SessionOptions.Grace is -1ns, below 0"},
	{"S13", "grace without TTL", lockd.SessionOptions{Grace: 1}, lockd.ErrInvalid,
		"SessionOptions.Grace is 1ns, but there is no TTL"},
	{"S13", "both too long", lockd.SessionOptions{TTL: 1 << 62, Grace: 1 << 62}, lockd.ErrInvalid,
		"SessionOptions.TTL and Grace"},
	{"S16", "unknown node", lockd.SessionOptions{Node: "db2"}, catalog.ErrNoNode, `"db2"`},
	{"S16", "name of a node", lockd.SessionOptions{Node: strings.Repeat("n", lockd.MaxKeySize+1)},
		lockd.ErrInvalid, "SessionOptions.Node has 16385 bytes, more than 16384"},
	{"S17", "unknown check", lockd.SessionOptions{Node: "db1", Checks: []string{"disk", "fan"}},
		catalog.ErrNoCheck, `"fan"`},
	{"S17", "check of another node", lockd.SessionOptions{Checks: []string{"disk"}},
		catalog.ErrNoCheck, `"disk"`},
	{"S18", "critical check", lockd.SessionOptions{Node: "db1", Checks: []string{"ping", "sick"}},
		catalog.ErrCheckCritical, `"sick"`},
	{"S20", "name", lockd.SessionOptions{Name: strings.Repeat("n", lockd.MaxKeySize+1)},
		lockd.ErrInvalid, "SessionOptions.Name has 16385 bytes, more than 16384"},
	{"S22", "lock-delay over a minute", lockd.SessionOptions{LockDelay: time.Minute + 1},
		lockd.ErrInvalid, "SessionOptions.LockDelay is 1m0.000000001s, more than 1m0s"},
	{"S22", "lock-delay below 0", lockd.SessionOptions{LockDelay: -2}, lockd.ErrInvalid,
		"SessionOptions.LockDelay is -2ns, below 0"},
}

// Ensure that bad options are refused with an error that names the field and the rule, and that
// nothing changes.
func TestNewSession_S11S13S16S17S18S20S22_Refused(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.must(h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "sick"})
		}))
		index := h.Snapshot().Index()
		for _, bad := range badSessions {
			s, err := h.NewSession(&bad.opts)
			if s != nil || !errors.Is(err, bad.err) {
				h.t.Errorf("%s, %s: got %v, %v", bad.rule, bad.name, s, err)
				continue
			}
			if !strings.Contains(err.Error(), bad.text) {
				h.t.Errorf("%s, %s: %q is not in %q", bad.rule, bad.name, bad.text, err)
			}
		}
		h.settle()
		for info := range h.Snapshot().Sessions() {
			h.t.Errorf("a session was made: %+v", info)
		}
		if h.Snapshot().Index() != index {
			h.t.Errorf("index: was %d, is %d", index, h.Snapshot().Index())
		}
	})
}

// Ensure that options at the edge of a rule are accepted.
func TestNewSession_S11S13S16S17S18S20S22_Accepted(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.must(h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: "db1", Name: "weak", Status: catalog.Warning,
			})
		}))
		long := strings.Repeat("n", lockd.MaxKeySize)
		for _, test := range []struct {
			rule  string
			opts  lockd.SessionOptions
			delay time.Duration
		}{
			{"S11", lockd.SessionOptions{Behavior: lockd.DeleteKeys}, 15 * time.Second},
			{"S13", lockd.SessionOptions{TTL: lockd.MinTTL}, 15 * time.Second},
			{"S13", lockd.SessionOptions{TTL: 1<<63 - 1}, 15 * time.Second},
			{"S16", lockd.SessionOptions{Node: "DB1"}, 15 * time.Second},
			{"S17", lockd.SessionOptions{Node: "db1", Checks: []string{"DISK"}}, 15 * time.Second},
			{"S18", lockd.SessionOptions{Node: "db1", Checks: []string{"weak"}}, 15 * time.Second},
			{"S20", lockd.SessionOptions{Name: long}, 15 * time.Second},
			{"S20", lockd.SessionOptions{Name: long}, 15 * time.Second}, // not unique
			{"S22", lockd.SessionOptions{LockDelay: time.Minute}, time.Minute},
			{"S22", lockd.SessionOptions{LockDelay: time.Millisecond}, lockd.MinTTL},
			{"S22", lockd.SessionOptions{LockDelay: lockd.NoLockDelay}, 0},
		} {
			s, err := h.NewSession(&test.opts)
			if err != nil {
				h.t.Errorf("%s, %.60q: %v", test.rule, test.opts.Name, err)
				continue
			}
			if s.Info().LockDelay != test.delay || s.Info().Name != test.opts.Name {
				h.t.Errorf("%s: got %+v", test.rule, s.Info())
			}
		}
	})
}

// Ensure that the options are read once: later changes to them do nothing.
func TestNewSession_ClonesItsOptions(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		checks := []string{"disk"}
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: checks})
		checks[0] = "ping"
		if got := s.Info().Checks; !slices.Equal(got, []string{"disk"}) {
			h.t.Errorf("checks: got %v", got)
		}
	})
}

// Ensure that there is one handle for a session, found under its ID in any case, and none when it
// does not live.
func TestDB_S36S37S39_Session(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		id, err := lockd.ParseSessionID(strings.ToUpper(s.ID().String()))
		h.must(err)
		found, err := h.DB.Session(id)
		if found != s || err != nil {
			h.t.Errorf("handle: got %p, %v, want %p", found, err, s)
		}
		unknown := lockd.SessionID{1}
		if _, ok := h.Snapshot().Session(unknown); ok {
			h.t.Errorf("an unknown session is listed")
		}
		found, err = h.DB.Session(unknown)
		if found != nil || !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("unknown: got %v, %v", found, err)
		}
		found, err = h.DB.Session(lockd.SessionID{})
		if found != nil || !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("zero: got %v, %v", found, err)
		}
		h.must(s.Close())
		h.checkDead(s)
	})
}

// Ensure that DB.SessionInfo shows a session once its creation is durable, until its end is, and
// waits neither for a commit nor for the function of an Update.
func TestDB_G3_SessionInfo(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		wants := func(when string, id lockd.SessionID, want bool) {
			h.t.Helper()
			if info, ok := h.SessionInfo(id); ok != want || ok && info.Name != "n" {
				h.t.Errorf("%s: got %+v, %v", when, info, ok)
			}
		}
		wants("unknown", lockd.SessionID{1}, false)
		wants("zero", lockd.SessionID{}, false)
		var s *lockd.Session
		held := c.held(func() (err error) {
			s, err = h.NewSession(&lockd.SessionOptions{Name: "n"})
			return err
		})
		for _, id := range h.NewestSessions() {
			wants("creation not durable", id, false)
		}
		c.release(nil)
		h.must(held.wait())
		u := h.updating()
		u.step(func(tx *lockd.Txn) error {
			err := tx.EndSession(s.ID())
			wants("inside", s.ID(), true)
			return err
		})
		wants("beside", s.ID(), true)
		u.fail()
		held = c.held(s.Close)
		wants("end not durable", s.ID(), true)
		c.release(nil)
		h.must(held.wait())
		wants("ended", s.ID(), false)
	})
}

// checkDead looks at a session that has ended: it locks, renews and finds nothing.
func (h *harness) checkDead(s *lockd.Session) {
	h.t.Helper()
	const key = "of a dead session"
	if _, ok := h.Snapshot().Session(s.ID()); ok {
		h.t.Errorf("it is listed")
	}
	for what, err := range map[string]error{
		"session": second(h.DB.Session(s.ID())),
		"end":     h.EndSession(s.ID()),
		"renew":   s.Renew(),
		"lock":    second(s.Lock(h.t.Context(), key, nil)),
		"trylock": second(s.TryLock(key, nil)),
		"lockall": second(s.LockAll(h.t.Context(), []string{key}, nil)),
		"keep":    s.KeepAlive(h.t.Context()),
		"txn": h.Update(func(tx *lockd.Txn) error {
			return second(tx.Lock(key, s.ID(), nil))
		}),
		"attach": h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().Attach(s.ID(), "a", nil)
		}),
	} {
		if !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("%s of a dead session: got %v", what, err)
		}
	}
	if _, ok := h.Get(key); ok {
		h.t.Errorf("a dead session made a key")
	}
}

// Ensure that ending a session that is unknown, or has ended, is an error (unlike in Consul).
func TestDB_S35_EndSession(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.must(h.EndSession(s.ID()))
		index := h.Snapshot().Index()
		for what, id := range map[string]lockd.SessionID{"ended": s.ID(), "unknown": {9}} {
			if err := h.EndSession(id); !errors.Is(err, lockd.ErrNoSession) {
				h.t.Errorf("%s: got %v", what, err)
			}
		}
		if err := h.EndSession(lockd.SessionID{}); !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("zero: got %v", err)
		}
		if h.Snapshot().Index() != index {
			h.t.Errorf("index: was %d, is %d", index, h.Snapshot().Index())
		}
	})
}

// Ensure that an ID that has ended stays dead after a restart too.
func TestSession_S36_StaysDead(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		h.must(s.Close())
		h.reopen()
		if found, err := h.DB.Session(s.ID()); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("got %v, %v", found, err)
		}
		if _, ok := h.Snapshot().Session(s.ID()); ok {
			h.t.Errorf("it is listed")
		}
	})
}

// Ensure that the scope of all sessions moves with beginnings and ends, the scope of one session
// with its own, and neither with anything else; and that watchers wake accordingly (S40).
func TestSession_S38S40_Scopes(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		type moved struct{ all, one, other bool }
		for _, step := range []struct {
			name string
			do   func() error
			want moved
		}{
			{"put", func() error { return second(h.Put("k", []byte("v"), nil)) }, moved{}},
			{"lock", func() error { return second(s.TryLock("k", nil)) }, moved{}},
			{"renew", s.Renew, moved{}},
			{"begin", func() error { return second(h.NewSession(nil)) }, moved{all: true}},
			{"end", s.Close, moved{all: true, one: true}},
			{"end of the other", other.Close, moved{all: true, other: true}},
		} {
			scopes := []lockd.Scope{
				lockd.SessionsScope(), lockd.SessionScope(s.ID()), lockd.SessionScope(other.ID()),
			}
			was, woken := make([]uint64, 3), make([]<-chan struct{}, 3)
			for i, scope := range scopes {
				was[i] = h.Snapshot().IndexOf(scope)
				woken[i] = h.changed(h.t.Context(), scope, was[i])
			}
			h.must(step.do())
			h.settle()
			index := h.Snapshot().Index()
			for i, want := range []bool{step.want.all, step.want.one, step.want.other} {
				is := h.Snapshot().IndexOf(scopes[i])
				if closed(woken[i]) != want {
					h.t.Errorf("%s, scope %d: woken %v", step.name, i, !want)
				}
				if want && is != index || !want && is != was[i] {
					h.t.Errorf("%s, scope %d: index was %d, is %d", step.name, i, was[i], is)
				}
			}
		}
	})
}

// Ensure that a session without a TTL that is not bound to its process lives until it is ended.
func TestSession_S15X22_NoTimeEndsIt(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		h.advance(1000 * 24 * time.Hour)
		h.must(s.Renew())
		if h.path != "" {
			h.reopen()
			h.advance(1000 * 24 * time.Hour)
			var err error
			s, err = h.DB.Session(s.ID())
			h.must(err)
		}
		if s.Err() != nil {
			h.t.Errorf("ended: %v", s.Err())
		}
		h.must(h.EndSession(s.ID()))
		if !errors.Is(s.Err(), lockd.ErrDestroyed) {
			h.t.Errorf("after EndSession: got %v", s.Err())
		}
	})
}
