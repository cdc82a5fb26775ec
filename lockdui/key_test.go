package lockdui_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that the history of a key has a lane for each session, with holds, delays and waits, and
// the cause of each end.
func TestKey_History(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.shows("/key?k=k", "held by no session", "waiting, in order no session",
			"does not exist", "No change of its lock is kept")
		first := h.holds("first", "k")
		h.Advance(20 * time.Second)
		h.must(first.Close())
		second := h.holds("second", "k")
		h.Advance(10 * time.Second)
		h.must(h.EndSession(second.ID()))
		h.Advance(lockd.DefaultLockDelay)
		h.holds("third", "k")
		h.Advance(10 * time.Second)
		h.waits(h.session("fourth"), "k")
		h.Advance(5 * time.Second)
		r := h.shows("/key?k=k",
			"held by", "third local exclusive since 00:00:45, for 15 s fence",
			"waiting, in order", "fourth local 5 s", "the key", "0 bytes", "lock index 3",
			"History", "now 00:01:00", "first", "held it for 20 s",
			"00:00:20.000 released: closed by its owner", "closed by its owner",
			"second", "held it for 10 s", "lock-delay of 15 s",
			"00:00:30.000 lost: session destroyed", "session destroyed", "third",
			"holds it since 00:00:45",
			"fourth", "waits since 00:00:55",
			"00:00:45", "granted", "third", "00:00:30", "lost", "second", "session destroyed",
			"00:00:20", "granted", "second", "released", "first", "closed by its owner")
		// 714 units are 60 s, and begin at 170.
		for _, bar := range []string{
			`class="hold" x="170" y="38" width="238"`,  // 0 to 20 s
			`class="hold" x="408" y="72" width="119"`,  // 20 to 30 s
			`class="delay" x="527" y="72" width="178.`, // 30 to 45 s
			`class="hold" x="705.5" y="106" width="178.5`,
			`class="wait" x="824.5" y="140" width="59.5`,
		} {
			if !strings.Contains(r.body, bar) {
				t.Errorf("no bar %s in %s", bar, r.body)
			}
		}
		h.must(h.ForceUnlock("k", lockOf(h, "k").Fence, "it\x1bhangs"))
		h.shows("/key?k=k", "lock-delay", "15 s left", "00:01:00", "lost", "third", `it\x1bhangs`)
	})
}

func lockOf(h *harness, key string) lockd.LockInfo {
	for l := range h.Locks() {
		if l.Key == key {
			return l
		}
	}
	h.t.Fatalf("no lock of %q", key)
	panic("unreachable")
}

// Ensure that a long history is shown from its end, and that it is said what is left out.
func TestKey_LongHistory(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for range 50 {
			s := h.holds("s", "k")
			h.Advance(time.Second)
			h.must(s.Close())
		}
		h.shows("/key?k=k", "10 earlier sessions are left out", "40 earlier ones are not shown.")
	})
}
