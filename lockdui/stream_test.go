package lockdui_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
	"github.com/lockd/lockd/lockdui"
)

// Ensure that a commit is on the stream, and that only signs of life are sent while nothing
// changes.
func TestStream_Commit(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		s := h.follow("/")
		inOrder(t, "the beginning", s.view().words(), "Locks 0", "No session waits")
		if e := s.next(); e.kind != "alive" {
			t.Fatalf("got %s %s", e.kind, e.data)
		}
		holder := h.holds("holder", "k")
		began := time.Now()
		e := s.view()
		inOrder(t, "a lock", e.words(), "Locks 1", "k exclusive holder")
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it took %v of the bubble's time", took)
		}
		if e.id != "4" {
			t.Errorf("index %s", e.id)
		}
		h.must(holder.Close())
		inOrder(t, "no lock", s.view().words(), "Locks 0", "No lock is held")
	})
}

// Ensure that a change without an event is on the stream with the next look: a call that begins to
// wait, a lock-delay that is over.
func TestStream_Look(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("holder", "k")
		s := h.follow("/")
		s.view()
		h.waits(h.session("waiter"), "k")
		for {
			if text := s.view().words(); strings.Contains(text, "Longest wait") {
				inOrder(t, "a waiter", text, "Waits 1", "held by", "holder", "waiter")
				break
			}
		}
		other := h.holds("other", "delayed")
		h.must(h.EndSession(other.ID()))
		for !strings.Contains(s.view().words(), "left") {
		}
		h.Advance(15 * time.Second)
		for strings.Contains(s.view().words(), "delayed") {
		}
	})
}

// Ensure that a stream that was cut begins with the page as it is then, whatever was missed.
func TestStream_CatchesUp(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		s := h.follow("/?prefix=k")
		s.view()
		h.holds("first", "k/1")
		inOrder(t, "before", s.view().words(), "k/1")
		s.end()
		h.holds("second", "k/2", "other")
		h.must(h.EndSession(lockOf(h, "k/1").Holder.ID))
		h.Advance(time.Minute)
		s = h.follow("/?prefix=k")
		text := s.view().words()
		inOrder(t, "after", text, "k/2 exclusive second", "1 shown")
		if strings.Contains(text, "k/1") || strings.Contains(text, "other") {
			t.Error(text)
		}
	})
}

// Ensure that rows that are as they were are not sent again, and that a new stream has all rows.
func TestStream_ChangedRows(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("first", "k/1")
		second := h.holds("second", "k/2")
		h.holds("third", "k/3")
		s := h.follow("/?sort=key")
		inOrder(t, "the beginning", s.view().words(),
			"k/1", "first", "k/2", "second", "k/3", "third")
		h.Advance(time.Second)
		h.must(second.Close())
		h.holds("other", "k/2")
		for got := ""; !strings.Contains(got, "other"); {
			e := s.view()
			got = e.words()
			if strings.Contains(got, "first") || strings.Contains(got, "third") {
				t.Fatalf("rows that did not change are sent again: %s", got)
			}
			inOrder(t, "their places", e.data, "data-kept", "k/2", "data-kept")
		}
		s.end()
		inOrder(t, "a new stream", h.follow("/?sort=key").view().words(),
			"k/1", "first", "k/2", "other", "k/3", "third")
	})
}

// Ensure that each view follows what it shows.
func TestStream_Views(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.follow("/key").view() // of no key
		key, sessions, graph := h.follow("/key?k=k"), h.follow("/sessions"), h.follow("/graph")
		for _, s := range []*stream{key, sessions, graph} {
			s.view()
		}
		holder := h.session("holder")
		inOrder(t, "sessions", sessions.view().words(), "Sessions 1", "holder")
		lock, err := holder.TryLock("k", nil)
		h.must(err)
		until := func(s *stream, want string) {
			t.Helper()
			for range 10 {
				if strings.Contains(s.view().words(), want) {
					return
				}
			}
			t.Fatalf("%q does not come", want)
		}
		until(key, "granted")
		_, err = h.Put("k", []byte("value"), nil)
		h.must(err)
		until(key, "5 bytes")
		h.waits(h.session("waiter"), "k")
		until(graph, "waiter local k holder local")
		h.must(lock.Unlock())
		until(key, "released")
		h.must(holder.Close())
		until(sessions, "closed by its owner")
	})
}

// Ensure that the page outlives its database, and says that it is closed.
func TestStream_Close(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("holder", "k")
		s := h.follow("/")
		s.view()
		h.must(h.Close())
		inOrder(t, "closed", s.view().words(), "database closed by its owner")
		if e := s.next(); e.kind == "" {
			t.Error("the stream is over")
		}
		h.shows("/", "database closed by its owner")
	})
}

// Ensure that there is a bound to the number of streams, and that a stream that ends makes room.
func TestStream_Bound(t *testing.T) {
	run(t, &lockdui.Options{}, nil, func(h *harness) {
		var streams []*stream
		for range 64 {
			s := h.follow("/")
			s.view()
			streams = append(streams, s)
		}
		r := request("GET", "/", nil)
		r.Header.Set("Accept", "text/event-stream")
		if got := h.do(r); got.code != 429 {
			t.Errorf("got %d", got.code)
		}
		streams[0].end()
		h.follow("/").view()
	})
}

// Ensure that a stream tells of an event at once, not only when it looks again a second later: of
// the release of a lock, and, on the page of a key, of another value.
func TestStream_TellsAtOnce(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		lock, err := h.session("holder").TryLock("k", nil)
		h.must(err)
		_, err = h.Put("other", nil, nil)
		h.must(err)
		for target, change := range map[string]func() error{
			"/":            lock.Unlock,
			"/key?k=other": func() error { _, err := h.Put("other", []byte("v"), nil); return err },
		} {
			s := h.follow(target)
			s.view()
			time.Sleep(100 * time.Millisecond) // of the bubble: until the stream waits
			for len(s.events) > 0 {
				<-s.events // it may have said that it is alive
			}
			h.must(change())
			began := time.Now()
			s.view()
			if took := time.Since(began); took >= 500*time.Millisecond {
				t.Errorf("%s: told after %v", target, took)
			}
			s.end()
		}
	})
}

// Ensure that a stream that misses events, because they come faster than it takes them, goes on
// with those to come: it shows what the missed ones have made, and then only that it is alive.
func TestStream_EventsAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, DB: lockdtest.New(t, &lockd.Options{History: 1})}
		h.mount(nil)
		s := h.follow("/")
		s.view()
		time.Sleep(100 * time.Millisecond) // of the bubble: until the stream waits
		h.holds("holder", numbered(500)...)
		for !strings.Contains(s.view().words(), "Locks 500") {
		}
		time.Sleep(2 * time.Second) // of the bubble: until the page has all rows
		for len(s.events) > 0 {
			<-s.events
		}
		began := time.Now()
		for range 3 {
			if e := s.next(); e.kind != "alive" {
				t.Errorf("nothing has changed: %s %s", e.kind, e.words())
			}
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("three signs of life within %v", took)
		}
		h.holds("late", "later")
		began = time.Now()
		inOrder(t, "later", s.view().words(), "Locks 501")
		if took := time.Since(began); took >= 500*time.Millisecond {
			t.Errorf("told after %v", took)
		}
	})
}

// numbered returns so many keys.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k/%d", i)
	}
	return keys
}
