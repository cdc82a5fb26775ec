package writer

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// mutex is the mutex of a writer. While the function of an Update runs, it is free: then only the
// methods of the transaction, and renewals, change what it protects. Calls that only read, or do
// not affect the transaction, lock it with LockBeside, and do not wait for the function; all other
// calls wait until the function has returned. So a function that hangs does not keep callers from
// reading what is published.
type mutex struct {
	mu       sync.Mutex
	function function // protected by mu, as what follows
	waiting  int      // calls that wait for the function to return
	starving int      // how many of them have been woken too late too often
	handed   bool     // the turn is kept for one of them: function.running is set, but none runs

	// turn wakes one call that waits. It is a channel, so that a call that waits counts as durably
	// blocked in a synctest bubble. It has room for one token, because endTurn must not block. A
	// token that is left over wakes a call in vain.
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
	if m.lockTurn() {
		m.endTurn(0)
	}
}

// lockTurn is Lock for an Update, which calls endTurn when its function has returned. It reports
// whether it had to wait. If so, the caller has to call endTurn even if it runs no function.
func (m *mutex) lockTurn() (waited bool) {
	m.mu.Lock()
	if waited = m.function.running; waited {
		m.await()
	}
	return waited
}

// await waits for a turn. The caller holds mu, before and after.
//
// As a rule another call may lock mu before the call that is woken does. If the turn were always
// kept for that call, the goroutines that run would have to wait until it is scheduled, and then
// until the next one is, and the queue would never end (BenchmarkUpdate_Crowd).
func (m *mutex) await() {
	if m.function.isCaller() {
		m.mu.Unlock()
		panic(misuse())
	}
	m.waiting++
	late := -1
	for m.function.running && !m.handed || late < 0 {
		if late++; late == maxLate {
			m.starving++
		}
		m.mu.Unlock()
		<-m.turn
		m.mu.Lock()
	}
	if late >= maxLate {
		m.starving--
	}
	m.waiting--
	m.function.running, m.handed = false, false
}

const (
	maxLate      = 8                // how often a call is woken too late until it is starving
	longFunction = time.Millisecond // how long a function runs until the turn after it is kept
)

// endTurn ends the turn of a function that ran that long, and wakes a call that waits. The turn is
// kept for that call if any is starving, or if the function was long, so that the next functions,
// which may be as long, run in the order in which they came. The caller holds mu.
func (m *mutex) endTurn(ran time.Duration) {
	m.handed = m.waiting > 0 && (m.starving > 0 || ran >= longFunction)
	m.function.running, m.function.goroutine = m.handed, ""
	if m.waiting > 0 {
		select {
		case m.turn <- struct{}{}:
		default: // the last token is still there, and wakes a call that will end its turn too
		}
	}
}

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
	if w.lockTurn() && w.Refused() != nil {
		w.endTurn(0) // fn will not be called
	}
	return w.write(func() error {
		return w.Apply(func(tx *engine.Txn) error {
			w.function.begin()
			tx.Share()
			began := w.instant // a KeepAlive moves it on, beside the function
			w.Unlock()
			defer func() {
				w.mutex.LockBeside()
				tx.Unshare()
				w.instant = w.Time() // fn may have taken long
				w.endTurn(w.instant.Sub(began))
			}()
			return fn(tx)
		})
	})
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
