package lockdui_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that the history has a lock-delay as it was set, although the clock was set back since the
// database was opened.
func TestKey_DelayAfterTheClockWasSetBack(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("s", "k")
		h.Mock.Set(h.Now().Add(-time.Hour))
		h.must(h.ForceUnlock("k", lockOf(h, "k").Fence, ""))
		h.shows("/key?k=k", "then a lock-delay of 15 s")
	})
}

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
		h.hides("/key?k=k", "waited", "after a wait")
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
		h.shows("/key?k=k", "lock-delay", "15 s left", "00:01:00", "lost", "third",
			`it\x1bhangs`, "then a lock-delay of 15 s")
	})
}

// Ensure that the lane of a session shows its wait before its hold, in its true length, and that
// the table has the wait too: for one key, for several at once, and for a shared lock.
func TestKey_Waits(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		first := h.holds("first", "k")
		h.Advance(10 * time.Second)
		second := h.session("second")
		h.waits(second, "k")
		both := h.session("both")
		go both.LockAll(h.t.Context(), []string{"k", "other"}, nil)
		h.WaitForWaiters("k", 2)
		h.Advance(7 * time.Second)
		h.must(first.Close())
		h.Advance(23 * time.Second)
		h.must(second.Close())
		h.Advance(20 * time.Second)
		r := h.shows("/key?k=k", "both", "waited for 30 s", "holds it since 00:00:40",
			"waited until it was granted",
			"00:00:40", "granted after a wait of 30 s both", "released second",
			"00:00:17", "granted after a wait of 7 s second", "released first", "granted first")
		// 714 units are 60 s, and begin at 170.
		inOrder(t, "the lanes", r.body,
			`class="hold" x="170" y="38" width="202.2`, // 0 to 17 s
			`class="waited" x="289" y="72" width="83.2`, `<title>waited for 7 s</title>`,
			`class="hold" x="372.2`, `y="72" width="273.7`, // 17 to 40 s
			`class="waited" x="289" y="106" width="357"`, `<title>waited for 30 s</title>`,
			`class="hold" x="646" y="106" width="238"`)
		r = h.shows("/key?k=other", "both", "waited for 30 s")
		// 714 units are 50 s here: the wait began before the first event that is kept of the key.
		inOrder(t, "the lane", r.body,
			`class="waited" x="170" y="38" width="428.4`, `class="hold" x="598.4`)
		h.waits(h.session("late"), "other")
		h.Advance(50 * time.Second)
		h.must(both.Close())
		h.Advance(14_180 * time.Second)
		r = h.shows("/key?k=other", "granted after a wait of 50 s late",
			"granted after a wait of 30 s both")
		// 20 s are one unit now. A wait too short to be seen has three, before the grant.
		inOrder(t, "the lanes", r.body,
			`class="waited" x="168.5" y="38" width="3"`, `class="hold" x="171.5" y="38"`,
			`class="waited" x="172" y="72" width="3"`, `class="hold" x="175" y="72"`)
	})
}

// Ensure that each session that shares a lock has a lane with its wait.
func TestKey_WaitsOfSharers(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		writer := h.holds("writer", "k")
		for _, name := range []string{"ann", "ben"} {
			h.Advance(5 * time.Second)
			go h.session(name).Lock(h.t.Context(), "k", sharing)
			synctest.Wait()
		}
		h.Advance(5 * time.Second)
		h.must(writer.Close())
		h.Advance(5 * time.Second)
		r := h.shows("/key?k=k", "granted shared after a wait of 5 s ben",
			"granted shared after a wait of 10 s ann", "released writer")
		inOrder(t, "the lanes", r.body, `class="hold"`,
			`class="waited" x="348.5" y="72" width="357"`, `class="share" x="705.5" y="72"`,
			`class="waited" x="527" y="106" width="178.5"`, `class="share" x="705.5" y="106"`)
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

// Ensure that a long history is shown from its end, and that the page says what is left out.
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

// Ensure that the wait for a slot is in the history of the slot's own key.
func TestKey_WaitForASlot(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		slot, err := h.session("one").TryAcquire("pool", 1)
		h.must(err)
		two := h.session("two")
		go two.Acquire(h.t.Context(), "pool", 1)
		h.WaitForWaiters("pool/.lock", 1)
		h.Advance(3 * time.Second)
		h.must(slot.Release())
		h.Advance(3 * time.Second)
		h.shows("/key?k=pool%2F"+two.ID().String(), "two", "waited for 3 s",
			"holds it since 00:00:03", "granted after a wait of 3 s two")
	})
}
