package consulapi_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

var shared = &lockd.LockOptions{Mode: lockd.Shared}

// Ensure that a shared key shows no session and no fence, that an acquire is refused like one of a
// delayed key and tells the number of holders, and that a release by a holder is refused like one
// by a session that does not hold the lock.
func TestModes_R10_WhatConsulShows(t *testing.T) {
	run(t, nil, func(h *harness) {
		a, b := h.session(&lockd.SessionOptions{Name: "a"}), h.session(nil)
		one, err := a.TryLock("k", shared)
		h.must(err)
		two, err := b.TryLock("k", shared)
		h.must(err)
		h.advance(2 * time.Second)
		before := h.entry("k")
		if got := h.send("GET /v1/kv/k", ""); before.Session != "" || before.LockIndex != 1 ||
			got.header.Get("X-Lockd-Fence") != "" {
			t.Errorf("shown: %+v, %v", before, got.header)
		}
		for _, s := range []*lockd.Session{a, h.session(nil)} {
			r := h.want("PUT /v1/kv/k?acquire="+s.ID().String(), "v", 200, "false")
			why := r.header.Get("X-Lockd-Refusal")
			if !strings.HasPrefix(why, `shared by 2 holders, for longest by "a" (session `+
				a.ID().String()+")") || !strings.HasSuffix(why, " for 2s") {
				t.Errorf("refused: %q", why)
			}
		}
		for _, s := range []*lockd.Session{a, b} {
			h.want("PUT /v1/kv/k?release="+s.ID().String(), "v", 200, "false")
		}
		r := h.send("PUT /v1/txn", `[{"KV":{"Verb":"unlock","Key":"k","Session":"`+
			a.ID().String()+`"}},{"KV":{"Verb":"lock","Key":"k","Session":"`+
			b.ID().String()+`"}}]`)
		if r.code != 409 || !strings.Contains(r.body, "lock isn't held") ||
			!strings.Contains(r.body, "lock is already held") {
			t.Errorf("transaction: %d %s", r.code, r.body)
		}
		if e := h.entry("k"); e.ModifyIndex != before.ModifyIndex || one.Err() != nil {
			t.Errorf("after refusals: %+v, %v", e, one.Err())
		}
		h.must(one.Unlock())
		h.must(two.Unlock())
		h.want("PUT /v1/kv/k?acquire="+b.ID().String(), "v", 200, "true")
		if e := h.entry("k"); e.Session != b.ID().String() || e.LockIndex != 2 {
			t.Errorf("acquired: %+v", e)
		}
	})
}

// Ensure that the parameter takes a share and gives it back, with a fence that proves it, and that
// the key keeps its value and flags unless a request sends others.
func TestModes_R10_Parameter(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/kv/k?flags=7", "v", 200, "true")
		a, b := h.session(nil), h.session(nil)
		share := func(s *lockd.Session) lockd.Sequencer {
			t.Helper()
			r := h.want("PUT /v1/kv/k?lockd-mode=shared&acquire="+s.ID().String(), "", 200, "true")
			fence, err := strconv.ParseUint(r.header.Get("X-Lockd-Fence"), 10, 64)
			h.must(err)
			return lockd.Sequencer{
				Key: "k", Session: s.ID(), LockIndex: 1, Fence: fence, Mode: lockd.Shared,
			}
		}
		first, second := share(a), share(b)
		for _, q := range []lockd.Sequencer{first, second} {
			h.must(h.db.CheckSequencer(q))
		}
		for s, want := range map[*lockd.Session]lockd.Sequencer{a: first, b: second} {
			if again := share(s); again != want {
				t.Errorf("acquired again: %v, not %v", again, want)
			}
		}
		if e := h.entry("k"); string(e.Value) != "v" || e.Flags != 7 || e.Session != "" {
			t.Errorf("shared: %+v", e)
		}
		const release = "PUT /v1/kv/k?lockd-mode=shared&release="
		h.want(release+a.ID().String(), "", 200, "true")
		h.want(release+a.ID().String(), "", 200, "false")
		if e := h.entry("k"); string(e.Value) != "v" || e.Flags != 7 {
			t.Errorf("released: %+v", e)
		}
		h.want(release+b.ID().String()+"&flags=8", "w", 200, "true")
		if e := h.entry("k"); string(e.Value) != "w" || e.Flags != 8 {
			t.Errorf("released with a value: %+v", e)
		}
		h.want("PUT /v1/kv/k?lockd-mode=shared&flags=9&acquire="+a.ID().String(), "", 200, "true")
		if e := h.entry("k"); e.Value != nil || e.Flags != 9 {
			t.Errorf("acquired with flags: %+v", e)
		}
		h.want("PUT /v1/kv/k?lockd-mode=shared&acquire="+a.ID().String(), "x", 200, "true")
		if e := h.entry("k"); string(e.Value) != "x" || e.Flags != 0 {
			t.Errorf("acquired with a value: %+v", e)
		}
	})
}

// Ensure that each mode is refused while a session has the other mode, even the same session, and
// that an unknown mode is refused.
func TestModes_R10_OtherMode(t *testing.T) {
	run(t, nil, func(h *harness) {
		id := h.session(&lockd.SessionOptions{Name: "it"}).ID().String()
		h.want("PUT /v1/kv/k?lockd-mode=exclusive&acquire="+id, "", 200, "true")
		r := h.want("PUT /v1/kv/k?lockd-mode=shared&acquire="+id, "", 200, "false")
		if why := r.header.Get("X-Lockd-Refusal"); !strings.HasPrefix(why, `held by "it"`) {
			t.Errorf("refused: %q", why)
		}
		h.want("PUT /v1/kv/k?lockd-mode=shared&release="+id, "", 200, "false")
		for _, mode := range []string{"", "Shared", "read"} {
			for _, what := range []string{"acquire", "release"} {
				h.want("PUT /v1/kv/k?lockd-mode="+mode+"&"+what+"="+id, "", 400,
					`Bad request: lockd-mode is "`+mode+`", neither "exclusive" nor "shared"`)
			}
		}
		if e := h.entry("k"); e.Session != id {
			t.Errorf("left: %+v", e)
		}
		h.want("PUT /v1/kv/free?lockd-mode=shared&acquire=nope", "", 500,
			`raft apply failed: invalid session "nope"`)
		h.want("PUT /v1/kv/free?lockd-mode=shared&release=", "", 500,
			"raft apply failed: missing session")
	})
}

// Ensure that lockd's own listing shows each holder and each mode.
func TestModes_R10L1_Locks(t *testing.T) {
	run(t, nil, func(h *harness) {
		a := h.session(&lockd.SessionOptions{Name: "a", LockDelay: 20 * time.Second})
		b := h.session(&lockd.SessionOptions{Name: "b"})
		began := h.clock.Now()
		one, err := a.TryLock("k", shared)
		h.must(err)
		h.advance(2 * time.Second)
		two, err := b.TryLock("k", shared)
		h.must(err)
		ended := make(chan error)
		go func() {
			_, err := b.Lock(h.t.Context(), "k", nil)
			ended <- err
		}()
		h.advance(time.Second)
		locks := decode[[]shownLock](h, h.send("GET /v1/lockd/locks", ""))
		if len(locks) != 1 || len(locks[0].Holders) != 2 || len(locks[0].Queue) != 1 {
			t.Fatalf("%+v", locks)
		}
		l := locks[0]
		if l.Mode != "shared" || l.Name != "a" || l.LockIndex != 1 ||
			l.ModifyIndex != h.entry("k").ModifyIndex || l.Held != 3*time.Second ||
			l.Fence != one.Sequencer().Fence || l.Queue[0].Mode != "exclusive" {
			t.Errorf("%+v", l)
		}
		for i, want := range []shownHolder{
			{shownParty{a.ID().String(), "a", h.db.Node()}, one.Sequencer().Fence, began,
				3 * time.Second},
			{shownParty{b.ID().String(), "b", h.db.Node()}, two.Sequencer().Fence,
				began.Add(2 * time.Second), time.Second},
		} {
			got := l.Holders[i]
			if !got.Since.Equal(want.Since) {
				t.Errorf("holder %d: since %v, not %v", i, got.Since, want.Since)
			}
			if got.Since = want.Since; got != want {
				t.Errorf("holder %d: %+v, not %+v", i, got, want)
			}
		}
		h.must(h.db.EndSession(a.ID()))
		h.must(two.Unlock())
		l = decode[[]shownLock](h, h.send("GET /v1/lockd/locks", ""))[0]
		if l.Mode != "" || l.Holders != nil || l.DelayedUntil == nil || l.DelayedMode != "shared" {
			t.Errorf("delayed: %+v", l)
		}
		h.must(b.Close())
		<-ended
	})
}
