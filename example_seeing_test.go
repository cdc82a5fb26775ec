package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// Who holds what, since when, and who waits for it.
func ExampleLockInfo() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	worker := must(db.NewSession(&lockd.SessionOptions{Name: "worker-1"}))
	must(worker.TryLock("jobs/nightly", nil))
	lost := must(db.NewSession(&lockd.SessionOptions{Name: "worker-2"}))
	must(lost.TryLock("jobs/hourly", nil))
	fmt.Println("end session:", db.EndSession(lost.ID()))
	mock.Add(10 * time.Second)

	for l := range db.Locks() {
		switch {
		case !l.Holder.ID.IsZero():
			fmt.Printf("%s: held by %s on node %s for %v\n", l.Key, l.Holder.Name, l.Holder.Node,
				l.Held)
		case !l.DelayedUntil.IsZero():
			fmt.Printf("%s: delayed for another %v\n", l.Key, l.DelayedUntil.Sub(mock.Now()))
		}
	}
	// Output:
	// end session: <nil>
	// jobs/hourly: delayed for another 5s
	// jobs/nightly: held by worker-1 on node local for 10s
}

// Who waits, the next to be served first.
func ExampleWaiterInfo() {
	db := must(lockd.New(nil))
	defer db.Close()
	must(must(db.NewSession(nil)).TryLock("k", nil))
	ctx, cancel := context.WithCancel(context.Background())
	for _, name := range []string{"first", "second"} {
		s := must(db.NewSession(&lockd.SessionOptions{Name: name}))
		before := db.Stats().Waiters
		go s.Lock(ctx, "k", nil) // the lock is not released: this call ends with ctx
		for db.Stats().Waiters == before {
			runtime.Gosched()
		}
	}
	for l := range db.Locks() {
		for _, w := range l.Queue {
			fmt.Println(w.Session.Name, "waits for", w.Keys)
		}
	}
	cancel()
	// Output:
	// first waits for [k]
	// second waits for [k]
}

// What has become of a lock, and why.
func ExampleDB_History() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	worker := must(db.NewSession(&lockd.SessionOptions{Name: "worker-1", TTL: 15 * time.Second}))
	must(worker.TryLock("jobs/nightly", nil))
	mock.Add(14 * time.Second)
	fmt.Println("renew:", worker.Renew())
	mock.Add(15 * time.Second)
	must(db.Put("any", nil, nil)) // what is due is done before any write

	for _, t := range db.History("jobs/nightly") {
		fmt.Printf("%q, then %q: %v\n", t.Ended.Name, t.Granted.Name, t.Cause)
	}
	// Output:
	// renew: <nil>
	// "", then "worker-1": <nil>
	// "worker-1", then "": session expired: not renewed within its TTL: last renewal 15s earlier
}

// How much there is.
func ExampleStats() {
	db := must(lockd.New(nil))
	defer db.Close()
	s := must(db.NewSession(nil))
	must(s.TryLock("a", nil))
	must(s.TryLock("b", nil))
	stats := db.Stats()
	fmt.Println(stats.Sessions, "session,", stats.Locks, "locks,", stats.Waiters, "waiters")
	// Output: 1 session, 2 locks, 0 waiters
}

// How long locks were held: each hold falls into the bucket of the first bound that is no shorter.
func ExampleHistogram() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	s := must(db.NewSession(nil))
	for _, held := range []time.Duration{time.Second, 4 * time.Second} {
		lock := must(s.TryLock("k", nil))
		mock.Add(held)
		if err := lock.Unlock(); err != nil {
			fmt.Println(err)
		}
	}
	holds := db.Stats().LockHolds
	fmt.Println(holds.Count(), "holds,", holds.Seconds, "s together")
	for i, bound := range lockd.HistogramBounds() {
		if n := holds.Buckets[i]; n > 0 {
			fmt.Println(n, "of them up to", bound)
		}
	}
	// Output:
	// 2 holds, 5 s together
	// 1 of them up to 1s
	// 1 of them up to 10s
}

// Which locks most calls wait for.
func ExampleDB_MostAwaited() {
	db := must(lockd.New(nil))
	defer db.Close()
	s := must(db.NewSession(&lockd.SessionOptions{Name: "worker-1"}))
	must(s.TryLock("quiet", nil))
	must(s.TryLock("busy", nil))
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error)
	go func() {
		_, err := s.Lock(ctx, "busy", nil)
		gaveUp <- err
	}()
	for db.Stats().Waiters == 0 {
		runtime.Gosched()
	}
	for _, lock := range db.MostAwaited(10) {
		fmt.Println(lock.Key, "held by", lock.Holder.Name, "with", len(lock.Queue), "waiter")
	}
	cancel()
	fmt.Println(errors.Is(<-gaveUp, context.Canceled))
	// Output:
	// busy held by worker-1 with 1 waiter
	// true
}

// Why sessions and locks have ended.
func ExampleStats_ends() {
	db := must(lockd.New(nil))
	defer db.Close()
	s := must(db.NewSession(nil))
	fmt.Println(must(s.TryLock("k", nil)).Unlock(), db.EndSession(s.ID()))
	ends := db.Stats().Ends
	fmt.Println(ends.Unlocked, "unlocked,", ends.Destroyed, "destroyed,", ends.Expired, "expired")
	// Output:
	// <nil> <nil>
	// 1 unlocked, 1 destroyed, 0 expired
}

// How many calls share a commit, and how long one takes.
func ExampleStats_commits() {
	path := filepath.Join(must(os.MkdirTemp("", "lockd-")), "lockd.db")
	defer os.RemoveAll(filepath.Dir(path))
	db := must(lockd.Open(path, nil))
	defer db.Close()
	must(db.Put("k", []byte("v"), nil))

	commits := db.Stats().Commits
	fmt.Println("each for one call:", commits.Writers == commits.Count)
	fmt.Println("they took some time:", commits.Total/time.Duration(commits.Count) > 0)
	// Output:
	// each for one call: true
	// they took some time: true
}

// What happens can be logged as it does.
func ExampleOptions_logger() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "index", "session": // left out, for they are not always the same
				return slog.Attr{}
			}
			return a
		},
	})
	db := must(lockd.New(&lockd.Options{Logger: slog.New(handler)}))
	worker := must(db.NewSession(&lockd.SessionOptions{Name: "worker-1"}))
	must(worker.TryLock("k", nil))
	fence := db.Stats().Index
	err := db.ForceUnlock("k", fence, "it hangs")
	fmt.Println(err, db.Close()) // Close returns when all is logged
	// Output:
	// level=WARN msg="lock lost" key=k fence=4 name=worker-1 cause="unlocked by force: it hangs"
	// <nil> <nil>
}
