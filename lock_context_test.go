package lockd_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// foreign is a context of the user's own type, which has something done whenever it is asked.
type foreign struct {
	context.Context
	asked func()
}

func (c foreign) Done() <-chan struct{} {
	c.asked()
	return c.Context.Done()
}

func (c foreign) Value(key any) any {
	c.asked()
	return c.Context.Value(key)
}

// teller is one that tells of its end itself.
type teller struct{ foreign }

func (c teller) Value(any) any { return nil }

func (c teller) AfterFunc(fn func()) func() bool {
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
