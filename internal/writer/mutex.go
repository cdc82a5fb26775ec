package writer

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/lockd/lockd/internal/engine"
)

// mutex is the mutex of a writer. While the function of an Update runs, it is free: then only the
// methods of the transaction, and renewals, change what it protects. Calls that only read, or do
// not affect the transaction, lock it with LockBeside, and do not wait for the function; all other
// calls wait until the function has returned. So a function that hangs does not keep callers from
// reading what is published.
type mutex struct {
	mu       sync.Mutex
	function function // protected by mu

	// turn has the token of the Update that runs, from before it locks mu until its function has
	// returned. A call that takes the turn does not hold mu. The turn is a channel, not a mutex, so
	// that a call that waits for it counts as durably blocked in a synctest bubble.
	turn chan struct{}
}

// function is the function of an Update while it runs: user code, for which the database waits. The
// zero value is no function.
type function struct {
	checked   bool   // a call by the function that would wait for itself panics
	running   bool   // a function runs
	goroutine string // the goroutine that runs it, if checked
}

// Lock locks the mutex when no function of an Update runs. It is for writes, and for calls that
// read unpublished state. In a writer that is Checked it panics if that function itself calls Lock.
func (m *mutex) Lock() {
	m.mu.Lock()
	if m.function.running {
		m.await()
	}
}

// await completes Lock when the function that runs has returned.
func (m *mutex) await() {
	own := m.function.isCaller()
	m.mu.Unlock()
	if own {
		panic(misuse())
	}
	m.takeTurn()
	m.mu.Lock() // and no function runs, for it would have the turn
	<-m.turn
}

// lockTurn is Lock for an Update, which gives back the turn when its function has returned.
func (m *mutex) lockTurn() {
	m.MustNotBeFunction()
	m.takeTurn()
	m.mu.Lock()
}

// takeTurn waits for the turn. Most functions end at once, so it tries a few times before it
// queues: as long as there is a queue, each hand-off of the turn waits until the next goroutine is
// woken (BenchmarkUpdate_Crowd).
func (m *mutex) takeTurn() {
	for range turnTries {
		select {
		case m.turn <- struct{}{}:
			return
		default:
			runtime.Gosched()
		}
	}
	m.turn <- struct{}{}
}

// turnTries is how often a call yields for the turn before it queues.
const turnTries = 4

// LockBeside locks the mutex, even while the function of an Update runs. It is for calls that only
// read or renew, and for calls by that function.
func (m *mutex) LockBeside() { m.mu.Lock() }

// Unlock unlocks the mutex after Lock or LockBeside.
func (m *mutex) Unlock() { m.mu.Unlock() }

// MustNotBeFunction panics if the function of an Update calls it, in a writer that is Checked.
func (m *mutex) MustNotBeFunction() {
	if !m.function.checked {
		return
	}
	m.mu.Lock()
	own := m.function.isCaller()
	m.mu.Unlock()
	if own {
		panic(misuse())
	}
}

// begin notes that a function runs.
func (f *function) begin() {
	f.running = true
	if f.checked {
		f.goroutine = goroutine()
	}
}

// isCaller reports whether the function runs on the goroutine that asks.
func (f *function) isCaller() bool {
	return f.checked && f.running && f.goroutine == goroutine()
}

// Update is Do for a function that is user code: the mutex is not locked while fn runs, and nothing
// else is written. fn calls the transaction's methods between LockBeside and Unlock. Methods that
// write a value and no lock need not: no other call reads what they change before it is published.
func (w *Writer) Update(fn func(tx *engine.Txn) error) error {
	w.begin()
	w.lockTurn()
	ended := false
	endTurn := func() { // if the function was not called
		if !ended {
			<-w.turn
			ended = true
		}
	}
	defer endTurn()
	// Update gives back the turn before it waits for a commit, whose leader may need the turn.
	return w.write(func() error {
		return w.Apply(func(tx *engine.Txn) error {
			w.function.begin()
			tx.Share()
			w.Unlock()
			defer func() {
				w.mutex.LockBeside()
				tx.Unshare()
				w.function.running = false
				w.instant = w.Time() // fn may have taken long
				<-w.turn
				ended = true
			}()
			return fn(tx)
		})
	}, endTurn)
}

// goroutine names the calling goroutine.
func goroutine() string {
	var stack [64]byte
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	return string(name)
}

// misuse says which method the function of an Update calls, and where.
func misuse() string {
	var callers [32]uintptr
	method, site := CallOf(callers[:runtime.Callers(1, callers[:])])
	return fmt.Sprintf("lockd: %s is called by the function of an Update, at %s, and would wait "+
		"for it for ever: use the methods of its Txn", method, site)
}

// CallOf finds in a stack the call of a function of package lockd, or lockdtest, by other code:
// which function, and where it is called.
func CallOf(callers []uintptr) (method, site string) {
	const (
		us      = "github.com/lockd/lockd."
		tests   = "github.com/lockd/lockd/lockdtest."
		inside  = "github.com/lockd/lockd/internal/"
		unknown = "an unknown place"
	)
	frames := runtime.CallersFrames(callers)
	for {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, us)
		if !ours {
			name, ours = strings.CutPrefix(frame.Function, tests)
		}
		switch {
		case ours:
			method = strings.NewReplacer("(*", "", ")", "").Replace(name)
		case !strings.HasPrefix(frame.Function, inside):
			return method, fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		if !more {
			return method, unknown
		}
	}
}
