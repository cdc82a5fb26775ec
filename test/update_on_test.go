//go:build invariants

// Builds that check themselves see a call that waits for itself.

package lockd_test

import (
	"testing"

	"github.com/lockd/lockd"
)

// Ensure that a call of the database by the function of an Update panics in words instead of
// waiting for itself, leaves nothing, and that others may call meanwhile.
func TestUpdate_CallsTheDatabase(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		l := h.lock(s, "held")
		k, err := h.NewKeeper(nil)
		h.must(err)
		for name, do := range map[string]func(){
			"Put":            func() { h.put("k", "v", 0) },
			"Update":         func() { _ = h.Update(func(*lockd.Txn) error { return nil }) },
			"NewSession":     func() { h.session(nil) },
			"Session.Close":  func() { _ = s.Close() },
			"TryLock":        func() { _, _ = s.TryLock("k", nil) },
			"Lock":           func() { _, _ = s.Lock(h.t.Context(), "k", nil) },
			"Unlock":         func() { _ = l.Unlock() },
			"Acquire":        func() { _, _ = s.Acquire(h.t.Context(), "slots", 1) },
			"KeepAlive":      func() { _ = s.KeepAlive(h.t.Context()) },
			"Keeper.Session": func() { _, _ = k.Session(h.t.Context()) },
			"Snapshot":       func() { h.Snapshot() },
			"Close":          func() { _ = h.Close() },
		} {
			var other *call
			panics(h, name, func() {
				_ = h.Update(func(tx *lockd.Txn) error {
					other = start(func() error { return second(h.DB.Put("other", nil, nil)) })
					h.must(second(tx.Put("k", []byte("w"), nil)))
					do()
					return nil
				})
			})
			h.must(other.wait())
			if _, ok := h.Get("k"); ok || l.Err() != nil || s.Err() != nil {
				h.t.Fatalf("%s: something is left", name)
			}
		}
		h.put("k", "v", 0)
	})
}
