//go:build invariants

package lockd

import (
	"bytes"
	"runtime"
	"sync/atomic"
)

// A large state is checked only now and then: looking at all of it after every transaction takes
// time in proportion to its square.
const (
	largeState = 500
	nowAndThen = 128
)

// mustHold panics if the state is not consistent. It is called after every transaction and every
// batch.
func (db *DB) mustHold() {
	if db.store.Rows()+len(db.locks) > largeState && db.store.Index()%nowAndThen != 0 {
		return
	}
	if err := db.checkLocked(); err != nil {
		panic("lockd: " + err.Error())
	}
}

// guest is the goroutine that runs the function of an Update, if there is one: it has the gate.
type guest struct{ name atomic.Pointer[string] }

func (g *guest) enter() {
	name := goroutine()
	g.name.Store(&name)
}

func (g *guest) leave() { g.name.Store(nil) }

// mustNotBeHere panics in the function of an Update, which would wait for itself.
func (g *guest) mustNotBeHere() {
	if name := g.name.Load(); name != nil && *name == goroutine() {
		panic("lockd: the function of an Update calls a method that would wait for it for ever")
	}
}

// goroutine names the caller's.
func goroutine() string {
	var stack [64]byte
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	return string(name)
}
