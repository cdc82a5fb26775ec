package lockd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// attempt is a call that returns something and an error, with its arguments.
type attempt struct {
	name string
	fn   any
	args []any
}

// outcome calls, and returns the first result and the error.
func (a attempt) outcome() (reflect.Value, error) {
	var args []reflect.Value
	for _, arg := range a.args {
		args = append(args, reflect.ValueOf(arg))
	}
	results := reflect.ValueOf(a.fn).Call(args)
	err, _ := results[1].Interface().(error)
	return results[0], err
}

// givers are all calls that return a handle.
func givers(h *harness, s *lockd.Session, ctx context.Context, key string) []attempt {
	var none *lockd.LockOptions
	return []attempt{
		{"lock", s.Lock, []any{ctx, key, none}},
		{"try lock", s.TryLock, []any{key, none}},
		{"lock all", s.LockAll, []any{ctx, []string{key, "another"}, none}},
		{"campaign", s.Campaign, []any{ctx, key, []byte(nil)}},
		{"new keeper", h.NewKeeper, []any{&lockd.SessionOptions{Name: key}}},
		{"new session", h.NewSession, []any{&lockd.SessionOptions{Name: key}}},
		{"new session on a node", h.NewSession, []any{&lockd.SessionOptions{Node: "nowhere"}}},
		{"session", h.Session, []any{s.ID()}},
		{"no session", h.Session, []any{lockd.SessionID{}}},
		{"new", lockd.New, []any{&lockd.Options{History: -1}}},
		{"open", lockd.Open, []any{"", &lockd.Options{}}},
		{"open a folder", lockd.Open, []any{h.t.TempDir(), &lockd.Options{}}},
	}
}

// Ensure that every call that returns a handle returns either a handle or an error, whatever state
// it is called in.
func TestG11_NilHandleOnlyWithAnError(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		ended, cancel := context.WithCancel(h.t.Context())
		cancel()
		free, busy := h.session(nil), h.session(nil)
		h.lock(busy, "busy")
		gone := h.session(nil)
		h.must(gone.Close())
		given, refused := 0, 0
		try := func(state string, s *lockd.Session, ctx context.Context, key string) {
			for _, a := range givers(h, s, ctx, key) {
				handle, err := a.outcome()
				if handle.IsZero() != (err != nil) {
					t.Errorf("%s, %s: got %v with error %v", state, a.name, handle, err)
				}
				if err != nil {
					refused++
					continue
				}
				given++
				switch handle := handle.Interface().(type) {
				case *lockd.Lock:
					h.must(handle.Unlock())
				case *lockd.Leader:
					h.must(handle.Resign())
				case *lockd.Keeper:
					h.must(handle.Close())
				case []*lockd.Lock:
					h.must(errors.Join(handle[0].Unlock(), handle[1].Unlock()))
				}
			}
		}
		try("free", free, h.t.Context(), "free")
		try("busy", free, ended, "busy")
		try("ended session", gone, h.t.Context(), "free")
		try("bad key", free, h.t.Context(), "")
		c.fail(errDisk)
		try("failing commits", free, h.t.Context(), "k")
		c.fail(nil)
		h.must(h.Close())
		try("closed", free, h.t.Context(), "free")
		if given == 0 || refused == 0 {
			t.Fatalf("%d calls gave something, %d were refused", given, refused)
		}
		h.open()
	})
}

// contents is all that can be read of the keys and sessions.
func (h *harness) contents() map[string]any {
	all := map[string]any{"index": h.Snapshot().Index()}
	for key, e := range h.Snapshot().Prefix("") {
		all["key "+key] = e
	}
	for info := range h.Snapshot().Sessions() {
		all["session "+info.ID.String()] = info
	}
	return all
}

// Ensure that a call that a rule refuses changes nothing, and does not even use an index.
func TestG11_RefusalChangesNothing(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Put("k", []byte("v"), &lockd.PutOptions{Flags: 1})
			return err
		}))
		lock := h.lock(s, "held")
		fence := lock.Sequencer().Fence
		stale := h.If(lockd.Sequencer{Key: "k", Session: s.ID(), Fence: 3})
		calls := map[string]func() error{
			"swap":       func() error { _, err := h.CompareAndSwap("k", 1, nil, nil); return err },
			"create":     func() error { _, err := h.CompareAndSwap("k", 0, nil, nil); return err },
			"delete":     func() error { _, err := h.CompareAndDelete("k", 1); return err },
			"everything": func() error { _, err := h.DeletePrefix(""); return err },
			"stale":      func() error { _, err := stale.Put("k", nil, nil); return err },
			"empty key":  func() error { _, err := h.Put("", nil, nil); return err },
			"try lock":   func() error { _, err := other.TryLock("held", nil); return err },
			"force":      func() error { return h.ForceUnlock("held", fence-1, "test") },
			"end":        func() error { return h.EndSession(lockd.SessionID{1}) },
			"session": func() error {
				_, err := h.NewSession(&lockd.SessionOptions{TTL: -1})
				return err
			},
			"function": func() error {
				return h.Update(func(tx *lockd.Txn) error {
					_, _ = tx.DeleteAll()
					_, _ = tx.Lock("k", other.ID(), nil)
					_ = tx.EndSession(s.ID())
					return errOwn
				})
			},
			"panic": func() (err error) {
				defer func() { err, _ = recover().(error) }()
				return h.Update(func(tx *lockd.Txn) error {
					_, _ = tx.DeleteAll()
					panic(errOwn)
				})
			},
		}
		before := h.contents()
		for name, call := range calls {
			if err := call(); err == nil {
				t.Errorf("%s: was not refused", name)
			}
			h.settle()
			if after := h.contents(); !reflect.DeepEqual(after, before) {
				t.Fatalf("%s: changed %v to %v", name, before, after)
			}
			if s.Err() != nil || lock.Err() != nil {
				t.Fatalf("%s: ended %v, %v", name, s.Err(), lock.Err())
			}
		}
		if next := h.index(); next != before["index"].(uint64)+1 {
			t.Fatalf("index: got %d after %d", next, before["index"])
		}
	})
}

// Ensure that a call that gives up holds nothing and stands in no queue, and that a context that
// has ended before takes no lock, free or not.
func TestG11_GivingUpLeavesNothing(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		lock := h.lock(h.session(nil), "held")
		before := h.contents()
		states := h.States()
		ctx, cancel := context.WithCancel(h.t.Context())
		all := func() error { _, err := s.LockAll(ctx, []string{"held", "free"}, nil); return err }
		one := func() error { _, err := s.Lock(ctx, "held", nil); return err }
		free := func() error { _, err := s.Lock(ctx, "free", nil); return err }
		calls := []*call{start(all), start(one)}
		h.settle()
		cancel()
		for _, call := range append(calls, start(all), start(one)) {
			if err := call.wait(); !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		if err := free(); !errors.Is(err, context.Canceled) { // nothing is in its way now
			t.Fatalf("free lock: got %v", err)
		}
		h.settle()
		if after := h.contents(); !reflect.DeepEqual(after, before) || h.States() != states {
			t.Fatalf("left: %v, was %v, %d states, were %d", after, before, h.States(), states)
		}
		h.must(lock.Unlock())
		if e := h.entry("held"); !e.Session.IsZero() {
			t.Fatalf("granted to %v, who had given up", e.Session)
		}
	})
}

// Ensure that Close ends every wait and every hold with ErrClosed, and that nothing but reads
// works after it. That no goroutine is left is checked when the bubble ends.
func TestG12_CloseEndsEverything(t *testing.T) {
	for _, lifetime := range []lockd.Lifetime{lockd.BoundToProcess, lockd.Independent} {
		t.Run([]string{"Bound", "Independent"}[lifetime], func(t *testing.T) {
			each(t, func(h *harness) { closeEverything(h, lifetime) })
		})
	}
}

func closeEverything(h *harness, lifetime lockd.Lifetime) {
	t := h.t
	opts := &lockd.SessionOptions{Lifetime: lifetime, TTL: time.Minute}
	s, other := h.session(opts), h.session(opts)
	lock := h.lock(s, "k")
	ctx := lock.Context(t.Context())
	index := h.Snapshot().Index()
	waits := map[string]*call{
		"lock": start(func() error { _, err := s.Lock(t.Context(), "k", nil); return err }),
		"lock all": start(func() error {
			_, err := other.LockAll(t.Context(), []string{"free", "k"}, nil)
			return err
		}),
		"keep alive": start(func() error { return s.KeepAlive(t.Context()) }),
		"watch": start(func() error {
			for event, err := range h.Watch(t.Context(), lockd.KeyScope("none"), index) {
				return errors.Join(err, event.Cause)
			}
			return nil
		}),
	}
	changed := h.changed(t.Context(), lockd.KeyScope("none"), index)
	h.settle()
	h.must(h.Close())
	h.must(h.Close())
	for what, wait := range waits {
		if err := wait.wait(); !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	h.settle()
	if !isClosed(changed) || !isClosed(s.Done()) || !isClosed(lock.Done()) ||
		!isClosed(ctx.Done()) {
		t.Error("a channel is open")
	}
	_, err := h.Put("k", nil, nil)
	_, tried := s.TryLock("k", nil)
	_, locked := s.Lock(t.Context(), "k", nil)
	_, made := h.NewSession(nil)
	for what, err := range map[string]error{
		"put": err, "try lock": tried, "lock": locked, "new session": made, "session": s.Err(),
		"held lock": lock.Err(), "context": context.Cause(ctx), "renew": other.Renew(),
		"unlock": lock.Unlock(), "keep alive": other.KeepAlive(t.Context()),
		"update": h.Update(func(*lockd.Txn) error { return nil }),
	} {
		if !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if _, ok := h.Get("k"); !ok || h.Snapshot().Len() != 1 {
		t.Error("reads do not go on")
	}
}

// Ensure that after Close no call says that a session which the file keeps has ended, or that its
// lock is not held, and that the handles say that it was the database that was closed.
func TestG12_IndependentIsKept(t *testing.T) {
	each(t, func(h *harness) {
		kept := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		bound := h.session(nil)
		locks := map[*lockd.Session]*lockd.Lock{kept: h.lock(kept, "k"), bound: h.lock(bound, "b")}
		ctx := locks[kept].Context(h.t.Context())
		h.must(h.Close())
		for s, lock := range locks {
			ended := s == bound || h.path == "" // of what was in memory nothing is left
			for what, err := range map[string]error{
				"session": s.Err(), "lock": lock.Err(), "unlock": lock.Unlock(),
			} {
				told, ok := errors.AsType[*lockd.EndedError](err)
				if !ok || !errors.Is(err, lockd.ErrClosed) || told.Session != s.ID() {
					h.t.Errorf("%s: got %v, want ErrClosed", what, err)
				}
				gone := errors.Is(err, lockd.ErrNoSession) || errors.Is(err, lockd.ErrNotHeld)
				if gone != ended {
					h.t.Errorf("%s: got %v, want that it is gone: %v", what, err, ended)
				}
				text := "database closed by its owner"
				if !ended {
					text = "is kept in the file: database closed by its owner; Open goes on with it"
				}
				if !strings.HasSuffix(err.Error(), text) {
					h.t.Errorf("%s: got %q, want %q", what, err, text)
				}
			}
		}
		for s := range locks {
			err := s.Close()
			if inFile := s == kept && h.path != ""; inFile != errors.Is(err, lockd.ErrClosed) ||
				!inFile && err != nil {
				h.t.Errorf("close session: got %v, in the file: %v", err, inFile)
			}
		}
		if context.Cause(ctx) != locks[kept].Err() {
			h.t.Errorf("context: got %v", context.Cause(ctx))
		}
		if h.path == "" {
			return
		}
		h.open()
		if h.entry("k").Session != kept.ID() || !h.entry("b").Session.IsZero() {
			h.t.Errorf("after the reopen: %+v, %+v", h.entry("k"), h.entry("b"))
		}
	})
}

// Ensure that Close waits for a commit that is under way, whether the commit succeeds or fails.
func TestG12_CloseDuringACommit(t *testing.T) {
	for name, outcome := range map[string]error{"succeeds": nil, "fails": errDisk} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
				lock := h.lock(s, "k")
				line := h.line("k", s)
				unlocking := c.held(lock.Unlock)
				closing := start(h.Close)
				h.settle()
				if closing.returned() || lock.Err() != nil {
					t.Fatalf("before the commit: %v, %v", closing.err, lock.Err())
				}
				c.release(outcome)
				if err := unlocking.wait(); !errors.Is(err, outcome) {
					t.Errorf("unlock: got %v, want %v", err, outcome)
				}
				if err := closing.wait(); !errors.Is(err, outcome) {
					t.Errorf("close: got %v, want %v", err, outcome)
				}
				err := line.calls[0].wait()
				if outcome != nil && !errors.Is(err, lockd.ErrClosed) ||
					outcome == nil && err != nil {
					t.Errorf("waiter: got %v", err)
				}
				if !isClosed(s.Done()) || !isClosed(lock.Done()) {
					t.Error("Done is open")
				}
				h.open()
			})
		})
	}
}

// Ensure that a call that gives up while Close waits for the commit of its grant either has the
// lock or leaves nothing of it in the file.
func TestG11G12_GivingUpDuringClose(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		t.Run(map[bool]string{false: "free lock", true: "handed on"}[waiting], func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
				ctx, cancel := context.WithCancel(h.t.Context())
				locking := func() error { _, err := s.Lock(ctx, "k", nil); return err }
				var giveUp *call
				if waiting {
					lock := h.lock(h.session(&lockd.SessionOptions{
						Lifetime: lockd.Independent,
					}), "k")
					giveUp = start(locking)
					h.settle()
					c.held(lock.Unlock)
				} else {
					giveUp = c.held(locking)
				}
				closing := start(h.Close)
				h.settle()
				cancel()
				h.settle()
				c.release(nil)
				h.must(closing.wait())
				err := giveUp.wait()
				h.open()
				if holds := h.entry("k").Session == s.ID(); holds != (err == nil) {
					t.Fatalf("lock returned %v, and is held in the file: %t", err, holds)
				}
			})
		})
	}
}

// newer turns a file into one of the next format: the header says so in every page that has it.
func newer(t *testing.T, file []byte) []byte {
	t.Helper()
	const key = "lockd"
	seal := func(payload []byte) uint32 {
		table := crc32.MakeTable(crc32.Castagnoli)
		sum := crc32.Update(0xff<<24^uint32(len(key)), table, []byte(key))
		return crc32.Update(sum, table, payload)
	}
	found := false
	for at := 0; ; {
		next := bytes.Index(file[at:], []byte(key))
		if next < 0 {
			break
		}
		at += next + len(key)
		end := at
		for range 10 { // numbers, and an empty string at the end
			_, n := binary.Uvarint(file[end:])
			end += n
		}
		payload, sum := file[at:end], file[end:]
		if binary.BigEndian.Uint32(sum) != seal(payload) {
			continue
		}
		payload[0]++ // the version
		binary.BigEndian.PutUint32(sum, seal(payload))
		found = true
	}
	if !found {
		t.Fatal("no header found in the file")
	}
	return file
}

// Ensure that a file that cannot be used is refused with an error that says why, and left as it is.
func TestG13_RefusedFileIsLeftAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	db, err := lockd.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Put("k", bytes.Repeat([]byte("v"), 10_000), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.LastIndex(sound, []byte("vvvv"))
	for name, tc := range map[string]struct {
		spoil func(file []byte) []byte
		want  error
	}{
		"empty":       {func([]byte) []byte { return nil }, lockd.ErrCorrupt},
		"cut off":     {func(b []byte) []byte { return b[:len(b)/2] }, lockd.ErrCorrupt},
		"zeros":       {func(b []byte) []byte { return make([]byte, len(b)) }, lockd.ErrFormat},
		"value":       {func(b []byte) []byte { b[value] ^= 1; return b }, lockd.ErrCorrupt},
		"newer":       {func(b []byte) []byte { return newer(t, b) }, lockd.ErrFormat},
		"other thing": {func([]byte) []byte { return []byte("hello\n") }, lockd.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := tc.spoil(bytes.Clone(sound))
			path := filepath.Join(t.TempDir(), "lockd.db")
			if err := os.WriteFile(path, spoilt, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := lockd.Open(path, nil)
			if !errors.Is(err, tc.want) || db != nil {
				t.Errorf("open: got %v, %v, want %v", db, err, tc.want)
			}
			left, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(left, spoilt) {
				t.Errorf("the file has changed: %v", err)
			}
			if entries, err := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

// Ensure that a file that this process has open already is refused when OpenTimeout has passed,
// and can be opened when it is closed in time.
func TestG13_FileInUse(t *testing.T) {
	onFile(t, func(h *harness) {
		h.index()
		before, err := os.ReadFile(h.path)
		h.must(err)
		began := time.Now() // of the bubble
		second, err := lockd.Open(h.path, &lockd.Options{OpenTimeout: 3 * time.Second})
		if !errors.Is(err, lockd.ErrInUse) || second != nil {
			t.Fatalf("open: got %v, %v", second, err)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Fatalf("open took %v", took)
		}
		after, err := os.ReadFile(h.path)
		h.must(err)
		if !bytes.Equal(before, after) {
			t.Fatal("the file has changed")
		}
		contents := maps.Clone(h.contents())
		opening := start(func() error {
			second, err := lockd.Open(h.path, &lockd.Options{OpenTimeout: time.Minute})
			if err == nil {
				err = second.Close()
			}
			return err
		})
		h.settle()
		if opening.returned() {
			t.Fatalf("open returned %v", opening.err)
		}
		h.must(h.Close())
		h.must(opening.wait())
		h.open()
		if got := h.contents(); !reflect.DeepEqual(got, contents) {
			t.Fatalf("contents: got %v, want %v", got, contents)
		}
	})
}

// Ensure that a repeated Close waits for the first: when it returns, the database is closed, and
// its file can be opened.
func TestG12_RepeatedCloseWaitsForTheFirst(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.session(nil) // its end is to be committed
		first := c.held(h.Close)
		again := start(h.Close)
		h.settle()
		if again.returned() {
			t.Error("the second call has not waited for the first")
		}
		c.release(nil)
		h.must(first.wait())
		h.must(again.wait())
	})
}
