package lockdui_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
	"github.com/lockd/lockd/lockdui"
)

// Ensure that sessions are shown with the locks that they hold and wait for, and ended sessions
// with the cause.
func TestSessions(t *testing.T) {
	run(t, nil, func(h *harness) {
		early := h.session("early")
		h.holds("from-before", "old")
		h.must(early.Close())
	}, func(h *harness) {
		h.Advance(time.Minute)
		worker, err := h.NewSession(&lockd.SessionOptions{
			Name: "worker", TTL: 90 * time.Second, Grace: 30 * time.Second,
			LockDelay: 2 * time.Second, Behavior: lockd.DeleteKeys,
			Meta: map[string]string{"host": "<h1>"},
		})
		h.must(err)
		_, err = worker.TryLock("mine", nil)
		h.must(err)
		h.waits(worker, "old")
		h.Advance(30 * time.Second)
		h.shows("/sessions",
			"worker", worker.ID().String()[:8], "1m30s + 30 s", "1 min 30 s left", "00:01:00 30 s",
			"delete, delay 2 s", "mine 30 s", "old 30 s",
			"from-before", "none", "00:00:00 1 min 30 s", "release, delay 15 s", "old 1 min 30 s",
			"Ended last", "early", "00:00:00 1 min 30 s ago", "closed by its owner")
		h.shows("/sessions?id="+worker.ID().String(), "Session", worker.ID().String(),
			"host", "<h1>", "bound to process")
		h.hides("/sessions?filter=work", "from-before", "early")
		h.Advance(90 * time.Second)
		r := h.shows("/sessions", "Ended last", "worker", "00:03:00 0 ms ago",
			"session expired: not renewed within its TTL", "early")
		if !strings.Contains(r.body, `class="hot">session expired`) {
			t.Error("the loss does not stand out")
		}
		h.shows("/sessions?id="+worker.ID().String(), "It does not live.", "session expired")
		if got := h.do(request("GET", "/sessions?id=x", nil)); got.code != 400 {
			t.Errorf("no ID: %d", got.code)
		}
	})
}

// Ensure that the page of a session that holds and awaits very many locks has some of them at a
// time, and each on one page.
func TestSessions_ManyLocks(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		const many = 1_000
		crowded, waits := h.session("crowded"), h.session("waits")
		var keys []string
		h.must(h.Update(func(tx *lockd.Txn) error {
			for i := range many {
				key := fmt.Sprintf("k/%04d", i)
				keys = append(keys, key)
				if _, err := tx.Lock(key, crowded.ID(), nil); err != nil {
					return err
				}
			}
			return nil
		}))
		next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
		var seen []string
		for target := "/sessions?id=" + crowded.ID().String(); target != ""; {
			r := h.shows(target, "crowded", "Locks that it holds", "of 1 000")
			for _, m := range regexp.MustCompile(`k%2F(\d+)"`).FindAllStringSubmatch(r.body, -1) {
				seen = append(seen, "k/"+m[1])
			}
			if len(r.body) > 128<<10 {
				t.Errorf("%s has %d bytes", target, len(r.body))
			}
			target = ""
			if m := next.FindStringSubmatch(r.body); m != nil {
				target = "/" + strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		if !slices.Equal(seen, keys) {
			t.Errorf("%d locks, not those %d that are held", len(seen), many)
		}
		go waits.LockAll(h.t.Context(), keys[:300], nil)
		synctest.Wait()
		h.shows("/sessions?id="+waits.ID().String(), "waits", "k/0199", "and 100 more")
		h.hides("/sessions?id="+waits.ID().String(), "Locks that it holds", "k/0200")
		h.shows("/sessions", "waits", "k/0000", "and 297 more", "crowded", "and 997 more")
	})
}

// Ensure that the rest of a TTL is a bar that runs out, and is whole again after a renewal, which a
// followed page shows with its next look.
func TestSessions_Deadline(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		s, err := h.NewSession(&lockd.SessionOptions{
			Name: "worker", TTL: 8 * time.Second, Grace: 2 * time.Second,
		})
		h.must(err)
		followed := h.follow("/sessions")
		has := func(page, left string) {
			t.Helper()
			bar := fmt.Sprintf(`<progress max="10000" value="%s" data-left="%s"`, left, left)
			if !strings.Contains(page, bar) {
				t.Errorf("no %s in %s", bar, page)
			}
		}
		has(followed.view().data, "10000")
		h.Advance(7 * time.Second)
		has(h.shows("/sessions", "8 s + 2 s", "3 s left").body, "3000")
		h.must(s.Renew())
		has(h.shows("/sessions", "10 s left").body, "10000")
		has(followed.view().data, "10000")
		h.Advance(10 * time.Second)
		h.shows("/sessions", "No session lives", "worker", "session expired")
		h.session("for ever")
		if r := h.shows("/sessions", "for ever", "none"); strings.Contains(r.body, "<progress") {
			t.Errorf("a bar in %s", r.body)
		}
	})
}

// Ensure that the last hundred ends are kept, the newest first.
func TestSessions_LastHundredEnds(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for i := range 120 {
			h.must(h.session(fmt.Sprintf("s%03d", i)).Close())
		}
		r := h.shows("/sessions", "No session lives", "Ended last", "s119", "s118", "s020")
		if got := strings.Count(r.body, `<tr id="e-`); got != 100 {
			t.Errorf("%d ends", got)
		}
		h.hides("/sessions", "s019", "Some ends are missing")
	})
}

// Ensure that pages say so when sessions ended too quickly to be seen: more of them than events are
// kept, while none was noted. Live sessions are shown nevertheless, and so are later ends.
func TestSessions_EndsAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, DB: lockdtest.New(t, &lockd.Options{History: 10})}
		h.mount(nil)
		h.session("lives")
		h.must(h.session("seen").Close())
		const missing = "Some ends are missing"
		h.shows("/sessions", "lives", "00:00:00", "Ended last", "seen")
		h.hides("/sessions", missing)
		gone := []*lockd.Session{h.session("gone"), h.session("gone"), h.session("gone")}
		h.shows("/sessions", "gone", "4 shown")
		see := lockdui.Blind(h.Handler)
		for i := range 30 {
			h.must(h.session(fmt.Sprintf("s%02d", i)).Close())
			if i >= 12 && i < 15 {
				h.must(gone[i-12].Close())
			}
		}
		h.session("also lives")
		see()
		h.shows("/sessions", "lives", "00:00:00", "also lives", "2 shown", missing, "seen")
		if got := lockdui.Beginnings(h.Handler); got > 2 {
			t.Errorf("the beginnings of %d sessions are kept, and 2 live", got)
		}
		h.must(h.session("next").Close())
		h.shows("/sessions", missing, "next", "seen")
	})
}

// Ensure that a page that is followed says at once that ends are missing.
func TestSessions_EndsAreMissed_AtOnce(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		s := h.follow("/sessions")
		s.view()
		time.Sleep(100 * time.Millisecond) // of the bubble: until the stream waits
		began := time.Now()
		lockdui.Miss(h.Handler)
		inOrder(t, "the stream", s.view().words(), "Some ends are missing")
		if took := time.Since(began); took >= 500*time.Millisecond {
			t.Errorf("told after %v", took)
		}
	})
}
