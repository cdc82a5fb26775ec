package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// doneAfter fails the test unless the keeper's Done closes after exactly that time, and returns
// its deadline as a time from then.
func doneAfter(t *testing.T, k *lockclient.Keeper, want time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case <-k.Done():
	case <-time.After(time.Hour):
		t.Fatal("not done after an hour")
	}
	if got := time.Since(began); got != want {
		t.Errorf("done after %v, want %v; %v", got, want, k.Err())
	}
	return time.Until(k.Deadline())
}

// Ensure that a session is renewed in time for as long as it is kept, and ends when it is closed.
func TestKeeper(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.requests()
		time.Sleep(time.Minute + time.Second)
		if got := h.requests(); len(got) != 12 || !strings.Contains(got[0], "/renew/"+k.ID()) {
			t.Errorf("in a minute: %q, want a renewal each third of the TTL", got)
		}
		if !h.lives(k.ID()) || k.Err() != nil || !k.Deadline().IsZero() {
			t.Errorf("lives %v, %v, %v", h.lives(k.ID()), k.Err(), k.Deadline())
		}
		h.close(k)
		if h.lives(k.ID()) {
			t.Error("the session is still there")
		}
	})
}

// Ensure that a keeper whose renewals fail says so while the session still lives, and leaves time
// to stop what is being done under it, however they fail.
func TestKeeper_NotRenewed(t *testing.T) {
	for name, f := range map[string]fault{
		"Refused": cut, "NoAnswer": mute, "LostAnswer": lost, "Status500": broken,
		"NoSuchPath": absent,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				k := h.keep(0)
				h.fail(f, "/renew/")
				left := doneAfter(t, k, ttl*2/3)
				if left != ttl/6 || !h.lives(k.ID()) {
					t.Errorf("%v left, session lives: %v", left, h.lives(k.ID()))
				}
				if err := k.Err(); errors.Is(err, lockclient.ErrNoSession) ||
					!strings.Contains(fmt.Sprint(err), "could not be renewed for 10s") {
					t.Errorf("got %v", err)
				}
				h.fail(none, "")
				h.close(k)
			})
		})
	}
}

// Ensure that a session outlives one renewal that is never answered, as when a connection has died.
func TestKeeper_OneRenewalIsNotAnswered(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		time.Sleep(ttl/3 - time.Second)
		h.fail(mute, "/renew/")
		time.Sleep(2 * time.Second)
		h.fail(none, "")
		time.Sleep(time.Minute)
		if err := k.Err(); err != nil || !h.lives(k.ID()) {
			t.Errorf("the session lives: %t, %v", h.lives(k.ID()), err)
		}
		h.close(k)
	})
}

// Ensure that a keeper that could not run for longer than two thirds of the TTL, as when the
// process was stopped, asks for its session before it gives up.
func TestKeeper_Stopped(t *testing.T) {
	run(t, func(h *harness) {
		const stopped = ttl * 3 / 4
		var once sync.Once
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			response, err := h.RoundTrip(r)
			if strings.Contains(r.URL.Path, "/renew/") {
				once.Do(func() { time.Sleep(stopped) }) // no goroutine of the client goes on
			}
			return response, err
		})
		time.Sleep(time.Minute)
		if k.Err() != nil || !h.lives(k.ID()) {
			t.Errorf("lives: %t, %v", h.lives(k.ID()), k.Err())
		}
		h.close(k)
	})
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Ensure that a caller that gives up while its session is being made leaves no session behind, and
// does not wait for long.
func TestKeep_GivesUp(t *testing.T) {
	run(t, func(h *harness) {
		h.fail(slow, "/session/create")
		ctx, cancel := context.WithTimeout(h.t.Context(), 100*time.Millisecond)
		defer cancel()
		k, err := h.client().Keep(ctx, lockclient.SessionOptions{TTL: ttl})
		h.must(err)
		if _, err := k.Lock(ctx, "k", lockclient.UntilDone); !errors.Is(err,
			lockclient.ErrNotAcquired) {
			t.Errorf("got %v", err)
		}
		h.close(k)
		if n := len(slices.Collect(h.db.Snapshot().Sessions())); n != 0 {
			t.Errorf("%d sessions left", n)
		}
		h.fail(mute, "/session/create")
		began := time.Now()
		if _, err := h.client().Keep(ctx, lockclient.SessionOptions{TTL: ttl}); err == nil {
			t.Error("no answer makes a session")
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("gave up after %v", got)
		}
	})
}

// Ensure that later renewals that succeed in time save the session, and that the time counts from
// the last renewal that succeeded.
func TestKeeper_RenewedAgain(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.fail(cut, "/renew/")
		time.Sleep(9400 * time.Millisecond)
		h.fail(none, "")
		time.Sleep(600 * time.Millisecond) // the renewal at 9.5 s succeeds
		synctest.Wait()
		if k.Err() != nil {
			t.Fatal(k.Err())
		}
		h.requests()
		h.fail(cut, "/renew/")
		if left := doneAfter(t, k, 9500*time.Millisecond); left != ttl/6 {
			t.Errorf("%v left", left)
		}
		h.fail(none, "")
		h.close(k)
	})
}

// Ensure that the end of a session leaves as much time as its lock-delay, which began after the
// last renewal, and not more than a sixth of the TTL.
func TestKeeper_SessionEnded(t *testing.T) {
	for _, test := range []struct{ delay, left time.Duration }{
		{0, 0},
		{time.Second, 0}, // the last renewal is two seconds old
		{3 * time.Second, time.Second},
		{time.Minute, ttl / 6},
	} {
		t.Run(test.delay.String(), func(t *testing.T) {
			run(t, func(h *harness) {
				k := h.keep(test.delay)
				_, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
				h.must(err)
				time.Sleep(2 * time.Second)
				h.must(h.db.EndSession(h.sessionID(k.ID())))
				if left := doneAfter(t, k, 0); left != test.left {
					t.Errorf("%v left, want %v", left, test.left)
				}
				h.close(k)
			})
		})
	}
}

// Ensure that a keeper learns of the end of its session from a renewal, if not by other means.
func TestKeeper_SessionEnded_Unseen(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(time.Minute)
		h.must(h.db.EndSession(h.sessionID(k.ID())))
		if left := doneAfter(t, k, ttl/3); left != ttl/6 {
			t.Errorf("%v left", left)
		}
		if !errors.Is(k.Err(), lockclient.ErrNoSession) {
			t.Error(k.Err())
		}
		h.requests()
		h.close(k)
		if got := h.requests(); len(got) != 0 {
			t.Errorf("a session that has ended is ended again: %q", got)
		}
	})
}

// Ensure that the deadline stays as it was told, also if the session ends after that.
func TestKeeper_DeadlineStays(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(time.Minute)
		l := h.lock(k, "k")
		synctest.Wait() // the watch has begun
		h.must(h.db.ForceUnlock("k", l.Pair().ModifyIndex, "wanted elsewhere"))
		doneAfter(t, k, 0)
		deadline := k.Deadline()
		h.must(h.db.EndSession(h.sessionID(k.ID())))
		time.Sleep(ttl) // a renewal finds out
		if got := k.Deadline(); !got.Equal(deadline) {
			t.Errorf("the deadline is %v later", got.Sub(deadline))
		}
		h.close(k)
	})
}

// Ensure that a session that is lost is not renewed any more, so that its locks become free.
func TestKeeper_LostForGood(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.fail(cut, "/renew/")
		doneAfter(t, k, ttl*2/3)
		h.fail(none, "")
		time.Sleep(ttl)
		if h.lives(k.ID()) {
			t.Error("the session was renewed after its loss was told")
		}
		h.close(k)
	})
}

// Ensure that a session lasts although each renewal takes a tenth of its TTL.
func TestKeeper_SlowServer(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/renew/") {
				time.Sleep(ttl / 10)
			}
			return h.RoundTrip(r)
		})
		time.Sleep(time.Minute)
		h.must(k.Err())
		h.close(k)
	})
}

// Ensure that an answer that names no session is no renewal.
func TestKeeper_EmptyAnswer(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/renew/") {
				return (&script{status: http.StatusOK, body: "[]"}).RoundTrip(r)
			}
			return h.RoundTrip(r)
		})
		doneAfter(t, k, ttl/3)
		if !errors.Is(k.Err(), lockclient.ErrNoSession) {
			t.Errorf("got %v", k.Err())
		}
		h.close(k)
	})
}
