package main

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that the list of locks shows the waiters, in order, and how long locks, waits and delays
// have lasted.
func TestLocks_QueueAndDelay(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	session := func(name string) *lockd.Session {
		t.Helper()
		made, err := db.NewSession(&lockd.SessionOptions{Name: name, LockDelay: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	holder, gone := session("the holder"), session("gone")
	for _, lock := range []struct {
		session *lockd.Session
		key     string
	}{{holder, "held"}, {gone, "lost"}} {
		if _, err := lock.session.TryLock(lock.key, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for i, name := range []string{"first", "second"} {
		waits := session(name)
		go func() {
			_, err := waits.Lock(ctx, "held", nil)
			ended <- err
		}()
		for db.Stats().Waiters <= i { // only the stats tell that it waits
			runtime.Gosched()
		}
	}
	if err := db.EndSession(gone.ID()); err != nil {
		t.Fatal(err)
	}
	r := command(t, "", "locks", "--http-addr", s.URL)
	r.wants(t, 0, "")
	const id, duration = `[0-9a-f-]{36}  \S+  `, ` +[0-9.]+(ms|s)\n`
	if !regexp.MustCompile("^held  held     " + id + "the holder" + duration +
		"held  waits    " + id + "first" + duration + "held  waits    " + id + "second" + duration +
		`lost  delayed  - +- +- +until \d{4}-\S+Z\n$`).MatchString(r.out) {
		t.Errorf("got %s", r.out)
	}
	r = command(t, "", "locks", "--http-addr", s.URL, "--json")
	if strings.Count(r.out, `"Waited"`) != 2 || !strings.Contains(r.out, `"DelayedUntil"`) {
		t.Errorf("got %s", r.out)
	}
	cancel()
	for range 2 {
		<-ended
	}
}

// Ensure that a lock that is shared has a line for each holder.
func TestLocks_Shared(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	shared := &lockd.LockOptions{Mode: lockd.Shared}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for i, name := range []string{"first", "second", "alone", "third"} {
		session, err := db.NewSession(&lockd.SessionOptions{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			if _, err := session.TryLock("k", shared); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var opts *lockd.LockOptions
		if i == 3 {
			opts = shared
		}
		go func() {
			_, err := session.Lock(ctx, "k", opts)
			ended <- err
		}()
		for db.Stats().Waiters <= i-2 { // only the stats tell that it waits
			runtime.Gosched()
		}
	}
	r := command(t, "", "locks", "--http-addr", s.URL)
	r.wants(t, 0, "")
	const id, duration = `[0-9a-f-]{36}  \S+  `, ` +[0-9.]+(ms|s)\n`
	if !regexp.MustCompile("^k  shared          " + id + "first" + duration +
		"k  shared          " + id + "second" + duration + "k  waits           " + id + "alone" +
		duration + "k  waits to share  " + id + "third" + duration + "$").MatchString(r.out) {
		t.Errorf("got %s", r.out)
	}
	cancel()
	for range 2 {
		<-ended
	}
}

// Ensure that the command takes the limits that the library takes, and no other.
func TestLock_MaxLimit(t *testing.T) {
	db, _ := testServer(t)
	if err := db.SetLimit("s", maxLimit); err != nil {
		t.Error(err)
	}
	if err := db.SetLimit("s", maxLimit+1); !errors.Is(err, lockd.ErrInvalid) {
		t.Errorf("one more: %v", err)
	}
}
