package lockdtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// World is one run of the body of Explore: its database, its clock and its goroutines, of which one
// at a time runs. Its methods are for the goroutines of the body. The zero value is not usable;
// Explore gives one.
type World struct {
	explorer *explorer
	clock    *clock.Mock
	rules    []rule
	restart  func()
	journal  journal
	monitor  monitor

	process *process
	running atomic.Pointer[goroutine] // nil: none, and Explore itself calls
	last    *goroutine                // the one that ran last
	failure *failure                  // the first one
	ended   bool                      // all goroutines of the body are done
	failed  bool                      // the test had failed before the schedule began
	guarded string                    // the function of the body's that Explore itself calls, or ""

	// What is left of the plan, and how far the schedule is.
	plan    plan
	seed    string
	order   func() uint64
	lowest  int64
	step    int
	idle    int // steps of the clock since a goroutine of the body went on
	blind   int // of the clock's steps since any goroutine went on, those to no known deadline
	renewal bool
	commits int  // that are to fail
	unclear bool // the next commit is to be in the file, and reported as failed
	notes   map[lockd.SessionID]*note
	now     time.Time
	active  time.Time     // when a goroutine of the body went on last
	end     time.Time     // of the schedule's time
	epoch   time.Time     // the mock's time at the beginning of the schedule
	began   time.Time     // the bubble's time when the mock's was epoch
	woken   chan struct{} // has a value when a wait has ended since the clock began to move
}

// note is what is known of a session since its ID was given out.
type note struct {
	maker *goroutine
	lost  time.Time // its renewals before this instant are lost
}

// rule is one of the body's own rules.
type rule struct {
	name  string
	holds func() error
}

// DB returns the database of the process that runs. Explore closes it when the body has ended; the
// body must not.
func (w *World) DB() *lockd.DB { return w.process.db }

// Clock returns the clock of the database, for code under test that tells the time itself. It moves
// when no goroutine can go on, or where the schedule says so; the body must not move it.
//
// Timers and contexts of packages time and context run by it too. But it stops only where lockd has
// something to do, at the end of a World.Sleep, and where a context of package context ends a call
// of lockd that waits. Every other timer or context is late, also one of this clock: its effect is
// seen at the next stop, and a session that it was to renew may have ended by then.
func (w *World) Clock() clock.Clock { return w.clock }

// Go starts fn on a goroutine of its own, which the schedule knows by the name. The schedule ends
// when all goroutines have ended, except those that are in a call of KeepAlive, Watch or the like:
// such a call ends with the database. A panic of fn fails the test.
func (w *World) Go(name string, fn func()) {
	mustHave(fn != nil)
	w.process.start(name, fn)
}

// Yield is a point at which other goroutines may go on. It is for a step of the body that is not a
// call of lockd, such as a write to an outside resource.
func (w *World) Yield() { w.point("Yield", always) }

// point holds the goroutine that calls. It panics if the function of an Update does, since no other
// call could go on until that function has returned, or if Explore itself does, in a rule or in a
// condition: no goroutine goes on meanwhile.
func (w *World) point(what string, ready func() bool) {
	if w.guarded != "" {
		panic("it calls World." + what + ", and must not")
	}
	_ = w.process.db.Watch(context.Background(), lockd.Scope{}, 0) // checks that, and does no more
	w.process.point(what, ready)
}

// Await blocks until the condition holds. Explore calls condition when no goroutine runs, so
// it must not block, and may read what the body's goroutines share. It takes the place of channels,
// mutexes and the like, for which a goroutine must not wait: Explore would not know who goes on. A
// condition that time alone makes true, by a timer or a context, is seen late (see Clock): to go on
// at an instant, use Sleep.
func (w *World) Await(condition func() bool) {
	mustHave(condition != nil)
	w.point("Await", func() (holds bool) {
		w.guard("a condition of World.Await", func() { holds = condition() })
		return holds
	})
}

// Sleep blocks until the clock has moved by d, like work that takes time.
func (w *World) Sleep(d time.Duration) {
	until := w.now.Add(d)
	if g := w.process.caller(); g != nil {
		g.wakes = until
	}
	w.point("Sleep", func() bool { return !w.now.Before(until) })
}

// Invariant adds a rule that has to hold after every step. Explore calls holds when no goroutine
// runs; holds may read the database, and must not write to it or wait. An error fails the test,
// with the name of the rule.
func (w *World) Invariant(name string, holds func() error) {
	mustHave(holds != nil)
	w.rules = append(w.rules, rule{name, holds})
}

// Errorf fails the test, with the schedule that leads here. The schedule ends after this step.
func (w *World) Errorf(format string, args ...any) {
	w.fail("", fmt.Sprintf(format, args...))
}

// Restart says what the next process runs, so that the schedule may let the process die, once: all
// goroutines end, their calls get no answer, and fn is run on the database as the file has it.
// Deferred functions do run, on a database that is closed. Before fn the wall clock may be set back
// by the longest lock-delay. Or a commit that is in the file may be reported as failed, by
// lockd.ErrCommit: from then on writes return lockd.ErrFailed, and fn is run when all goroutines
// have ended. Without a call of Restart none of this happens.
func (w *World) Restart(fn func()) {
	mustHave(fn != nil)
	w.restart = fn
	w.explorer.restarts = true
}

// fail notes the failure, unless the schedule has one already.
func (w *World) fail(rule, text string) {
	if w.failure == nil {
		w.failure = &failure{rule, text}
	}
}

// mustHave panics unless the function is there: a nil function is a bug of the caller.
func mustHave(there bool) {
	if !there {
		panic("lockdtest: nil function")
	}
}

// always is the condition of a goroutine that can go on.
func always() bool { return true }
