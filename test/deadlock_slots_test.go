package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/lockd/lockd"
)

// worker is a goroutine with a session of its own, which releases last what it took first, and
// calls under the context of all that it holds.
type worker struct {
	session *lockd.Session
	steps   chan func() error
	waits   bool
	held    []held
	err     error // of the last step
}

type held struct {
	ctx     context.Context
	release func() error
}

// step lets the worker do one step, and returns when it has done that, or waits.
func (w *worker) step(do func() error) {
	w.waits, w.err = true, nil
	w.steps <- do
	synctest.Wait()
}

func (w *worker) release() error {
	last := w.held[len(w.held)-1]
	w.held = w.held[:len(w.held)-1]
	return last.release()
}

// take takes the lock of the key, shared or not, or a slot of the semaphore if that has a limit.
func (w *worker) take(key string, mode lockd.LockMode, limit int) error {
	ctx := context.Background()
	if n := len(w.held); n > 0 {
		ctx = w.held[n-1].ctx
	}
	if limit > 0 {
		slot, err := w.session.Acquire(ctx, key, limit)
		if err == nil {
			w.held = append(w.held, held{slot.Context(ctx), slot.Release})
		}
		return err
	}
	lock, err := w.session.Lock(ctx, key, &lockd.LockOptions{Mode: mode})
	if err == nil {
		w.held = append(w.held, held{lock.Context(ctx), lock.Unlock})
	}
	return err
}

// Ensure that goroutines that take locks and slots in any order, under contexts that carry what
// they hold, never wait for each other for ever: the call that closes a circle is refused.
func TestDeadlock_R14_SlotsAndLocks(t *testing.T) {
	refused := 0
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			refused += programOfSlots(t, seed)
		})
	}
	if refused < 500 {
		t.Errorf("only %d calls were refused: the test tries too little", refused)
	}
}

// programOfSlots runs the program of the seed, and returns how many calls were refused.
func programOfSlots(t *testing.T, seed uint64) (refused int) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	workers := make([]*worker, 2+rng.IntN(4))
	for i := range workers {
		w := &worker{steps: make(chan func() error)}
		if w.session, err = db.NewSession(nil); err != nil {
			t.Fatal(err)
		}
		workers[i] = w
		go func() {
			for do := range w.steps {
				w.err = do()
				w.waits = false
			}
		}()
	}
	for range 6 + rng.IntN(40) {
		w, kind, mode := workers[rng.IntN(len(workers))], rng.IntN(8), lockd.LockMode(rng.IntN(2))
		switch {
		case w.waits:
		case kind < 3 && len(w.held) > 0:
			w.step(w.release)
		case kind < 6:
			w.step(func() error { return w.take(fmt.Sprint("key", kind), mode, 0) })
		default:
			w.step(func() error { return w.take(fmt.Sprint("pool", kind), mode, kind-5) })
		}
		if _, deadlock := errors.AsType[*lockd.DeadlockError](w.err); deadlock && !w.waits {
			refused++
		}
	}
	for again := true; again; {
		again = false
		for _, w := range workers {
			if !w.waits && len(w.held) > 0 {
				again = true
				w.step(w.release)
			}
		}
	}
	for i, w := range workers {
		if w.waits {
			t.Errorf("seed %d: goroutine %d of %d waits for ever", seed, i, len(workers))
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	synctest.Wait()
	for _, w := range workers {
		close(w.steps)
	}
	return refused
}
