package lockd_test

import (
	"errors"
	"testing"

	"github.com/lockd/lockd"
)

// Ensure that a closed database goes on reading, and refuses everything else.
func TestDB_Close(t *testing.T) {
	each(t, func(h *harness) {
		if _, err := h.Put("k", []byte("v"), nil); err != nil {
			t.Fatal(err)
		}
		h.must(h.Close())
		if e := h.entry("k"); string(e.Value) != "v" {
			t.Fatalf("value: got %q", e.Value)
		}
		if _, err := h.Put("k", nil, nil); !errors.Is(err, lockd.ErrClosed) {
			t.Fatalf("put after close: got %v", err)
		}
	})
}

// Ensure that nothing is kept of locks that were released.
func TestDB_ReleasedLocksLeaveNothing(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		for _, key := range []string{"a", "b", "c"} {
			h.must(h.lock(s, key).Unlock())
		}
		if n := h.States(); n != 0 {
			t.Fatalf("states: got %d, want 0", n)
		}
	})
}
