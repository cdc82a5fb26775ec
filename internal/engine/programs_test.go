package engine_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

var programSeed = flag.Uint64("programs.seed", 0, "the one random program to run; 0: many")

// program is a random program of threads that lock keys. Each thread has a session, and its next
// call has a context that carries the locks that the thread holds.
type program struct {
	*rand.Rand
	w       *world
	threads []*thread
	waiting []*thread // in the order in which they began to wait
	log     strings.Builder
}

type thread struct {
	name    string
	session *engine.Session
	left    int // steps
	held    []*threadLock
	wants   []string // while it waits
	mode    engine.Mode
	waiter  *engine.Waiter
}

type threadLock struct {
	key  string
	hold engine.Hold
}

// runPrograms runs random programs, each of which is given its number.
func runPrograms(t *testing.T, n int, run func(p *program) error) {
	first := rand.Uint64() >> 16
	if *programSeed != 0 {
		first, n = *programSeed, 1
	} else if testing.Short() || raced {
		n /= 20
	}
	for i := range n {
		seed := first + uint64(i)
		p := &program{Rand: rand.New(rand.NewPCG(seed, 1)), w: newWorld(t, 0)}
		for i := range 2 + p.IntN(3) {
			name := fmt.Sprintf("t%d", i)
			p.threads = append(p.threads, &thread{name: name, left: 1 + p.IntN(8)})
			p.must(t, func(tx *engine.Txn) (err error) {
				p.threads[i].session, err = tx.NewSession(schema.Session{ID: idOf(name)})
				return err
			})
		}
		if err := run(p); err != nil && err != errClosedLater {
			t.Fatalf("-programs.seed=%d: %v\nafter\n%s", seed, err, p.log.String())
		}
	}
}

func (p *program) must(t *testing.T, fn func(tx *engine.Txn) error) {
	t.Helper()
	if err := p.w.write(fn); err != nil {
		t.Fatal(err)
	}
}

// run lets a random thread that does not wait do a step, again and again, until all have ended.
func (p *program) run(step func(t *thread) error) error {
	for {
		ready := slices.DeleteFunc(slices.Clone(p.threads), func(t *thread) bool {
			return t.waiter != nil || t.left == 0 && len(t.held) == 0
		})
		if len(ready) == 0 {
			break
		}
		t := ready[p.IntN(len(ready))]
		if t.left--; t.left < 0 {
			t.left = 0
			p.releaseAll(t)
		} else if err := step(t); err != nil {
			return err
		}
	}
	if len(p.waiting) > 0 {
		return fmt.Errorf("%d threads hang", len(p.waiting))
	}
	return p.w.engine.Check()
}

// lock has the thread lock the keys together. It reports whether it has to wait.
func (p *program) lock(t *thread, keys []string, mode engine.Mode, carries bool) (bool, error) {
	fmt.Fprintf(&p.log, "%s locks %v, mode %d\n", t.name, keys, mode)
	var carried *engine.Carried
	if carries {
		for _, l := range t.held {
			carried = &engine.Carried{Owner: l, Outer: carried}
		}
	}
	var locks []*threadLock
	for _, key := range keys {
		l := &threadLock{key: key}
		l.hold.Owner = l
		locks = append(locks, l)
	}
	waits := false
	err := p.w.engineWrite(func(tx *engine.Txn) error {
		free, err := tx.Free(t.session, keys, mode, carried)
		if err != nil {
			return err
		}
		if free {
			for i, l := range locks {
				tx.Hold(&l.hold, t.session, keys[i], engine.LockOptions{Mode: mode})
			}
			t.held = append(t.held, locks...)
			return nil
		}
		w := &engine.Waiter{
			Session: t.session, Options: engine.LockOptions{Mode: mode}, Carried: carried,
		}
		w.Owner = t
		if err := tx.Wait(w, keys); err != nil {
			return err
		}
		for i, l := range locks {
			w.SetHold(i, &l.hold)
		}
		t.waiter, t.wants, t.mode, waits = w, keys, mode, true
		p.waiting = append(p.waiting, t)
		return nil
	})
	p.served()
	return waits, err
}

// engineWrite does fn as one transaction in memory.
func (w *world) engineWrite(fn func(tx *engine.Txn) error) error {
	tx := w.engine.Begin(w.now)
	if err := fn(tx); err != nil {
		tx.Undo()
		return err
	}
	tx.Seal()
	tx.Done()
	return nil
}

// served notes which threads have been granted what they waited for.
func (p *program) served() {
	for _, t := range slices.Clone(p.waiting) {
		if !t.waiter.Settled() {
			continue
		}
		for i := range t.wants {
			t.held = append(t.held, t.waiter.Hold(i).Owner.(*threadLock))
		}
		fmt.Fprintf(&p.log, "%s has %v\n", t.name, t.wants)
		t.waiter = nil
		p.waiting = slices.DeleteFunc(p.waiting, func(o *thread) bool { return o == t })
	}
}

func (p *program) releaseAll(t *thread) {
	for len(t.held) > 0 {
		p.release(t, p.IntN(len(t.held)))
	}
}

func (p *program) release(t *thread, at int) {
	l := t.held[at]
	fmt.Fprintf(&p.log, "%s releases %s\n", t.name, l.key)
	t.held = slices.Delete(t.held, at, at+1)
	_ = p.w.engineWrite(func(tx *engine.Txn) error {
		tx.Release(&l.hold)
		return nil
	})
	p.served()
}

var programKeys = []string{"a", "b", "c", "d", "e"}

// some returns different keys from the given one on, at most the given number.
func (p *program) some(from, most int) (keys []string) {
	for _, i := range p.Perm(len(programKeys) - from) {
		if len(keys) < most {
			keys = append(keys, programKeys[from+i])
		}
	}
	return keys
}

// Ensure that threads which lock keys in one order, one by one or several together, shared or
// alone, never wait for each other for ever (G9), though no context carries their locks.
func TestG9_OrderedLocksNeverHang(t *testing.T) {
	t.Parallel()
	runPrograms(t, 100_000, func(p *program) error {
		return p.run(func(t *thread) error {
			from := 0
			for _, l := range t.held {
				from = max(from, 1+slices.Index(programKeys, l.key))
			}
			if from == len(programKeys) || p.IntN(6) == 0 {
				p.releaseAll(t)
				return nil
			}
			mode := engine.Exclusive
			if p.IntN(3) == 0 {
				mode = engine.Shared
			}
			_, err := p.lock(t, p.some(from, 1+p.IntN(3)), mode, false)
			return err
		})
	})
}

// Ensure that a call is refused if, and only if, it would wait for ever: for calls for several keys
// in exclusive mode, for calls for one key in both modes, and for calls for several in both.
func TestDeadlock_Exact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		most   int // keys of a call
		shared bool
	}{"several": {3, false}, "shared": {1, true}, "several shared": {3, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := 0
			runPrograms(t, 20_000, func(p *program) error {
				return p.run(func(t *thread) error {
					mode := engine.Exclusive
					if test.shared && p.IntN(2) == 0 {
						mode = engine.Shared
					}
					keys := p.some(0, 1+p.IntN(test.most))
					before := slices.Clone(p.waiting)
					waits, err := p.lock(t, keys, mode, true)
					var found *engine.Deadlock
					if err != nil && !errors.As(err, &found) {
						return err
					}
					if waits == (found != nil) {
						return nil // it has its locks, and waits for nothing
					}
					if !waits {
						t.waiter, t.wants, t.mode = new(engine.Waiter), keys, mode
						p.waiting = append(p.waiting, t)
					}
					forEver := p.hangs(nil)
					if waits && forEver && !p.hangs(append(before, t)) {
						return errClosedLater
					}
					if forEver == waits {
						return fmt.Errorf("%v: got %v, want that it hangs: %v", keys, err, forEver)
					}
					if waits {
						return nil
					}
					refused++
					t.waiter, p.waiting = nil, p.waiting[:len(p.waiting)-1]
					err = p.checkSteps(t, found)
					p.releaseAll(t)
					return err
				})
			})
			if refused == 0 && *programSeed == 0 {
				t.Error("no call was ever refused")
			}
		})
	}
}

// errClosedLater ends a program in which a grant or a release closes a circle, by ending what lets
// a call pass another one. No call closes it, and so none is refused.
var errClosedLater = errors.New("a grant or a release closes a circle")

// hangs reports whether some threads wait for ever if each thread that does not wait releases what
// it has, and each thread that is served does so after that. Which thread passes which is decided
// as if the threads in passing all waited still; with nil, by the threads that are stuck by then.
func (p *program) hangs(passing []*thread) bool {
	stuck := slices.Clone(p.waiting)
	for {
		served := slices.IndexFunc(stuck, func(t *thread) bool {
			if passing != nil {
				return p.servable(t, stuck, passing)
			}
			return p.servable(t, stuck, stuck)
		})
		if served < 0 {
			return len(stuck) > 0
		}
		stuck = slices.Delete(stuck, served, served+1)
	}
}

// servable reports whether a thread can have what it wants when only stuck threads hold locks.
func (p *program) servable(t *thread, stuck, passing []*thread) bool {
	for _, key := range t.wants {
		if t.blocked(key, stuck) || p.behind(t, key, stuck, passing) {
			return false
		}
	}
	return true
}

// behind reports whether another thread comes first for the key. The thread that waits for longest
// comes first, unless it waits for t because of another key: then t passes it, and all behind it.
func (p *program) behind(t *thread, key string, stuck, passing []*thread) bool {
	return !slices.ContainsFunc([][]*thread{stuck, passing}, func(queue []*thread) bool {
		at := slices.IndexFunc(queue, func(o *thread) bool { return slices.Contains(o.wants, key) })
		first := queue[at]
		return first == t || waitsFor(t, first, key, passing, make(map[*thread]bool))
	})
}

// waitsFor reports whether thread one waits for t, directly or through others that wait, because of
// a key other than but.
func waitsFor(t, one *thread, but string, waiting []*thread, seen map[*thread]bool) bool {
	if seen[one] {
		return false
	}
	seen[one] = true
	for _, key := range one.wants {
		if key == but {
			continue
		}
		for i, other := range waiting {
			blocks := one.blocked(key, waiting[i:i+1])
			ahead := i < slices.Index(waiting, one) && slices.Contains(other.wants, key)
			if blocks && other == t || (blocks || ahead) && waitsFor(t, other, "", waiting, seen) {
				return true
			}
		}
	}
	return false
}

// blocked reports whether one of the holders has the key's lock in a mode that keeps t out.
func (t *thread) blocked(key string, holders []*thread) bool {
	for _, holder := range holders {
		for _, l := range holder.held {
			if l.key == key &&
				(t.mode == engine.Exclusive || l.hold.Mode == engine.Exclusive) {
				return true
			}
		}
	}
	return false
}

// checkSteps follows the circle that a call was refused for.
func (p *program) checkSteps(t *thread, found *engine.Deadlock) error {
	for i, step := range found.Steps {
		at := slices.IndexFunc(p.threads, func(o *thread) bool {
			return o.session == step.Waiter.Session
		})
		next := found.Steps[(i+1)%len(found.Steps)]
		holds := slices.ContainsFunc(p.threads[at].held, func(l *threadLock) bool {
			return l.key == step.Holds.Grant.Key && l.hold.Fence == step.Holds.Grant.Fence
		})
		waits := i == 0 && p.threads[at] == t ||
			i > 0 && slices.Contains(p.threads[at].wants, step.Key) && p.threads[at].waiter != nil
		if !holds || !waits || step.Key != next.Holds.Grant.Key {
			return fmt.Errorf("step %d of %v: holds %v, waits %v", i, found, holds, waits)
		}
	}
	return nil
}
