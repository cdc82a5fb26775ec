package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// mustHistory compares the key's history, in words, with names in place of the sessions' IDs.
func (h *harness) mustHistory(key string, want ...string) {
	h.t.Helper()
	var got []string
	for _, t := range h.History(key) {
		line := t.String()
		if change := lockChange(t); t.Key != key || t.Index == 0 || change == lockUnchanged ||
			(t.Cause == nil) != (change == lockGranted) {
			h.t.Errorf("event: got %+v", t)
		}
		for _, s := range []lockd.SessionInfo{t.Granted, t.Ended} {
			line = strings.ReplaceAll(line, fmt.Sprintf(" (session %s)", s.ID), "")
		}
		line = strings.Replace(line, fmt.Sprintf(" with fence %d", t.Entry.Fence), "", 1)
		line = strings.Replace(line, fmt.Sprintf("index %d: %q ", t.Index, key), "", 1)
		got = append(got, strings.Replace(line, t.Time.Format("15:04:05.000 "),
			fmt.Sprintf("%ds ", t.Time.Unix()), 1))
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("history of %q:\ngot  %q\nwant %q", key, got, want)
	}
}

// Ensure that the history of a lock has each grant and its end, with time, session and cause.
func TestHistory_TellsEachTransition(t *testing.T) {
	each(t, func(h *harness) {
		h.mustHistory("k")
		a, b := h.named("a"), h.named("b")
		h.must(h.lock(a, "k").Unlock())
		h.put("k", "v", 0) // no transition
		h.lock(b, "other")
		h.advance(time.Second)

		lock := h.lock(a, "k")
		h.wait(h.t.Context(), b, "k", nil)
		h.must(lock.Unlock()) // hands it on
		h.settle()
		h.must(b.Close())
		h.advance(time.Second)

		h.lock(a, "k")
		h.must(second(h.Delete("k")))
		c := h.session(&lockd.SessionOptions{Name: "c", TTL: 10 * time.Second})
		h.lock(c, "k")
		h.advance(4 * time.Second)
		h.must(c.Renew())
		h.advance(10 * time.Second)
		h.mustHistory("k",
			"0s granted to \"a\"", "0s released by \"a\": lock released",
			"1s granted to \"a\"", "1s released by \"a\": lock released; granted to \"b\"",
			"1s released by \"b\": closed by its owner",
			"2s granted to \"a\"", "2s lost by \"a\": key deleted",
			"2s granted to \"c\"", "16s lost by \"c\": session expired: not renewed within its "+
				"TTL: last renewal 10s earlier",
		)
		h.mustHistory("other", "0s granted to \"b\"", "1s released by \"b\": closed by its owner")
		h.mustHistory("none")
		indexes := h.History("k")
		for i := 1; i < len(indexes); i++ {
			if indexes[i].Index < indexes[i-1].Index {
				h.t.Errorf("index %d after %d", indexes[i].Index, indexes[i-1].Index)
			}
		}
		if on := indexes[3]; on.Ended.ID != a.ID() || on.Granted.ID != b.ID() {
			h.t.Errorf("a lock is handed on: got %+v", on)
		}
	})
}

// Ensure that the history has the end that a Close makes, at the time of the Close.
func TestHistory_TellsTheEndByClose(t *testing.T) {
	each(t, func(h *harness) {
		h.lock(h.named("a"), "k")
		h.advance(time.Second)
		h.must(h.Close())
		h.mustHistory("k", "0s granted to \"a\"",
			"1s released by \"a\": database closed by its owner")
	})
}

// Ensure that a lock that is handed on tells how the grant before it ended.
func TestHistory_HandedOn(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.named("a"), h.named("b")
		d := h.session(&lockd.SessionOptions{Name: "d", LockDelay: lockd.NoLockDelay})
		h.lock(a, "k")
		h.line("k", d, b)
		h.must(second(h.Delete("k")))
		h.settle()
		h.must(h.ForceUnlock("k", h.entry("k").Fence, "it hangs"))
		h.settle()
		h.mustHistory("k",
			"0s granted to \"a\"", "0s lost by \"a\": key deleted; granted to \"d\"",
			"0s lost by \"d\": unlocked by force: it hangs; granted to \"b\"",
		)
	})
}

// Ensure that the event of an end tells until when the lock-delay lasts that this end began, and of
// no other delay.
func TestHistory_G7_TellsTheDelay(t *testing.T) {
	onFile(t, func(h *harness) {
		const delay = 10 * time.Second
		opts := &lockd.SessionOptions{LockDelay: delay}
		last := func(key string) time.Time {
			history := h.History(key)
			return history[len(history)-1].DelayedUntil
		}
		mustLast := func(what, key string, want time.Time) {
			h.t.Helper()
			if got := last(key); !got.Equal(want) {
				t.Errorf("%s: delayed until %v, want %v", what, got, want)
			}
		}
		h.lock(h.session(opts), "k")
		h.must(h.ForceUnlock("k", h.entry("k").Fence, "it hangs"))
		mustLast("forced", "k", h.clock.Now().Add(delay))
		h.advance(delay)
		h.must(h.lock(h.session(opts), "k").Unlock())
		mustLast("unlocked", "k", time.Time{})
		h.lock(h.session(opts), "k")
		h.must(second(h.Delete("k")))
		mustLast("deleted", "k", time.Time{})

		reader := h.session(opts)
		h.must(second(reader.TryLock("shared", &lockd.LockOptions{Mode: lockd.Shared})))
		h.must(h.EndSession(reader.ID()))
		mustLast("share", "shared", h.clock.Now().Add(delay))

		h.lock(h.session(opts), "k")
		h.opts.Reopen = lockd.EndBoundWithoutDelay
		next := h.crash(nil)
		for _, e := range next.History("k") {
			if !e.Ended.ID.IsZero() && !e.DelayedUntil.IsZero() {
				t.Errorf("after EndBoundWithoutDelay: delayed until %v", e.DelayedUntil)
			}
		}
	})
}

// Ensure that the event of a grant has the exact time for which the session had waited for it, zero
// if it was granted at once; and that a wait in vain has no event.
func TestHistory_R15_TellsTheWait(t *testing.T) {
	each(t, func(h *harness) {
		a, b, c, d := h.named("a"), h.named("b"), h.named("c"), h.named("d")
		lock := h.lock(a, "k")
		waits := h.wait(h.t.Context(), b, "k", nil)
		h.advance(2 * time.Second)
		h.waitAll(h.t.Context(), c, "k", "other")
		ctx, giveUp := context.WithCancel(h.t.Context())
		h.wait(ctx, d, "k", nil)
		h.advance(5 * time.Second)
		giveUp()
		h.must(lock.Unlock())
		h.advance(time.Second)
		h.must(waits.locks[0].Unlock())
		h.settle()
		h.mustHistory("k", `0s granted to "a"`,
			`7s released by "a": lock released; granted to "b" after a wait of 7s`,
			`8s released by "b": lock released; granted to "c" after a wait of 6s`)
		h.mustHistory("other", `8s granted to "c" after a wait of 6s`)
		for i, want := range []time.Duration{0, 7 * time.Second, 6 * time.Second} {
			if got := h.History("k")[i].Waited; got != want {
				h.t.Errorf("grant %d: waited %v, want %v", i, got, want)
			}
		}
	})
}

// Ensure that the causes of an end have their details, and are still found by errors.Is.
func TestCauses_SayTheirDetail(t *testing.T) {
	want := map[string]string{
		"Close":           "closed by its owner",
		"EndSession":      "session destroyed",
		"EndSessionInTxn": "session destroyed",
		"TTL": "session expired: not renewed within its TTL: " +
			"last renewal 10s earlier",
		"NodeRemoved":    `node of the session removed: "db1"`,
		"NodeRenamed":    `node of the session removed: "db1"`,
		"ServiceRemoved": `check of the session removed: "ping"`,
		"CheckRemoved":   `check of the session removed: "disk"`,
		"CheckCritical":  `check of the session is critical: "disk"`,
	}
	for _, end := range sessionEnds {
		t.Run(end.name, func(t *testing.T) {
			each(t, func(h *harness) {
				s, locks, _ := doomed(h, lockd.ReleaseKeys)
				h.must(end.end(h, s))
				h.settle()
				cause := "has ended: " + want[end.name]
				if err := s.Err(); !errors.Is(err, end.cause) ||
					!strings.HasSuffix(err.Error(), cause) {
					h.t.Errorf("session: got %q, want %q", err, cause)
				}
				held := "no longer held: " + want[end.name]
				if err := locks[0].Err(); !errors.Is(err, end.cause) ||
					!strings.HasSuffix(err.Error(), held) {
					h.t.Errorf("lock: got %q, want %q", err, held)
				}
				last := h.History("a")[1]
				if !errors.Is(last.Cause, end.cause) || last.Cause.Error() != want[end.name] {
					h.t.Errorf("history: got %q, want %q", last.Cause, want[end.name])
				}
			})
		})
	}
}

// Ensure that an expiry counts from the last renewal that succeeded, however late it is noticed,
// and with the grace.
func TestErrExpired_SaysWhenTheLastRenewalWas(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second, Grace: 5 * time.Second})
		h.advance(9 * time.Second)
		h.must(s.Renew())
		h.advance(15200 * time.Millisecond)
		if text := s.Err().Error(); !strings.HasSuffix(text, ": last renewal 15s earlier") &&
			!strings.HasSuffix(text, ": last renewal 15.2s earlier") {
			h.t.Errorf("got %q", text)
		}
	})
}

// Ensure that a history of which the ring has dropped the oldest part still has the newest, with
// the names of sessions that have ended.
func TestHistory_AfterCompaction(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory() // 10 events
		a := h.named("a")
		for range 4 {
			h.must(h.lock(a, "k").Unlock())
		}
		b := h.named("b")
		h.lock(b, "k")
		h.must(b.Close())
		granted, released := `0s granted to "a"`, `0s released by "a": lock released`
		h.mustHistory("k", granted, released, granted, released, granted, released,
			`0s granted to "b"`, `0s released by "b": closed by its owner`)
		h.writes("other", 5)
		h.mustHistory("k", released, `0s granted to "b"`,
			`0s released by "b": closed by its owner`)
		h.writes("other", 10)
		h.mustHistory("k")
	})
}

// Ensure that history begins with the opening of the file, and goes on answering after Close.
func TestHistory_ReopenedAndClosed(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Name: "a", Lifetime: lockd.Independent})
		h.lock(s, "k")
		h.advance(time.Second)
		h.reopen()
		h.mustHistory("k")
		h.must(h.EndSession(s.ID()))
		want := `1s lost by "a": session destroyed`
		h.mustHistory("k", want)
		h.must(h.Close())
		h.mustHistory("k", want)
	})
}

// Ensure that the history may be as long as an option can say.
func TestHistory_WithoutBound(t *testing.T) {
	db, err := lockd.New(&lockd.Options{History: math.MaxInt})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range 100 {
		if _, err := db.Put("k", []byte{byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range db.Watch(t.Context(), lockd.KeyScope("k"), 1) {
		if n++; err != nil {
			t.Fatal(err)
		}
		if n == 100 {
			break
		}
	}
}
