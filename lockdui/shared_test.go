package lockdui_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

var sharing = &lockd.LockOptions{Mode: lockd.Shared}

// shares makes a session that shares the lock.
func (h *harness) shares(name, key string) (*lockd.Session, *lockd.Lock) {
	h.t.Helper()
	s := h.session(name)
	lock, err := s.TryLock(key, sharing)
	h.must(err)
	return s, lock
}

// Ensure that a shared lock is shown with each holder, its fence and since when, and that a waiter
// is shown with its mode, and with the sessions that it waits for.
func TestShared_WriterWaits(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		ann, first := h.shares("ann", "file")
		h.Advance(10 * time.Second)
		_, second := h.shares("ben", "file")
		h.Advance(20 * time.Second)
		writer := h.session("writer")
		h.waits(writer, "file")
		h.Advance(5 * time.Second)
		late := h.session("late")
		go late.Lock(h.t.Context(), "file", sharing)
		h.WaitForWaiters("file", 2)
		h.Advance(2 * time.Second)
		one, two := first.Sequencer().Fence, second.Sequencer().Fence

		h.shows("/", "Locks 0 + 2 shared", "Waits 2", "Longest wait", "file", "7 s", "shared by 2",
			fmt.Sprintf("ann local since 00:00:00, for 37 s fence %d", one),
			fmt.Sprintf("ben local since 00:00:10, for 27 s fence %d", two),
			"waiting, in order", "writer local exclusive for 7 s", "late local shared for 2 s",
			"Key Mode Held by", "file shared by 2 ann local ben local 37 s 27 s",
			fmt.Sprintf("%d %d writer local exclusive 7 s late local shared 2 s", one, two))
		h.shows("/key?k=file", "shared by 2", "ann local shared since 00:00:00", "ben local shared",
			"writer local exclusive 7 s", "late local shared 2 s")
		h.shows("/sessions", "writer", "file 7 s", "late", "file shared 2 s number 2",
			"ann", "file shared 37 s", "ben", "file shared 27 s")
		h.shows("/graph", "writer local file ann local 7 s", "writer local file ben local 7 s",
			"late local file writer local waits in front 2 s")
		h.hides("/graph", "late local file ann", "late local file ben")
		h.shows("/file", "locks held 0", "holders of shared locks 2")

		// A holder that asks once more waits behind the writer, which waits for that holder.
		go ann.Lock(h.t.Context(), "file", sharing)
		h.WaitForWaiters("file", 3)
		r := h.shows("/graph", "Some sessions wait for each other",
			"ann local file writer local waits in front")
		if got := strings.Count(r.body, `class="arrow hot"`); got != 2 {
			t.Errorf("%d arrows are in the circle", got)
		}
	})
}

// Ensure that the lanes of a key have its shares, two of one session as two, and that the delay
// after the loss of a share is shown as one for exclusive requests.
func TestShared_History(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		ann, lock := h.shares("ann", "file")
		again, err := ann.TryLock("file", sharing)
		h.must(err)
		h.Advance(20 * time.Second)
		h.must(again.Unlock())
		ben, _ := h.shares("ben", "file")
		h.Advance(20 * time.Second)
		h.must(h.EndSession(ben.ID()))
		h.Advance(10 * time.Second)
		h.waits(h.session("writer"), "file")
		h.Advance(10 * time.Second)
		fence := lock.Sequencer().Fence
		r := h.shows("/key?k=file", "shared by 1", "ann",
			"shared it for 20 s", fmt.Sprintf("shares it since 00:00:00, fence %d", fence),
			"ben", "shared it for 20 s", "lock-delay of 15 s for exclusive requests",
			"writer", "waits since 00:00:50", "shares",
			"00:00:40", "lost shared", "ben", "session destroyed",
			"00:00:20", "granted shared", "ben", "released shared", "ann", "lock released")
		// 714 units are 60 s, and begin at 170.
		for _, bar := range []string{
			`class="share" x="170" y="38" width="238"`, // 0 to 20 s
			`class="share" x="170" y="38" width="714"`, // 0 to 60 s
			`class="share" x="408" y="72" width="238"`, // 20 to 40 s
			`class="delay" x="646" y="72" width="178.`, // 40 to 55 s
		} {
			if !strings.Contains(r.body, bar) {
				t.Errorf("no bar %s in %s", bar, r.body)
			}
		}
		h.must(h.ForceUnlock("file", fence, ""))
		h.shows("/", "15 s left for exclusive requests only", "writer")
	})
}

// Ensure that a lock that is handed on is shown as an end and a beginning.
func TestShared_HandedOn(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		s := h.session("writer")
		lock, err := s.TryLock("file", nil)
		h.must(err)
		h.waits(h.session("next"), "file")
		h.must(lock.Unlock())
		h.shows("/key?k=file", "next local exclusive", "Why it ended",
			"granted next", "released writer", "lock released", "granted writer")
	})
}

// Ensure that many holders are shown in part, and that the page says how many more there are.
func TestShared_Crowd(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for i := range 250 {
			h.shares(fmt.Sprintf("r%03d", i), "file")
		}
		h.waits(h.session("writer"), "file")
		h.shows("/", "shared by 250", "r004", "and 245 more", "file shared by 250", "r002",
			"and 247 more")
		h.hides("/", "r005")
		h.shows("/key?k=file", "shared by 250", "r199", "and 50 more", "190 earlier ones")
		h.shows("/graph", "The 200 longest of 250.")
	})
}

// Ensure that the form takes away the grants of the fence that was chosen, and no other grant.
func TestShared_ForceUnlock(t *testing.T) {
	run(t, &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd}, nil, func(h *harness) {
		_, first := h.shares("ann", "file")
		_, second := h.shares("ben", "file")
		f := h.formOn("/key?k=file")
		if f.fields.Has("fence") {
			t.Error("no choice of the fence")
		}
		fence := fmt.Sprint(second.Sequencer().Fence)
		h.shows("/key?k=file", "Whose", "ann, fence", "ben, fence "+fence, "Reason")
		f.fields.Set("fence", fence)
		f.fields.Set("reason", "it hangs")
		if r := h.send("/force-unlock", f, "", ""); r.code != 303 {
			t.Fatalf("%d %s", r.code, r.words())
		}
		if !errors.Is(second.Err(), lockd.ErrForced) || first.Err() != nil {
			t.Errorf("%v, and the other %v", second.Err(), first.Err())
		}
	})
}

// Ensure that the page of waits takes memory for those who wait and those who hold, and not for
// each pair of them, and that it finds two of them that wait for each other.
func TestShared_Crowds(t *testing.T) {
	const crowd = 300
	run(t, nil, nil, func(h *harness) {
		var reader *lockd.Session
		for range crowd {
			reader, _ = h.shares("reader", "file")
		}
		writer := h.holds("writer", "other")
		for range crowd - 1 {
			go h.session("next").Lock(h.t.Context(), "file", nil)
		}
		h.waits(writer, "file")
		h.WaitForWaiters("file", crowd)
		h.shows("/graph", "none of them in a chain", "The 200 longest of 90 000.")
		h.waits(reader, "other")

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := h.shows("/graph", "Some sessions wait for each other", "longest of 90 001.")
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 48<<20 {
			t.Errorf("the page took %d bytes of memory", took)
		}
		if !strings.Contains(r.body, `class="arrow hot"`) {
			t.Error("no arrow is in the circle")
		}
	})
}
