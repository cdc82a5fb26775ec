package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// fullChild is set in the child process, whose files may not grow.
const fullChild = "LOCKD_TEST_FULL"

// inChild runs the test in a process of its own, because the limit on the size of files is one of
// the whole process.
func inChild(t *testing.T, test func(h *harness)) {
	t.Helper()
	if os.Getenv(fullChild) != "" {
		signal.Ignore(syscall.SIGXFSZ) // so that a write returns an error
		onFile(t, test)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), fullChild+"=yes")
	output, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	if !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Fatalf("the child has tested nothing:\n%s", output)
	}
}

// limit lets no file of the process grow beyond size bytes, nor be written beyond them. What the
// file has already stays. The returned function takes the limit away.
func (h *harness) limit(size int64) (room func()) {
	h.t.Helper()
	var before syscall.Rlimit
	h.must(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	room = func() { h.must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) }
	h.t.Cleanup(room) // before the database is closed
	limit := syscall.Rlimit{Cur: uint64(size), Max: before.Max}
	h.must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	return room
}

// noPage leaves room for bbolt's two meta pages, and so for no commit.
func noPage() int64 { return int64(2 * os.Getpagesize()) }

// mustBeFull fails the test unless err is ErrCommit because there is no room.
func mustBeFull(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lockd.ErrCommit) || !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("%s: got %v, want ErrCommit because of %q", what, err, syscall.EFBIG)
	}
}

// Ensure that without room every write fails with the cause and leaves all as it was, renewals and
// reads go on, a call that gives up returns, and an expiry is tried again; and that with room again
// handles, waiters in their order, the expiry and its delay go on from where they were.
func TestG3G9G11_NoRoom(t *testing.T) {
	inChild(t, func(h *harness) {
		const delay = 5 * time.Second
		doomed := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: delay})
		lost, s := h.lock(doomed, "k"), h.session(nil)
		held := h.lock(s, "held")
		line := h.line("k", h.sessions(3)...)
		h.put("old", "old", 0)
		before := h.contents()

		room := h.limit(noPage())
		for what, write := range map[string]func() error{
			"put":         func() error { return second(h.Put("old", []byte("new"), nil)) },
			"delete":      func() error { return second(h.Delete("old")) },
			"session":     func() error { return second(h.NewSession(nil)) },
			"end":         func() error { return h.EndSession(s.ID()) },
			"close":       s.Close,
			"try lock":    func() error { return second(s.TryLock("free", nil)) },
			"lock":        func() error { return second(s.Lock(h.t.Context(), "free", nil)) },
			"unlock":      held.Unlock,
			"the old one": lost.Unlock,
		} {
			mustBeFull(h.t, what, write())
		}
		h.settle()
		if after := h.contents(); fmt.Sprint(after) != fmt.Sprint(before) {
			h.t.Errorf("before %v, after %v", before, after)
		}
		h.must(doomed.Renew())
		h.must(h.CheckSequencer(held.Sequencer()))
		line.ends[1]()
		if err := line.calls[1].wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("who gave up: got %v", err)
		}
		h.advance(time.Minute + time.Second) // the expiry, and one more attempt
		if doomed.Err() != nil || lost.Err() != nil || held.Err() != nil {
			h.t.Errorf("ended: %v, %v, %v", doomed.Err(), lost.Err(), held.Err())
		}
		line.mustWait(0, 2)

		room()
		h.advance(2 * time.Second)
		if !errors.Is(doomed.Err(), lockd.ErrExpired) || !errors.Is(lost.Err(), lockd.ErrExpired) {
			h.t.Errorf("with room again: session %v, lock %v", doomed.Err(), lost.Err())
		}
		h.advance(delay - 1)
		line.mustWait(0, 2)
		h.advance(1)
		line.serve(0, 2)
		h.must(held.Unlock())
		written := h.put("old", "new", 0)
		h.reopen()
		if got := h.entry("old"); got.ModifyIndex != written.ModifyIndex {
			h.t.Errorf("after the reopen: got %+v, want %+v", got, written)
		}
	})
}

// Ensure that a transaction of many keys that found no room is not in the file later either: not by
// way of later transactions with keys in common.
func TestG11_NoRoomForMany(t *testing.T) {
	inChild(t, func(h *harness) {
		const keys, each = 2000, 40
		key := func(i int) string { return fmt.Sprintf("k%04d", i) }
		puts := func(from, count int, value string) error {
			return h.Update(func(tx *lockd.Txn) error {
				for i := range count {
					k := key((from + i*37) % keys)
					if _, err := tx.Put(k, []byte(value), nil); err != nil {
						return err
					}
				}
				return nil
			})
		}
		h.must(puts(0, keys, "first"))
		h.must(puts(1, each, "second"))
		room := h.limit(noPage())
		mustBeFull(h.t, "update", puts(5, each, "lost"))
		room()
		for i := range 200 {
			h.must(puts(1000+i, each, strings.Repeat("other", 20)))
		}
		before := h.contents()
		h.reopen()
		if after := h.contents(); fmt.Sprint(after) != fmt.Sprint(before) {
			h.t.Error("the file has other rows")
		}
		for k := range h.Snapshot().Prefix("") {
			if string(h.entry(k).Value) == "lost" {
				h.t.Fatalf("%s has what was not committed", k)
			}
		}
	})
}

// Ensure that a write that does not fit into the file fails alone: writes that need no more room
// succeed before and after it, without a reopen.
func TestG11_NoGrowth(t *testing.T) {
	inChild(t, func(h *harness) {
		h.put("small", "0", 0)
		info, err := os.Stat(h.path)
		h.must(err)
		room := h.limit(info.Size())
		large := bytes.Repeat([]byte("x"), int(info.Size()))
		for i := range 3 {
			mustBeFull(h.t, "put", second(h.Put("large", large, nil)))
			h.put("small", fmt.Sprint(i), 0)
		}
		if _, there := h.Get("large"); there {
			h.t.Error("what is not in the file can be read")
		}
		room()
		h.must(second(h.Put("large", large, nil)))
		h.reopen()
		if got := h.entry("large"); !bytes.Equal(got.Value, large) {
			h.t.Errorf("large: got %d bytes", len(got.Value))
		}
		if got := string(h.entry("small").Value); got != "2" {
			h.t.Errorf("small: got %q", got)
		}
	})
}

// Ensure that the log tells of a checkpoint that has no room, before a commit fails for it, and
// that nothing is lost with either.
func TestLogger_TellsOfACheckpoint(t *testing.T) {
	inChild(t, func(h *harness) {
		l := &logged{level: slog.LevelWarn}
		h.log(l)
		put := func(i int) error {
			return h.Update(func(tx *lockd.Txn) error {
				for j := range 8 {
					value := bytes.Repeat([]byte("x"), 2000)
					if _, err := tx.Put(fmt.Sprintf("%d/%d", i, j), value, nil); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for i := range 20 { // so that there is a log
			h.must(put(-1 - i))
		}
		h.settle()
		info, err := os.Stat(h.path)
		h.must(err)
		room := h.limit(info.Size())
		var told []string
		last := 0
		for len(told) == 0 {
			h.must(put(last))
			last++
			h.settle()
			told = l.take()
		}
		if !strings.HasPrefix(told[0], "0 WARN checkpoint failed: error=checkpoint: ") ||
			!strings.HasSuffix(told[0], syscall.EFBIG.Error()) {
			h.t.Errorf("log: got %q", told)
		}
		for err == nil {
			err = put(last)
			last++
		}
		mustBeFull(h.t, "put into a log that is full", err)
		room()
		h.must(put(last))
		before := h.contents()
		h.reopen()
		if after := h.contents(); !reflect.DeepEqual(after, before) {
			h.t.Error("the file has other rows")
		}
	})
}

// Ensure that wherever in a commit the room ends, the commit is there whole or not at all, for
// reads and for the next Open; that its index is not used again, and that the next write works.
func TestG4G11_RoomEndsAnywhere(t *testing.T) {
	inChild(t, func(h *harness) {
		page := int64(os.Getpagesize())
		value := func(i int64) string { return strings.Repeat(fmt.Sprintf("%07d,", i), 2048) }
		last := h.put("k", value(-1), 0)
		var succeeded, failed int
		for i := range int64(96) { // by half pages
			room := h.limit(noPage() + i*page/2 + i%2)
			var index uint64
			err := h.Update(func(tx *lockd.Txn) error {
				index = tx.Index()
				return second(tx.Put("k", []byte(value(i)), nil))
			})
			room()
			if index <= last.ModifyIndex {
				h.t.Fatalf("round %d: index %d, after %d", i, index, last.ModifyIndex)
			}
			if err == nil {
				succeeded++
				last = h.entry("k")
			} else {
				failed++
				mustBeFull(h.t, "put", err)
			}
			if i%3 == 0 {
				h.reopen()
			}
			if got := h.entry("k"); !bytes.Equal(got.Value, last.Value) ||
				got.ModifyIndex != last.ModifyIndex {
				h.t.Fatalf("round %d: got index %d, %.8s; want %d, %.8s", i, got.ModifyIndex,
					got.Value, last.ModifyIndex, last.Value)
			}
			last = h.put("k", value(1000+i), 0)
		}
		if succeeded == 0 || failed == 0 {
			h.t.Errorf("%d writes succeeded, %d failed: want some of each", succeeded, failed)
		}
	})
}

// Ensure that a file whose room ends within a sector of its log, over an older record, is as it was
// for the next Open, if there is room again at Close: half a sector is taken for damage.
func TestG11_RoomEndsWithinASector(t *testing.T) {
	inChild(t, func(h *harness) {
		h.opts.Sync = lockd.SyncNever
		h.reopen()
		const number = "%07d,"
		last := 0
		put := func() error {
			last++
			value := strings.Repeat(fmt.Sprintf(number, last), 12_000)
			return second(h.Put("k", []byte(value), nil))
		}
		for range 100 { // so that both segments of the log have records that do not count
			h.must(put())
		}
		for h.Err() == nil {
			h.must(put())
			content, err := os.ReadFile(h.path)
			h.must(err)
			end := bytes.LastIndex(content, fmt.Appendf(nil, number, last))
			h.must(put()) // to the other lane; the next record lies behind the one before
			const sector = 512
			room := h.limit(int64(end/sector+2)*sector + sector/2)
			err = put()
			room()
			if err != nil {
				mustBeFull(h.t, "put", err)
				last--
			}
		}
		h.reopen()
		if got := h.entry("k"); !bytes.HasPrefix(got.Value, fmt.Appendf(nil, number, last)) {
			h.t.Errorf("got %.8s, want %d", got.Value, last)
		}
	})
}

// Ensure that Close without room ends everything in the process and says what it could not do; that
// an Open without room for the ends that are due says so too, and gives up the file; and that with
// room the next one ends what was left, with the lock-delay.
func TestG7G12_CloseAndOpenWithoutRoom(t *testing.T) {
	inChild(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
		lock := h.lock(s, "k")
		line := h.line("k", h.session(nil))
		room := h.limit(noPage())
		mustBeFull(h.t, "close", h.Close())
		for what, err := range map[string]error{
			"session": s.Err(), "lock": lock.Err(), "waiter": line.calls[0].wait(),
		} {
			if !errors.Is(err, lockd.ErrClosed) {
				h.t.Errorf("%s: got %v, want ErrClosed", what, err)
			}
		}
		if e := h.entry("k"); e.Session != s.ID() {
			h.t.Errorf("reads: got %+v", e)
		}
		for range 2 {
			db, err := lockd.Open(h.path, &h.opts)
			if db != nil {
				h.t.Fatalf("opened without room, with %v", err)
			}
			mustBeFull(h.t, "open", err)
		}
		room()
		h.open()
		if got := h.remaining(h.session(nil), "k"); got != 5*time.Second {
			h.t.Errorf("delay: got %v", got)
		}
	})
}

// Ensure that a file which needs no write is opened and read without room, and that one which
// cannot be made leaves nothing behind.
func TestOpen_WithoutRoom(t *testing.T) {
	inChild(t, func(h *harness) {
		h.put("k", "v", 0)
		h.must(h.Close())
		room := h.limit(noPage())
		h.open()
		if got := string(h.entry("k").Value); got != "v" {
			h.t.Errorf("got %q", got)
		}
		path := filepath.Join(h.t.TempDir(), "new.db")
		db, err := lockd.Open(path, &h.opts)
		if db != nil || !errors.Is(err, syscall.EFBIG) {
			h.t.Errorf("a new file: got %v, %v", db, err)
		}
		left, err := os.ReadDir(filepath.Dir(path))
		if len(left) > 0 || err != nil {
			h.t.Errorf("left in the folder: %v (%v)", left, err)
		}
		room()
		h.put("k", "v2", 0)
	})
}

// Ensure that a restore without room says so of the file that was to be made. The name of the one
// that it writes first means nothing to anybody: that file is gone.
func TestRestore_WithoutRoom(t *testing.T) {
	inChild(t, func(h *harness) {
		h.put("k", strings.Repeat("v", 1<<20), 0)
		backup := h.backup()
		folder := h.t.TempDir()
		path := filepath.Join(folder, "new.db")
		for _, pages := range []int{2, 8} { // for no empty file, and for one without rows
			room := h.limit(int64(pages * os.Getpagesize()))
			err := lockd.Restore(path, bytes.NewReader(backup), 0, nil)
			room()
			if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), path) ||
				strings.Contains(err.Error(), ".new") {
				h.t.Errorf("room for %d pages: got %v", pages, err)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				h.t.Errorf("room for %d pages: left %v, %v", pages, left, err)
			}
		}
	})
}
