package lockdui_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

// Ensure that the longest wait comes first, with the waiters, the holder and since when it holds.
func TestLocks_LongestWaitComesFirst(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.shows("/", "No session waits", "No lock is held, delayed or waited for")
		h.holds("reader", "a/quiet")
		holder := h.holds("billing", "b/busy", "c/busier")
		h.Advance(10 * time.Second)
		h.waits(h.holds("importer", "d/own"), "c/busier")
		h.Advance(20 * time.Second)
		h.waits(h.session("late"), "c/busier")
		h.waits(h.session("other"), "b/busy")
		h.Advance(70 * time.Second)
		h.shows("/",
			"Longest wait", "c/busier", "1 min 30 s",
			"held by", "billing local since 00:00:00, for 1 min 40 s fence",
			"waiting, in order", "importer local for 1 min 30 s", "late local for 1 min 10 s",
			"Key Mode Held by",
			"c/busier exclusive billing", "1 min 40 s", "importer local 1 min 30 s",
			"late local 1 min 10 s",
			"b/busy exclusive billing", "other local 1 min 10 s",
			"a/quiet", "d/own")
		h.shows("/?sort=key", "Key Mode", "a/quiet", "b/busy", "c/busier", "d/own")
		h.waits(holder, "d/own")
		h.shows("/", "held by", "billing", "waits itself for d/own", "waiting, in order")
	})
}

// Ensure that the prefix is a prefix of bytes, typed as it is shown.
func TestLocks_Prefix(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("s", "jobs/1", "jobs/2", "job", "jobs\xff\x00", `"quoted`)
		h.shows("/?prefix=jobs/&sort=key", "jobs/1", "jobs/2", "2 shown")
		h.shows("/?prefix=%22jobs%5Cxff%22", `"jobs\xff\x00"`, "1 shown")
		h.shows("/?prefix=%22%5C%22%22", `"\"quoted"`, "1 shown")
		h.hides("/?prefix=none", "jobs")
		r := h.shows("/?prefix=%22free%5Cxff%22", "No lock is held", "What is known of that key")
		if !strings.Contains(r.body, `<a href="key?k=free%FF">`) {
			t.Errorf("no link in %s", r.body)
		}
	})
}

// Ensure that a lock-delay is shown with the time that is left, and that it runs out.
func TestLocks_Delay(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		holder := h.holds("holder", "k")
		h.must(h.EndSession(holder.ID()))
		h.waits(h.session("waiter"), "k")
		h.Advance(5 * time.Second)
		r := h.shows("/", "lock-delay", "10 s left", "waiter local for 5 s")
		if !strings.Contains(r.body, `<progress max="60000" value="10000" data-left="10000"`) {
			t.Errorf("no bar in %s", r.body)
		}
		h.Advance(10 * time.Second)
		h.hides("/", "left", "Longest wait")
		h.shows("/", "k exclusive waiter")
	})
}

// Ensure that a semaphore is one row, with all holders of its slots.
func TestLocks_Semaphore(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for _, name := range []string{"one", "two"} {
			_, err := h.session(name).TryAcquire("pool", 2)
			h.must(err)
		}
		third := h.session("three")
		go third.Acquire(h.t.Context(), "pool", 2)
		h.WaitForWaiters("pool/.lock", 1)
		h.Advance(3 * time.Second)
		r := h.shows("/", "Longest wait", "pool", "3 s", "2 of 2 slots held by",
			"three local for 3 s", "pool 2 of 2 slots", "1 shown")
		if got := strings.Count(r.body, "<tr id="); got != 1 {
			t.Errorf("%d rows", got)
		}
		h.shows("/key?k=pool%2F.lock", "pool", "2 of 2 slots held by", "three local 3 s")
		h.shows("/sessions", "three", "pool slot 3 s", "one", "pool slot 3 s")
	})
}

// Ensure that many locks are shown some at a time, each on one page, and that a page is made
// without a stall.
func TestLocks_TenThousand(t *testing.T) {
	const many = 10_000
	run(t, nil, nil, func(h *harness) {
		s := h.session("s")
		h.must(h.Update(func(tx *lockd.Txn) error {
			for i := range many {
				if _, err := tx.Lock(fmt.Sprintf("k/%05d", i), s.ID(), nil); err != nil {
					return err
				}
			}
			return nil
		}))
		key := regexp.MustCompile(`href="key\?k=k%2F(\d+)"`)
		next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
		previous := regexp.MustCompile(`rel="prev" href="([^"]*)"`)
		seen := make(map[string]bool)
		pages, target := 0, "/?sort=key"
		for target != "" {
			r := h.get(target)
			if len(r.body) > 256<<10 {
				t.Fatalf("%s has %d bytes", target, len(r.body))
			}
			for _, m := range key.FindAllStringSubmatch(r.body, -1) {
				if seen[m[1]] {
					t.Fatalf("%s: %s for the second time", target, m[1])
				}
				seen[m[1]] = true
			}
			if pages++; pages > 1 && !previous.MatchString(r.body) {
				t.Fatalf("%s: no way back", target)
			}
			target = ""
			if m := next.FindStringSubmatch(r.body); m != nil {
				target = "/" + strings.TrimPrefix(strings.ReplaceAll(m[1], "&amp;", "&"), "./")
			}
		}
		if len(seen) != many || pages != many/200 {
			t.Errorf("%d locks on %d pages", len(seen), pages)
		}
		h.shows("/?page=999", "9 801–10 000 of 10 000")
		h.shows("/?page=-1", "1–200 of 10 000")
		h.shows("/?prefix=k/000&page=2", "100 shown")
	})
}

// Ensure that the pages can be seen while the function of an Update hangs, which is when a person
// looks.
func TestHandler_UpdateThatHangs(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("holder", "k")
		release := make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- h.Update(func(*lockd.Txn) error {
				<-release
				return nil
			})
		}()
		synctest.Wait()
		h.shows("/", "k exclusive holder")
		h.shows("/sessions", "holder", "k 0 ms")
		h.shows("/key?k=k", "holder", "granted")
		h.get("/graph")
		h.get("/file")
		later, err := lockdui.Handler(h.DB.DB, &lockdui.Options{Now: h.Now})
		h.must(err)
		h.Handler = later
		h.shows("/sessions", "holder", "00:00:00", "k 0 ms")
		close(release)
		h.must(<-ended)
	})
}

// Ensure that the lock that has been held for longest comes first: also if its holder is older than
// the present opening of the file, so that nobody knows since when.
func TestLocks_LongestHeldComesFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	db, err := lockd.Open(path, nil)
	h := &harness{t: t}
	h.must(err)
	old, err := db.NewSession(&lockd.SessionOptions{Name: "old", Lifetime: lockd.Independent})
	h.must(err)
	_, err = old.TryLock("d/oldest", nil)
	h.must(err)
	h.must(db.Close())

	db, err = lockd.Open(path, nil)
	h.must(err)
	defer func() { h.must(db.Close()) }()
	s, err := db.NewSession(nil)
	h.must(err)
	for _, key := range []string{"a/lost", "c/older", "b/newer"} {
		lock, err := s.TryLock(key, nil)
		h.must(err)
		if key == "a/lost" {
			h.must(db.ForceUnlock(key, lock.Sequencer().Fence, ""))
		}
	}
	pages, err := lockdui.Handler(db, nil)
	h.must(err)
	for target, want := range map[string][]string{
		"/?sort=longest+held": {"Key Mode", "d/oldest", "c/older", "b/newer", "a/lost"},
		"/":                   {"Key Mode", "a/lost", "d/oldest", "c/older", "b/newer"},
	} {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, request("GET", target, nil))
		inOrder(t, target, words(w.Body.String()), want...)
	}
}
