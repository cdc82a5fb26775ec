package lockdtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

func TestNew(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		if !db.Now().Equal(time.Unix(0, 0)) || db.Snapshot().Len() != 0 {
			t.Fatalf("it is %v, and there are %d keys", db.Now(), db.Snapshot().Len())
		}
	})
}

func TestNew_Options(t *testing.T) {
	mock := clock.NewMock()
	opts := &lockd.Options{Clock: mock, Node: "web"}
	db := lockdtest.New(t, opts)
	if _, ok := db.Snapshot().Catalog().Node("web"); !ok || db.Mock != mock || opts.Clock != mock {
		t.Fatal("the options are not used as they are")
	}
	fails(t, func(t testing.TB) { lockdtest.New(t, &lockd.Options{History: -1}) },
		[]string{"Options.History"})
	fails(t, func(t testing.TB) { lockdtest.New(t, &lockd.Options{Clock: clock.New()}) },
		[]string{"Options.Clock is a *clock.clock"})
	fails(t, func(t testing.TB) { lockdtest.New(t, &lockd.Options{Clock: (*clock.Mock)(nil)}) },
		[]string{"Options.Clock is a *clock.Mock"})
}

// Ensure that the log is in the output of the test, and none of it in the process's own log, unless
// the options have a logger.
func TestNew_LogsToTheTest(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var def, own bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&def, nil)))
	for _, logger := range []*slog.Logger{nil, slog.New(slog.NewTextHandler(&own, nil))} {
		f := runFake(func(t testing.TB) {
			db := lockdtest.New(t, &lockd.Options{Logger: logger})
			s, err := db.NewSession(nil)
			if err == nil {
				_, err = s.TryLock("k", nil)
			}
			if err = errors.Join(err, db.EndSession(s.ID())); err != nil {
				t.Fatal(err)
			}
		})
		if len(f.texts) > 0 {
			t.Errorf("failures: %q", f.texts)
		}
		output := f.output.String()
		if logger == nil && !strings.Contains(output, `level=WARN msg="lock lost" index=5 key=k`) ||
			logger != nil && output != "" {
			t.Errorf("output of the test: got %q", output)
		}
	}
	if !strings.Contains(own.String(), "lock lost") || def.Len() > 0 {
		t.Errorf("own: %q, default: %q", own.String(), def.String())
	}
}

// Ensure that the two embedded types have no method in common: a call of it would be ambiguous.
func TestDB_NoMethodIsAmbiguous(t *testing.T) {
	mock, db := reflect.TypeFor[*clock.Mock](), reflect.TypeFor[*lockd.DB]()
	for i := range mock.NumMethod() {
		name := mock.Method(i).Name
		if _, both := db.MethodByName(name); both {
			t.Errorf("both have %s: give lockdtest.DB one of its own", name)
		}
	}
}

// Ensure that a wait that cannot succeed fails the test with the state that it found; in a bubble
// at once.
func TestWaits_Fail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var readers []string
		texts := run(func(t testing.TB) {
			db := lockdtest.New(t, nil)
			for range 2 {
				reader := session(t, db, "", 0)
				_, err := reader.TryLock("k", &lockd.LockOptions{Mode: lockd.Shared})
				must(t, err)
				readers = append(readers, reader.ID().String())
			}
			db.WaitForWaiters("k", 1)
		})
		for _, id := range readers {
			if len(texts) != 1 || !strings.Contains(texts[0], `"k" is shared by session `+id) {
				t.Errorf("failures %q do not name the reader %s", texts, id)
			}
		}
		if len(readers) != 2 {
			t.Errorf("%d readers", len(readers))
		}
		fails(t, func(t testing.TB) {
			db := lockdtest.New(t, nil)
			holder := session(t, db, "", 0)
			tryLock(t, holder, "k")
			go session(t, db, "", 0).Lock(t.Context(), "k", nil)
			db.WaitForWaiters("k", 2)
		}, []string{`wait for the lock of "k": got 1, want 2`, `"k" is held by session `})
		fails(t, func(t testing.TB) {
			db := lockdtest.New(t, nil)
			db.WaitForKeepAlive(session(t, db, "", 0))
		}, []string{"nothing keeps session ", " alive"})
		fails(t, func(t testing.TB) {
			db := lockdtest.New(t, nil)
			db.HoldCommits()
			db.WaitForCommit()
		}, []string{"no commit is held"})
	})
}

// Ensure that a call that still waits when the test is over fails it, and says who waits for what.
func TestCleanup_ReportsBlockedCalls(t *testing.T) {
	for name, bubble := range map[string]func(*testing.T, func(*testing.T)){
		"Plain":  func(t *testing.T, test func(t *testing.T)) { test(t) },
		"Bubble": synctest.Test,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var waiting *call
				var holder, waiter *lockd.Session
				texts := run(func(t testing.TB) {
					db := lockdtest.New(t, nil)
					holder, waiter = session(t, db, "", 0), session(t, db, "worker", 0)
					tryLock(t, holder, "k")
					waiting = lockInTurn(db, waiter, "k", 0)
				})
				if err := waiting.wait(); !errors.Is(err, lockd.ErrClosed) {
					t.Errorf("the call: got %v, want ErrClosed", err)
				}
				want := `lockdtest: when the test was over, a call of session "worker" (` +
					waiter.ID().String() + `) still waited for the lock of ["k"], ` +
					`"k" is held by session ` + holder.ID().String() +
					`: release it, or end the call's context`
				if len(texts) != 1 || texts[0] != want {
					t.Errorf("got %q, want %q", texts, want)
				}
			})
		})
	}
}

// Ensure that a call that waits for a slot of a semaphore counts as a waiter, gets the slot when
// the slot is due, and fails the test if it still waits at the end.
func TestWaits_ForASlot(t *testing.T) {
	both(t, func(t *testing.T, _ *lockdtest.DB) {
		var waiting *call
		var next, last *lockd.Session
		acquire := func(db *lockdtest.DB, s *lockd.Session) *call {
			c := start(func() error {
				_, err := s.Acquire(context.Background(), "pool", 1)
				return err
			})
			db.WaitForWaiters("pool/.lock", 1)
			return c
		}
		texts := run(func(t testing.TB) {
			db := lockdtest.New(t, nil)
			holder := session(t, db, "holder", time.Minute)
			next, last = session(t, db, "next", 0), session(t, db, "last", 0)
			_, err := holder.TryAcquire("pool", 1)
			must(t, err)
			waiting = acquire(db, next)
			db.Expire(holder)
			db.Advance(lockd.DefaultLockDelay)
			must(t, waiting.wait())
			waiting = acquire(db, last)
		})
		if err := waiting.wait(); !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("the call: got %v, want ErrClosed", err)
		}
		want := fmt.Sprintf(`lockdtest: when the test was over, a call of session "last" (%s) `+
			`still waited for a slot of "pool", "pool/%s" is held by session %[2]s: `+
			`release it, or end the call's context`, last.ID(), next.ID())
		if len(texts) != 1 || texts[0] != want {
			t.Errorf("got %q, want %q", texts, want)
		}
	})
}

// Ensure that what ends with the test is no leak: calls whose context is the test's, sessions,
// locks, held commits.
func TestCleanup_PassesWhatEnds(t *testing.T) {
	for range 20 {
		var calls []*call
		fails(t, func(t testing.TB) {
			db := lockdtest.New(t, nil)
			holder, waiter := session(t, db, "", time.Minute), session(t, db, "", 0)
			tryLock(t, holder, "k")
			calls = append(calls,
				start(func() error { _, err := waiter.Lock(t.Context(), "k", nil); return err }),
				start(func() error { return holder.KeepAlive(context.Background()) }),
				start(func() error {
					for _, err := range db.Watch(t.Context(), lockd.KeyScope("none"), 0) {
						return err
					}
					return nil
				}),
			)
			db.WaitForWaiters("k", 1)
			db.WaitForKeepAlive(holder)
			db.HoldCommits()
			put := func() error { _, err := db.Put("x", nil, nil); return err }
			calls = append(calls, start(put))
			db.WaitForCommit()
		})
		for _, c := range calls {
			<-c.done
		}
		must(t, calls[len(calls)-1].err) // the held one was released
	}
}

// Ensure that the cleanup waits no longer for a call than the call takes to end.
func TestCleanup_IsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var waiting *call
		fails(t, func(t testing.TB) {
			db := lockdtest.New(t, nil)
			tryLock(t, session(t, db, "", 0), "k")
			waiter := session(t, db, "", 0)
			waiting = start(func() error {
				_, err := waiter.Lock(t.Context(), "k", nil)
				return err
			})
			db.WaitForWaiters("k", 1)
		})
		if err := waiting.wait(); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want that its context had ended", err)
		}
		if took := time.Since(began); took > 100*time.Millisecond { // of the bubble
			t.Fatalf("took %v", took)
		}
	})
}

// Ensure that a fault that was never used fails the test: the test would have shown nothing.
func TestCleanup_ReportsUnusedFaults(t *testing.T) {
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		session(t, db, "", 0) // its end at Close is no commit of the test's
		db.FailNextCommit(errDisk)
	}, []string{`FailNextCommit("the disk is full"): no commit came after it`})
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		db.DropRenewals(session(t, db, "", time.Second), 3)
	}, []string{"DropRenewals(", ", 3): no renewal came after it"})
	fails(t, func(t testing.TB) { // one of many is enough
		db := lockdtest.New(t, nil)
		s := session(t, db, "", time.Second)
		db.DropRenewals(s, 1000)
		if err := s.Renew(); !errors.Is(err, lockdtest.ErrDropped) {
			t.Errorf("got %v, want ErrDropped", err)
		}
	})
}

func TestCleanup_ReportsAnInconsistentState(t *testing.T) {
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		db.FeignBug(errors.New("bug: two hold the lock"))
	}, []string{"not consistent: bug: two hold the lock"})
}

// Ensure that the test may close the database itself, and that its Close may fail.
func TestCleanup_Close(t *testing.T) {
	fails(t, func(t testing.TB) { must(t, lockdtest.New(t, nil).Close()) })
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		session(t, db, "", time.Second)
		db.FailNextCommit(errDisk)
		if err := db.Close(); !errors.Is(err, lockd.ErrCommit) || !errors.Is(err, errDisk) {
			t.Errorf("close: got %v, want ErrCommit", err)
		}
	})
}

// Ensure that a database that cannot be closed fails the test, and does not block it for ever.
func TestCleanup_ReportsThatItCannotClose(t *testing.T) {
	var update *call
	leave := make(chan struct{})
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		db.BePatientFor(10 * time.Millisecond)
		entered := make(chan struct{})
		update = start(func() error {
			return db.Update(func(*lockd.Txn) error { close(entered); <-leave; return nil })
		})
		<-entered
	}, []string{"cannot be closed", "Update"})
	close(leave)
	must(t, update.wait())
}

// Ensure that a database that the test left open is closed.
func TestCleanup_ClosesTheDatabase(t *testing.T) {
	var db *lockdtest.DB
	fails(t, func(t testing.TB) { db = lockdtest.New(t, nil) })
	if _, err := db.Put("k", nil, nil); !errors.Is(err, lockd.ErrClosed) {
		t.Fatalf("got %v, want ErrClosed", err)
	}
}
