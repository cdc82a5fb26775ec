package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// updating is an Update whose function does one step when the test says so, and rests otherwise.
type updating struct {
	h     *harness
	steps chan func(tx *lockd.Txn) error // nil has the function fail
	done  chan error                     // of a step
	call  *call
}

// updating begins an Update. It returns when the function runs.
func (h *harness) updating() *updating {
	u := &updating{h: h, steps: make(chan func(tx *lockd.Txn) error), done: make(chan error)}
	u.call = start(func() error {
		return h.Update(func(tx *lockd.Txn) error {
			for step := range u.steps {
				if step == nil {
					return errTest
				}
				u.done <- step(tx)
			}
			return nil
		})
	})
	h.settle()
	return u
}

var errTest = errors.New("the function's own")

// step has the function call fn, and returns when the function rests again.
func (u *updating) step(fn func(tx *lockd.Txn) error) {
	u.h.t.Helper()
	u.steps <- fn
	u.h.must(<-u.done)
	u.h.settle()
}

// fail has the function return an error.
func (u *updating) fail() {
	u.steps <- nil
	if err := u.call.wait(); !errors.Is(err, errTest) {
		u.h.t.Fatalf("update: got %v, want the function's error", err)
	}
}

// end has the function return nil.
func (u *updating) end() {
	u.h.t.Helper()
	close(u.steps)
	u.h.must(u.call.wait())
}

// sights is what an operator sees of a database.
type sights struct {
	stats   lockd.Stats
	locks   []string
	history []lockd.Event
}

func (h *harness) sights() sights {
	return sights{h.Stats(), h.locksAs(), h.History("k")}
}

// mustStillSee fails the test unless an operator sees the same as before, on a goroutine of the
// test and, while the function of an Update runs, on its own.
func (u *updating) mustStillSee(what string, want sights) {
	u.h.t.Helper()
	u.compare(what, want)
	u.step(func(*lockd.Txn) error {
		u.compare(what+", inside", want)
		return nil
	})
}

func (u *updating) compare(what string, want sights) {
	u.h.t.Helper()
	if got := u.h.sights(); !reflect.DeepEqual(got, want) {
		u.h.t.Errorf("%s: got\n%+v\nwant\n%+v", what, got, want)
	}
}

// scene is locks that are held, awaited and delayed, and sessions that hold and wait.
type scene struct{ a, b, c *lockd.Session }

func (h *harness) scene() scene {
	s := scene{h.named("a"), h.named("b"), h.named("c")}
	h.lock(s.a, "k")
	h.lock(s.a, "k/other")
	h.wait(h.t.Context(), s.b, "k", nil)
	h.settle()
	h.waitAll(h.t.Context(), s.c, "k", "k/other")
	h.settle()
	lost := h.named("lost")
	h.lock(lost, "delayed")
	h.must(h.EndSession(lost.ID()))
	h.advance(time.Second)
	return s
}

// changes are what a function may do to the locks of the scene.
func (s scene) changes(h *harness) map[string]func(tx *lockd.Txn) error {
	end := func(sessions ...*lockd.Session) func(tx *lockd.Txn) error {
		return func(tx *lockd.Txn) error {
			for _, session := range sessions {
				if err := tx.EndSession(session.ID()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return map[string]func(tx *lockd.Txn) error{
		"Put":    func(tx *lockd.Txn) error { return second(tx.Put("k", []byte("new"), nil)) },
		"Lock":   func(tx *lockd.Txn) error { return second(tx.Lock("new", s.c.ID(), nil)) },
		"Unlock": func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.a.ID())) },
		"Lock and Unlock": func(tx *lockd.Txn) error {
			if err := second(tx.Lock("new", s.c.ID(), nil)); err != nil {
				return err
			}
			return second(tx.Unlock("new", s.c.ID()))
		},
		"Delete": func(tx *lockd.Txn) error { return second(tx.Delete("k/other")) },
		"CompareAndDelete": func(tx *lockd.Txn) error {
			return second(tx.CompareAndDelete("k", h.entry("k").ModifyIndex))
		},
		"DeletePrefix":         func(tx *lockd.Txn) error { return second(tx.DeletePrefix("k")) },
		"DeleteAll":            func(tx *lockd.Txn) error { return second(tx.DeleteAll()) },
		"end of the holder":    end(s.a),
		"end of who waits":     end(s.b),
		"end of who wants all": end(s.c),
		"end of everybody":     end(s.c, s.a, s.b),
		"DeleteNode": func(tx *lockd.Txn) error {
			return second(tx.Catalog().DeleteNode("local"))
		},
	}
}

// Ensure that Stats, Locks and History answer while the function of an Update runs, whatever it has
// done by then, and show what is published; and that they show what it did when that is durable.
func TestUpdate_G3_StatsAndLocksShowWhatIsPublished(t *testing.T) {
	each(t, func(h *harness) {
		for name, change := range h.scene().changes(h) {
			before := h.sights()
			u := h.updating()
			u.mustStillSee("at first", before)
			u.step(change)
			u.mustStillSee(name, before)
			u.fail()
			u.compare(name+", undone", before)
		}
		before := h.sights()
		u := h.updating()
		u.step(func(tx *lockd.Txn) error { return second(tx.DeleteAll()) })
		u.mustStillSee("DeleteAll", before)
		u.end()
		h.settle()
		if after := h.sights(); after.stats.Locks != 1 || after.stats.Ends.KeyDeleted != 2 {
			h.t.Errorf("afterwards: %+v", after)
		}
	})
}

// Ensure the same for a lock whose holders share it, and have all left it in the function.
func TestUpdate_G3_LocksShowSharesThatItEnds(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.named("a"), h.named("b")
		h.must(second(a.TryLock("k", shared)))
		h.must(second(b.TryLock("k", shared)))
		before := h.sights()
		u := h.updating()
		u.step(func(tx *lockd.Txn) error {
			return errors.Join(second(tx.Unlock("k", a.ID())), second(tx.Unlock("k", b.ID())))
		})
		u.mustStillSee("both have left", before)
		u.fail()
		u.compare("undone", before)
	})
}

// Ensure the same while a commit on which the function depends is not durable.
func TestUpdate_G3_StatsAndLocksBesideACommit(t *testing.T) {
	for _, name := range []string{"Put", "DeleteAll", "end of the holder"} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				s := h.scene()
				before := h.sights()
				first := c.held(func() error { return second(h.Put("other", nil, nil)) })
				next := start(func() error {
					return h.Update(func(tx *lockd.Txn) error {
						return errors.Join(second(tx.Unlock("k", s.a.ID())),
							tx.EndSession(s.c.ID()))
					})
				})
				h.settle()
				u := h.updating()
				u.mustStillSee("at first", before)
				u.step(s.changes(h)[name])
				u.mustStillSee(name, before)
				c.release(nil)
				u.fail()
				h.must(first.wait())
				h.must(next.wait())
			})
		})
	}
}

// Ensure that Renew does not wait for the function of an Update, and counts (G6).
func TestRenew_G6_WhileAnUpdateRuns(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		ending := h.session(&lockd.SessionOptions{TTL: time.Minute})
		u := h.updating()
		h.advance(9 * time.Second)
		h.must(s.Renew())
		u.step(func(*lockd.Txn) error { return s.Renew() }) // inside
		h.advance(9 * time.Second)
		u.step(func(tx *lockd.Txn) error { return tx.EndSession(ending.ID()) })
		renewal := start(ending.Renew) // depends on what becomes of that
		u.end()
		if err := renewal.wait(); !errors.Is(err, lockd.ErrDestroyed) {
			h.t.Errorf("of a session that the function ended: got %v", err)
		}
		h.settle()
		h.must(s.Err())
		h.advance(time.Second)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("in the end: got %v, want ErrExpired", s.Err())
		}
	})
}

// Ensure that KeepAlive renews before the deadline also if the function of an Update, which takes
// the end of the session back, has kept the call waiting for most of the TTL.
func TestSession_G6_KeepAliveBesideAnEndTakenBack(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		ctx, cancel := context.WithCancel(h.t.Context())
		u := h.updating()
		u.step(func(tx *lockd.Txn) error { return tx.EndSession(s.ID()) })
		h.advance(time.Second)
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		h.advance(7 * time.Second)
		u.fail()
		h.settle()
		h.advance(time.Minute)
		h.must(s.Err())
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("keep alive: got %v", err)
		}
	})
}

// Ensure that NewKeeper, which writes nothing, does not wait for the function of an Update.
func TestKeeper_MadeWhileAnUpdateRuns(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		update := h.updating()
		made := start(func() error { return second(h.NewKeeper(nil)) })
		h.settle()
		if !made.returned() {
			h.t.Error("NewKeeper waits")
		}
		update.step(func(*lockd.Txn) error { return second(h.NewKeeper(nil)) })
		update.end()
		h.must(made.wait())
	})
}

// Ensure that an Update whose function has run for a second is logged, once, while it runs, with
// the function and its line; and that a quicker one is not.
func TestLogger_SlowUpdate(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{}
		h.log(l)
		h.mustLog(l, nil)
		for range 2 {
			u := h.updating()
			h.advance(time.Second - 1)
			h.mustLog(l, nil)
			u.end()
			h.advance(time.Second)
			h.mustLog(l, nil)
		}
		u := h.updating()
		h.advance(time.Second)
		h.settle()
		lines := l.take()
		file, line, _ := strings.Cut(lines[len(lines)-1], "update_beside_test.go:")
		want := fmt.Sprintf("%d WARN update slow: took=1s function=%s.(*harness).updating",
			h.clock.Now().Unix(), testPackage)
		if n, err := strconv.Atoi(line); len(lines) != 1 || err != nil || n == 0 ||
			!strings.HasPrefix(file, want) {
			h.t.Errorf("got %q, want %q and a line of this file", lines, want)
		}
		u.step(func(*lockd.Txn) error { return nil })
		h.advance(time.Minute)
		h.mustLog(l, nil)
		u.end()
		h.advance(time.Minute)
		h.mustLog(l, nil)
	})
}

// Ensure that the record of a slow Update names the user's function: of a fenced Update too, and by
// its name alone if it is a method, which has no line as a function.
func TestLogger_SlowUpdate_Function(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{}
		h.log(l)
		proof := h.lock(h.session(nil), "k").Sequencer()
		s := slowly{h}
		for name, update := range map[string]func() error{
			"slowly.run": func() error { return h.Update(s.run) },
			"TestLogger_SlowUpdate_Function.": func() error {
				return h.If(proof).Update(func(tx *lockd.Txn) error { return s.run(tx) })
			},
		} {
			h.must(update())
			h.settle()
			lines := strings.Join(l.take(), "\n")
			if !strings.Contains(lines, " function="+testPackage+"."+name) {
				h.t.Errorf("got %q, want the function %s", lines, name)
			}
		}
	})
}

// testPackage is the path of this package.
const testPackage = "github.com/lockd/lockd/test_test"

// slowly is a user's type with a method for Update.
type slowly struct{ h *harness }

func (s slowly) run(*lockd.Txn) error {
	s.h.clock.Add(time.Second)
	s.h.settle()
	return nil
}

// Ensure that no other call writes while the function of an Update runs, however many want to, and
// that all of them get their turns.
func TestUpdate_NobodyWritesMeanwhile(t *testing.T) {
	for name, path := range map[string]string{
		"Memory": "", "File": filepath.Join(t.TempDir(), "lockd.db"),
	} {
		t.Run(name, func(t *testing.T) {
			crowdOfUpdates(t, path)
		})
	}
}

func crowdOfUpdates(t *testing.T, path string) {
	const crowd, rounds = 8, 50
	open := func() (*lockd.DB, error) { return lockd.New(nil) }
	if path != "" {
		open = func() (*lockd.DB, error) {
			return lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
		}
	}
	db, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := db.NewSession(&lockd.SessionOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	add := func(tx *lockd.Txn) error {
		e, _ := tx.Get("n")
		runtime.Gosched()
		if again, _ := tx.Get("n"); !reflect.DeepEqual(again, e) {
			return fmt.Errorf("%+v has become %+v", e, again)
		}
		n, _ := strconv.Atoi(string(e.Value))
		if err := second(tx.Put("n", strconv.AppendInt(nil, int64(n+1), 10), nil)); err != nil {
			return err
		}
		if err := second(tx.Lock("held", s.ID(), nil)); err != nil {
			return err
		}
		runtime.Gosched()
		return second(tx.Unlock("held", s.ID()))
	}
	var all sync.WaitGroup
	for i := range crowd {
		for _, fn := range []func() error{
			func() error { return db.Update(add) },
			func() error { return second(db.Put("n", fmt.Append(nil, 0), nil)) },
			func() error {
				l, err := s.TryLock(fmt.Sprint(i), nil)
				if err != nil {
					return err
				}
				return l.Unlock()
			},
			s.Renew,
			func() error {
				for l := range db.Locks() {
					if l.Key == "held" {
						return fmt.Errorf("a lock that was never published: %+v", l)
					}
				}
				if n := db.Stats().Locks; n > crowd {
					return fmt.Errorf("%d locks", n)
				}
				return nil
			},
		} {
			all.Go(func() {
				for range rounds {
					if err := fn(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}
