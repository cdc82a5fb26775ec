package lockd_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where the databases of the tests log
	goleak.VerifyTestMain(m)
}

// harness is a database on a mock clock, inside a bubble: settle returns when every goroutine of
// the test waits, so nothing has to be slept for.
type harness struct {
	*lockd.DB
	t     *testing.T
	clock *clock.Mock
	probe *hook.Clock // on the clock
	opts  lockd.Options
	path  string // empty: in memory
}

// each runs the test on a database in memory and on one in a file.
func each(t *testing.T, test func(h *harness)) {
	t.Helper()
	t.Run("Memory", func(t *testing.T) { inBubble(t, "", test) })
	t.Run("File", func(t *testing.T) { onFile(t, test) })
}

// onFile runs the test on a database in a file.
func onFile(t *testing.T, test func(h *harness)) {
	t.Helper()
	inBubble(t, filepath.Join(t.TempDir(), "lockd.db"), test)
}

func inBubble(t *testing.T, path string, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, clock: clock.NewMock(), path: path}
		h.probe = &hook.Clock{Clock: h.clock}
		h.opts.Clock = h.probe
		h.open()
		t.Cleanup(func() {
			h.shut()
		})
		test(h)
	})
}

func (h *harness) open() {
	h.t.Helper()
	opts := h.opts
	var err error
	if h.path == "" {
		h.DB, err = lockd.New(&opts)
	} else {
		h.DB, err = lockd.Open(h.path, &opts)
	}
	h.must(err)
}

// reopen closes the file and opens it again.
func (h *harness) reopen() {
	h.t.Helper()
	h.shut()
	h.open()
}

// shut closes the database. Close has to say that it could not write if the database had failed,
// and nothing otherwise.
func (h *harness) shut() {
	h.t.Helper()
	failed := errors.Is(h.Err(), lockd.ErrFailed)
	if err := h.Close(); failed != errors.Is(err, lockd.ErrFailed) || !failed && err != nil {
		h.t.Errorf("close: got %v; the database had failed: %t", err, failed)
	}
}

// hook opens the file anew with hooks around its commits.
func (h *harness) hook(hooks store.Hooks) {
	h.t.Helper()
	h.must(h.Close())
	h.probe.Hooks.File = hooks
	h.open()
}

// Waiters is the number of calls that wait for the key's lock.
func (h *harness) Waiters(key string) int { return h.probe.Controls.Waiters(key) }

// Topics is the number of scopes that are watched.
func (h *harness) Topics() int { return h.probe.Controls.Topics() }

// States is the number of keys of which something is known beside their rows.
func (h *harness) States() int { return h.probe.Controls.States() }

// Deadlines is the number of instants that the database waits for.
func (h *harness) Deadlines() int { return h.probe.Controls.Deadlines() }

// NewestSessions are the IDs of the sessions that live, durable or not.
func (h *harness) NewestSessions() (ids []lockd.SessionID) {
	for _, id := range h.probe.Controls.NewestSessions() {
		ids = append(ids, id)
	}
	return ids
}

// probe returns a clock whose database has hooks around what is written to its file. A nil clock
// means the real one.
func probe(c clock.Clock, file store.Hooks) *hook.Clock {
	if c == nil {
		c = clock.New()
	}
	return &hook.Clock{Clock: c, Hooks: hook.Hooks{File: file}}
}

// must fails the test on an error.
func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// settle returns when every other goroutine waits for something.
func (h *harness) settle() { synctest.Wait() }

// advance moves the clock, and returns when all that became due has happened.
func (h *harness) advance(d time.Duration) {
	h.clock.Add(d)
	synctest.Wait()
}

// changed waits from the index, and returns a channel that is closed when Wait returns because the
// scope has changed, or the database has ended. A test settles before it looks.
func (h *harness) changed(
	ctx context.Context, scope lockd.Scope, index uint64,
) <-chan struct{} {
	db, changed := h.DB, make(chan struct{})
	go func() {
		_, _, err := db.Wait(ctx, scope, index, 0)
		if err == nil || errors.Is(err, lockd.ErrClosed) {
			close(changed)
		}
	}()
	h.settle()
	return changed
}

// session makes a session; nil options mean one without TTL.
func (h *harness) session(opts *lockd.SessionOptions) *lockd.Session {
	h.t.Helper()
	s, err := h.NewSession(opts)
	h.must(err)
	return s
}

// lock takes a lock that is free.
func (h *harness) lock(s *lockd.Session, key string) *lockd.Lock {
	h.t.Helper()
	l, err := s.TryLock(key, nil)
	h.must(err)
	return l
}

// heldIn fails the test unless the session holds the key in the transaction; the zero ID means that
// the key exists, and is free.
func (h *harness) heldIn(tx *lockd.Txn, key string, id lockd.SessionID) {
	h.t.Helper()
	if e, ok := tx.Get(key); !ok || e.Session != id {
		h.t.Errorf("key %q in the transaction: %v, held by %q, want %q", key, ok, e.Session, id)
	}
}

// entry returns the key's entry, which must be there.
func (h *harness) entry(key string) lockd.Entry {
	h.t.Helper()
	e, ok := h.Get(key)
	if !ok {
		h.t.Fatalf("key %q does not exist", key)
	}
	return e
}
