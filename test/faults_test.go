package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// Ensure that an expiry that may or may not be in the file ends the session with ErrFailed, not as
// expired, and that no session is granted its lock; and that the next Open, which finds the expiry
// in the file, has it with its delay and fence.
func TestG7G8_DoubtfulExpiry(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: 5 * time.Second})
		lock := h.lock(s, "k")
		line := h.line("k", h.sessions(2)...)
		c.failAfter(errDisk)
		h.advance(time.Minute)
		for what, err := range map[string]error{
			"session": s.Err(), "lock": lock.Err(),
			"first": line.calls[0].wait(), "second": line.calls[1].wait(),
		} {
			if !errors.Is(err, lockd.ErrFailed) || !errors.Is(err, errDisk) ||
				errors.Is(err, lockd.ErrExpired) {
				t.Errorf("%s: got %v, want ErrFailed with its cause", what, err)
			}
		}
		if h.entry("k").Session != s.ID() {
			t.Error("the expiry is visible")
		}
		c.failAfter(nil)
		h.reopen()
		next := h.session(nil)
		if got := h.remaining(next, "k"); got != 5*time.Second {
			t.Errorf("delay: got %v", got)
		}
		h.advance(5 * time.Second)
		if fence := h.lock(next, "k").Sequencer().Fence; fence <= lock.Sequencer().Fence {
			t.Errorf("fence %d after %d", fence, lock.Sequencer().Fence)
		}
	})
}

// Ensure that the leader of a batch that was dropped with the batch before writes nothing, not even
// what the batch before left to be done in the file: the file may be closed at any moment.
func TestG12_DroppedBatchWritesNothing(t *testing.T) {
	putTo := func(h *harness, i int) error {
		return second(h.Put(strconv.Itoa(i), make([]byte, 300), nil))
	}
	last := 0 // the commit after which there is something to be done
	onFile(t, func(h *harness) {
		c := h.commits()
		for ; c.wroteBeside() == 0; last++ {
			h.must(putTo(h, last))
			h.settle()
		}
		last--
	})
	onFile(t, func(h *harness) {
		c := h.commits()
		for i := range last {
			h.must(putTo(h, i))
		}
		call := c.held(func() error { return putTo(h, last) })
		followers := h.crowd(1)
		h.settle()
		c.failAfter(errDisk)
		c.release(nil)
		mustFail(t, "first", call.wait())
		mustFail(t, "follower", followers[0].wait())
		h.settle()
		if n := c.wroteBeside(); n > 0 {
			t.Errorf("it was written to %d times", n)
		}
		c.failAfter(nil)
	})
}

// Ensure that writers that joined the next batch while a doubtful one was committed get ErrCommit,
// and that the next Open finds the doubtful batch whole and nothing of the next.
func TestG3G11_DoubtfulWithFollowers(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		first := c.held(func() error {
			return h.Update(func(tx *lockd.Txn) error {
				return errors.Join(second(tx.Put("a", nil, nil)), second(tx.Put("b", nil, nil)))
			})
		})
		calls := h.crowd(3)
		begun := c.begun()
		c.failAfter(errDisk)
		c.release(nil)
		mustFail(t, "first", first.wait())
		for _, call := range calls {
			mustFail(t, "follower", call.wait())
		}
		if err := second(h.Put("later", nil, nil)); !errors.Is(err, lockd.ErrFailed) {
			t.Errorf("put: got %v, want ErrFailed", err)
		}
		if h.Snapshot().Len() != 0 || c.begun() != begun {
			t.Errorf("%d keys, %d more commits", h.Snapshot().Len(), c.begun()-begun)
		}
		c.failAfter(nil)
		h.reopen()
		h.entry("a")
		h.entry("b")
		if got := h.Snapshot().Len(); got != 2 {
			t.Errorf("after the reopen: %d keys, want 2", got)
		}
	})
}

// Ensure that a call that gives up while its grant is committed returns at once, also if the commit
// turns out doubtful; and that after the next Open no session holds the lock.
func TestG11_GivingUpOnADoubtfulGrant(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
		ctx, cancel := context.WithCancel(h.t.Context())
		grant := c.held(func() error { return second(s.Lock(ctx, "k", nil)) })
		cancel()
		if err := grant.wait(); !errors.Is(err, context.Canceled) { // the commit is still held
			t.Fatalf("lock: got %v", err)
		}
		c.failAfter(errDisk)
		c.release(nil)
		h.settle()
		if !errors.Is(s.Err(), lockd.ErrFailed) {
			t.Errorf("session: got %v, want ErrFailed", s.Err())
		}
		c.failAfter(nil)
		h.reopen()
		next := h.session(nil)
		if got := h.remaining(next, "k"); got != 5*time.Second { // its process is gone
			t.Errorf("delay: got %v", got)
		}
		h.advance(5 * time.Second)
		h.lock(next, "k")
	})
}

// Ensure that a session which outlives its process has after the next Open the lock of a doubtful
// grant whose caller had given up or got ErrCommit, that no other session gets it meanwhile, and
// that the session can take it over and release it.
func TestG1_DoubtfulGrantOfIndependent(t *testing.T) {
	for name, gaveUp := range map[string]bool{"who gave up": true, "who was told": false} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				id := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent}).ID()
				s, err := h.DB.Session(id)
				h.must(err)
				ctx, cancel := context.WithCancel(h.t.Context())
				defer cancel()
				grant := c.held(func() error { return second(s.Lock(ctx, "k", nil)) })
				if gaveUp {
					cancel()
					if err := grant.wait(); !errors.Is(err, context.Canceled) {
						t.Fatalf("lock: got %v", err)
					}
				}
				c.failAfter(errDisk)
				c.release(nil)
				h.settle()
				if !gaveUp {
					mustFail(t, "lock", grant.wait())
				}
				c.failAfter(nil)
				h.reopen()

				next := h.session(nil)
				var locked *lockd.LockedError
				err = second(next.TryLock("k", nil))
				if !errors.As(err, &locked) || locked.Holder != id {
					t.Fatalf("another session: got %v", err)
				}
				s, err = h.DB.Session(id)
				h.must(err)
				h.must(h.lock(s, "k").Unlock())
				h.lock(next, "k")
			})
		})
	}
}

// faulty are the two ways in which a commit fails around bbolt's meta page: before it, the file has
// nothing of the commit, and after it the whole commit.
var faulty = []struct {
	name  string
	hooks store.Hooks
	there bool
}{
	{"before", store.Hooks{BeforeCommit: func() error { return errDisk }}, false},
	{"after", store.Hooks{AfterCommit: func() error { return errDisk }}, true},
}

// Ensure that a Close whose last commit fails says so, ends everything in the process nevertheless,
// and gives up the file; and that the next Open ends what the file still has, with its delay.
func TestG7G12_CloseFails(t *testing.T) {
	for _, fault := range faulty {
		t.Run(fault.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				s := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
				lock := h.lock(s, "k")
				line := h.line("k", h.session(nil))
				changed := h.changed(h.t.Context(), lockd.PrefixScope(""), h.Snapshot().Index())
				if fault.there {
					c.failAfter(errDisk)
				} else {
					c.fail(errDisk)
				}
				mustFail(t, "close", h.Close())
				h.must(h.Close())
				for what, err := range map[string]error{
					"session": s.Err(), "lock": lock.Err(), "waiter": line.calls[0].wait(),
				} {
					if !errors.Is(err, lockd.ErrClosed) && !errors.Is(err, lockd.ErrFailed) {
						t.Errorf("%s: got %v", what, err)
					}
				}
				if !errors.Is(s.Err(), lockd.ErrNoSession) ||
					!errors.Is(lock.Err(), lockd.ErrNotHeld) {
					t.Errorf("got %v and %v, want that they have ended", s.Err(), lock.Err())
				}
				h.settle()
				if !isClosed(s.Done()) || !isClosed(lock.Done()) || !isClosed(changed) {
					t.Error("Done is open, or Wait has not returned")
				}
				c.fail(nil)
				c.failAfter(nil)
				h.open()
				want := 5 * time.Second // its process is gone
				if fault.there {        // its owner had closed
					want = 0
				}
				if got := h.remaining(h.session(nil), "k"); got != want {
					t.Errorf("delay: got %v, want %v", got, want)
				}
			})
		})
	}
}

// Ensure that an Open whose own commit fails, for the node of a new file or the ends of a process
// that is gone, says so and gives up the file, and that the next Open does what was left.
func TestOpen_CommitFails(t *testing.T) {
	for _, fault := range faulty {
		t.Run(fault.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				opts := &lockd.Options{Clock: probe(h.clock, fault.hooks)}
				path := filepath.Join(h.t.TempDir(), "new.db")
				db, err := lockd.Open(path, opts)
				if db != nil {
					t.Fatalf("new file: opened, with %v", err)
				}
				mustFail(t, "new file", err)
				h.must(lockd.Verify(path, nil))

				s := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
				h.lock(s, "k")
				image, err := os.ReadFile(h.path)
				h.must(err)
				path = filepath.Join(h.t.TempDir(), "crashed.db")
				h.must(os.WriteFile(path, image, 0o600))
				db, err = lockd.Open(path, opts)
				if db != nil {
					t.Fatalf("crashed: opened, with %v", err)
				}
				mustFail(t, "crashed", err)

				next := &harness{t: h.t, clock: h.clock, opts: h.opts, path: path}
				next.open()
				defer func() { h.must(next.Close()) }()
				if err := second(next.DB.Session(s.ID())); !errors.Is(err, lockd.ErrNoSession) {
					t.Errorf("session: got %v", err)
				}
				if got := next.remaining(next.session(nil), "k"); got != 5*time.Second {
					t.Errorf("delay: got %v", got)
				}
			})
		})
	}
}

// Ensure that a transaction which locks several keys, ends a session and deletes is taken back
// whole when its commit fails, and can be repeated as it is.
func TestG5G11_FailedTransactionIsRepeated(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		old := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		lock, s := h.lock(old, "a"), h.session(nil)
		line := h.line("a", h.session(nil))
		h.put("gone", "v", 0)
		all := func() error {
			return h.Update(func(tx *lockd.Txn) error {
				return errors.Join(
					tx.EndSession(old.ID()),
					second(tx.Lock("b", s.ID(), nil)), second(tx.Lock("c", s.ID(), nil)),
					second(tx.Delete("gone")),
				)
			})
		}
		before := h.contents()
		c.fail(errDisk)
		for range 3 {
			mustFail(t, "update", all())
			line.mustWait(0)
			if got := h.contents(); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Fatalf("before %v, after %v", before, got)
			}
			if old.Err() != nil || lock.Err() != nil {
				t.Fatalf("ended: %v, %v", old.Err(), lock.Err())
			}
		}
		c.fail(nil)
		h.must(all())
		if !errors.Is(lock.Err(), lockd.ErrDestroyed) {
			t.Errorf("lock: got %v", lock.Err())
		}
		b, c2, a := h.entry("b"), h.entry("c"), h.entry("a")
		if b.Session != s.ID() || c2.Session != s.ID() ||
			b.Fence != c2.Fence || a.Fence != b.Fence {
			t.Errorf("got %+v, %+v, %+v", a, b, c2)
		}
		if _, there := h.Get("gone"); there {
			t.Error("gone is there")
		}
		line.serve(0)
	})
}

// Ensure that a backup is not restored into a new file on a network file system, that the error
// says why, that nothing is left there, and that the option lets it through.
func TestRestore_NetworkFS(t *testing.T) {
	onFile(t, func(h *harness) {
		h.put("k", "v", 0)
		b := h.backup()
		remote := store.Hooks{NetworkFS: func(string) string { return "NFS" }}
		path := filepath.Join(h.t.TempDir(), "restored.db")
		err := lockd.Restore(path, bytes.NewReader(b), 0,
			&lockd.Options{Clock: probe(nil, remote)})
		if !errors.Is(err, lockd.ErrInvalid) || !strings.Contains(err.Error(), "NFS") ||
			!strings.Contains(err.Error(), "Options.AllowNetworkFS") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
		left, err := os.ReadDir(filepath.Dir(path))
		if len(left) > 0 || err != nil {
			t.Errorf("left in the folder: %v (%v)", left, err)
		}
		allowed := &lockd.Options{Clock: probe(nil, remote), AllowNetworkFS: true}
		h.must(lockd.Restore(path, bytes.NewReader(b), 0, allowed))
		h.must(h.Close())
		h.path = path
		h.open()
		if got := string(h.entry("k").Value); got != "v" {
			t.Errorf("got %q", got)
		}
	})
}

// Ensure that Open, Verify and Compact refuse a file on a network file system with ErrInvalid and a
// text that names it and the option, and that the option lets it through.
func TestOpen_NetworkFS(t *testing.T) {
	onFile(t, func(h *harness) {
		h.put("k", "v", 0)
		h.must(h.Close())
		remote := func(string) string { return "NFS" }
		h.probe.Hooks.File = store.Hooks{NetworkFS: remote}
		fresh := filepath.Join(h.t.TempDir(), "new.db")
		for what, call := range map[string]func() error{
			"open":    func() error { return second(lockd.Open(h.path, &h.opts)) },
			"new":     func() error { return second(lockd.Open(fresh, &h.opts)) },
			"verify":  func() error { return lockd.Verify(h.path, &h.opts) },
			"compact": func() error { return lockd.Compact(h.path, &h.opts) },
		} {
			err := call()
			if !errors.Is(err, lockd.ErrInvalid) || !strings.Contains(err.Error(), "NFS") ||
				!strings.Contains(err.Error(), "Options.AllowNetworkFS") {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if _, err := os.Stat(fresh); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is a file: %v", err)
		}
		h.opts.AllowNetworkFS = true
		h.must(lockd.Verify(h.path, &h.opts))
		h.must(lockd.Compact(h.path, &h.opts))
		h.open()
		if got := string(h.entry("k").Value); got != "v" {
			t.Errorf("got %q", got)
		}
	})
}

// Ensure that a file which is removed under the open database ends every hold with the next write,
// which is not acknowledged: an Open of the path from then on has another file.
func TestG1G2_RemovedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	onFile(t, func(h *harness) {
		lock := h.lock(h.session(nil), "k")
		h.must(os.Remove(h.path))
		for what, err := range map[string]error{
			"put": second(h.Put("new", nil, nil)), "lock": lock.Err(), "database": h.Err(),
		} {
			failed := what == "put" || errors.Is(err, lockd.ErrFailed)
			if !failed || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: got %v, want ErrFailed because of ErrNotExist", what, err)
			}
		}
		if _, found := h.Get("new"); found || !isClosed(lock.Done()) {
			t.Errorf("found %t, Done closed %t", found, isClosed(lock.Done()))
		}
		h.shut()
	})
}

// Ensure that a file which is cut off under the open database ends every hold and wait, with the
// fault of the file as the cause, and not the process; that reads go on; and that Close gives the
// file up, and the next Open says that it is damaged.
func TestG10G12_CutOffWhileOpen(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		lock := h.lock(s, "k")
		line := h.line("k", h.session(nil))
		h.put("old", "old", 0)
		h.must(os.Truncate(h.path, int64(2*os.Getpagesize())))
		h.advance(time.Minute) // the expiry is the first to notice
		for what, err := range map[string]error{
			"session": s.Err(), "lock": lock.Err(), "waiter": line.calls[0].wait(),
			"put": second(h.Put("new", nil, nil)), "database": h.Err(),
		} {
			if !errors.Is(err, lockd.ErrFailed) || !errors.Is(err, lockd.ErrCorrupt) ||
				errors.Is(err, lockd.ErrExpired) {
				t.Errorf("%s: got %v, want ErrFailed because of ErrCorrupt", what, err)
			}
		}
		if got := string(h.entry("old").Value); got != "old" || !isClosed(lock.Done()) {
			t.Errorf("got %q, Done closed %t", got, isClosed(lock.Done()))
		}
		h.shut()
		db, err := lockd.Open(h.path, &h.opts)
		if db != nil || !errors.Is(err, lockd.ErrCorrupt) {
			t.Errorf("open: got %v, %v", db, err)
		}
	})
}
