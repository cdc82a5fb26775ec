package lockd_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// foreign is a context of the user's own type, which calls asked whenever it is asked.
type foreign struct {
	context.Context
	asked func()
}

func (c foreign) Done() <-chan struct{} {
	c.asked()
	return c.Context.Done()
}

func (c foreign) Err() error {
	c.asked()
	return c.Context.Err()
}

func (c foreign) Deadline() (time.Time, bool) {
	c.asked()
	return c.Context.Deadline()
}

func (c foreign) Value(key any) any {
	c.asked()
	return c.Context.Value(key)
}

// teller is a foreign context with a method AfterFunc.
type teller struct{ foreign }

func (c teller) Value(any) any { return nil }

func (c teller) AfterFunc(fn func()) func() bool {
	c.asked()
	stop := context.AfterFunc(c.Context, fn)
	return func() bool {
		c.asked()
		return stop()
	}
}

// Ensure that a parent of a lock's context may call the database and the lock when it is asked
// because the lock is lost: that happens under none of their mutexes.
func TestLock_Context_ParentIsAskedUnderNoMutex(t *testing.T) {
	ends := map[string]func(*lockd.DB, *lockd.Lock) error{
		"Unlock":      func(_ *lockd.DB, l *lockd.Lock) error { return l.Unlock() },
		"ForceUnlock": func(db *lockd.DB, l *lockd.Lock) error { return force(db, l) },
		"Close":       func(db *lockd.DB, _ *lockd.Lock) error { return db.Close() },
	}
	opens := map[string]func(t *testing.T) (*lockd.DB, error){
		"Memory": func(*testing.T) (*lockd.DB, error) { return lockd.New(nil) },
		"File": func(t *testing.T) (*lockd.DB, error) {
			return lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), nil)
		},
	}
	for where, open := range opens {
		for name, end := range ends {
			t.Run(name+"/"+where, func(t *testing.T) {
				db, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				s, err := db.NewSession(nil)
				if err != nil {
					t.Fatal(err)
				}
				lock, err := s.TryLock("k", nil)
				if err != nil {
					t.Fatal(err)
				}
				askedOfItsEnd(t, db, lock, func() error { return end(db, lock) })
			})
		}
	}
}

func force(db *lockd.DB, l *lockd.Lock) error {
	return db.ForceUnlock(l.Key(), l.Sequencer().Fence, "a test")
}

// askedOfItsEnd ends the lock, and has the parents of its contexts call back.
func askedOfItsEnd(t *testing.T, db *lockd.DB, lock *lockd.Lock, end func() error) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan bool, 100)
	own := foreign{parent, func() {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for range db.Locks() {
				break
			}
			_ = lock.Err()
		}()
		select {
		case <-answered:
			asked <- true
		case <-time.After(10 * time.Second):
			asked <- false
		}
	}}
	contexts := []context.Context{lock.Context(own), lock.Context(teller{own})}
	for len(asked) > 0 {
		<-asked
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range contexts {
		if context.Cause(ctx) != lock.Err() {
			t.Errorf("the context has ended with %v, not %v", context.Cause(ctx), lock.Err())
		}
	}
	for range 3 { // one for its Done and its Value, the other how to stop it
		if answered := <-asked; !answered {
			t.Fatal("a parent was asked while a mutex was held")
		}
	}
}

// asking is a context of the user's own type that is done when the test says so, and that has the
// database called, and another context watched, whenever it is asked: none of that may wait.
func asking(t *testing.T, db *lockd.DB) (ctx context.Context, cancel context.CancelFunc) {
	t.Helper()
	parent, cancel := context.WithCancel(t.Context())
	other, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return teller{foreign{parent, func() {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for range db.Locks() {
				break
			}
			_, _, _ = db.Wait(other, lockd.PrefixScope(""), db.Snapshot().Index(), 1)
		}()
		select {
		case <-answered:
		case <-time.After(10 * time.Second):
			t.Error("a context was asked while a mutex was held")
		}
	}}}, cancel
}

// Ensure that a context is asked under no mutex, whatever call it is given to, and whether the call
// returns at once, waits and is answered, or gives up.
func TestContext_IsAskedUnderNoMutex(t *testing.T) {
	fn := func(context.Context, lockd.Sequencer) error { return nil }
	waits := map[string]func(context.Context, *lockd.Session) error{
		"Lock": func(ctx context.Context, s *lockd.Session) error {
			return second(s.Lock(ctx, "k", nil))
		},
		"LockAll": func(ctx context.Context, s *lockd.Session) error {
			return second(s.LockAll(ctx, []string{"j", "k"}, nil))
		},
		"Acquire": func(ctx context.Context, s *lockd.Session) error {
			return second(s.Acquire(ctx, "pool", 1))
		},
		"Campaign": func(ctx context.Context, s *lockd.Session) error {
			return second(s.Campaign(ctx, "k", nil))
		},
		"WithLock": func(ctx context.Context, s *lockd.Session) error {
			return s.WithLock(ctx, "k", nil, fn)
		},
	}
	opens := map[string]func(t *testing.T) (*lockd.DB, error){
		"Memory": func(*testing.T) (*lockd.DB, error) { return lockd.New(nil) },
		"File": func(t *testing.T) (*lockd.DB, error) {
			return lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), nil)
		},
	}
	for where, open := range opens {
		for name, wait := range waits {
			t.Run(name+"/"+where, func(t *testing.T) {
				db, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				askedByCall(t, db, wait)
			})
		}
	}
}

// askedByCall has the call return at once, be answered when it has waited, and give up.
func askedByCall(
	t *testing.T, db *lockd.DB, wait func(context.Context, *lockd.Session) error,
) {
	t.Helper()
	session := func() *lockd.Session {
		s, err := db.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ctx, cancel := asking(t, db)
	defer cancel()
	atOnce := session()
	if err := wait(ctx, atOnce); err != nil {
		t.Fatal(err)
	}
	if err := atOnce.Close(); err != nil {
		t.Fatal(err)
	}

	holder := session()
	for _, take := range []func() error{
		func() error { return second(holder.TryLock("k", nil)) },
		func() error { return second(holder.TryAcquire("pool", 1)) },
	} {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	answered := start(func() error { return wait(ctx, session()) })
	for db.Stats().Waiters < 1 {
		time.Sleep(time.Millisecond)
	}
	leaving, leave := asking(t, db)
	givesUp := start(func() error { return wait(leaving, session()) })
	for db.Stats().Waiters < 2 {
		time.Sleep(time.Millisecond)
	}
	leave()
	if err := givesUp.wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("the call that gave up: got %v", err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := answered.wait(); err != nil {
		t.Errorf("the call that waited: got %v", err)
	}
}

// Ensure that a context is asked under no mutex by Wait, also when the context ends, and by calls
// that wait only for an event.
func TestWatch_ContextIsAskedUnderNoMutex(t *testing.T) {
	watched := probe(nil, store.Hooks{})
	db, err := lockd.New(&lockd.Options{Clock: watched})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	k, err := db.NewKeeper(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := asking(t, db)
	defer cancel()
	s, err := k.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(key string) *call {
		return start(func() error {
			_, _, err := db.Wait(ctx, lockd.KeyScope(key), db.Snapshot().Index(), time.Hour)
			return err
		})
	}
	calls := []*call{
		wait("a"), wait("a"), wait("b"),
		start(func() error { return s.KeepAlive(ctx) }),
		start(func() error {
			for _, err := range db.Watch(ctx, lockd.KeyScope("k"), db.Snapshot().Index()) {
				return err
			}
			return nil
		}),
		start(func() error {
			for l, err := range db.Observe(ctx, "k") {
				if err != nil || !l.Vacant() {
					return err
				}
			}
			return nil
		}),
		start(func() error {
			return k.Lead(ctx, "lead", nil, func(ctx context.Context, _ lockd.Sequencer) error {
				<-ctx.Done()
				return nil
			})
		}),
	}
	for watched.Controls.Topics() < 3 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	for i, call := range calls {
		if err := call.wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: got %v", i, err)
		}
	}
	for watched.Controls.Topics() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// Ensure that a context of the user's own type may panic, whenever it is asked: then no waiter, and
// no lock, is left of the call.
func TestLock_ContextPanics(t *testing.T) {
	each(t, func(h *harness) {
		s, holder := h.session(nil), h.session(nil)
		h.lock(holder, "held")
		calls := map[string]func(ctx context.Context) error{
			"free":  func(ctx context.Context) error { return unlocked(s.Lock(ctx, "free", nil)) },
			"waits": func(ctx context.Context) error { return unlocked(s.Lock(ctx, "held", nil)) },
		}
		for name, call := range calls {
			for at, panicked := 1, true; panicked; at++ {
				parent, cancel := context.WithTimeout(h.t.Context(), time.Second)
				asked := 0
				panicked = doesPanic(func() {
					_ = call(foreign{parent, func() {
						if asked++; asked == at {
							panic("of the context")
						}
					}})
				})
				cancel()
				if n := h.Waiters("held"); n != 0 {
					h.t.Fatalf("%s, panic at question %d: %d calls wait", name, at, n)
				}
				if e, _ := h.Get("free"); !e.Session.IsZero() {
					h.t.Fatalf("%s, panic at question %d: the lock is held", name, at)
				}
			}
		}
	})
}

// unlocked releases what was acquired.
func unlocked(l *lockd.Lock, err error) error {
	if err != nil {
		return err
	}
	return l.Unlock()
}

// Ensure that a context of a lock that is held on is freed when its parent has ended: a leader
// makes one for each request that it serves.
func TestLock_ContextIsFreedWithItsParent(t *testing.T) {
	each(t, func(h *harness) {
		lock := h.lock(h.session(nil), "k")
		var freed weak.Pointer[[1 << 10]byte]
		func() {
			carried := new([1 << 10]byte)
			freed = weak.Make(carried)
			parent, end := context.WithCancel(
				context.WithValue(h.t.Context(), contextKey{}, carried))
			ctx := lock.Context(parent)
			end()
			<-ctx.Done()
		}()
		h.settle()
		for range 2 {
			runtime.GC()
		}
		if freed.Value() != nil {
			h.t.Error("it is still in memory")
		}
		h.must(lock.Unlock())
	})
}

type contextKey struct{}
