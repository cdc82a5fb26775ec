package lockd

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/expiry"
)

// guest is the function of an Update while it runs: code of the user's, for which the database
// waits. The zero value is none.
type guest struct {
	checked bool // a call by the function that would wait for itself is looked for

	tx        *Txn        // the transaction of the function; nil: none runs
	goroutine string      // that runs it, if checked
	began     time.Time   // when it did, if that is logged
	callers   [16]uintptr // of enter, if that is logged
	overdue   expiry.Item // when it is logged
}

// call runs fn, which is code of the user's, with the mutex unlocked.
func (tx *Txn) call(fn func(tx *Txn) error) error {
	db := tx.db
	db.mu.guest.enter(tx)
	db.mu.Unlock()
	defer func() {
		db.mu.LockBeside()
		db.mu.guest.leave(db)
		tx.endTurn()
	}()
	return fn(tx)
}

// enter makes g the function that tx is for.
func (g *guest) enter(tx *Txn) {
	db := tx.db
	g.tx = tx
	if g.checked {
		g.goroutine = goroutine()
	}
	if db.logger != nil {
		db.logger.beginLocked()
		runtime.Callers(1, g.callers[:])
		g.began = tx.clock()
		db.logger.updates.Set(&g.overdue, g.began.Add(slowUpdate))
		db.logger.updates.Arm(g.began)
	}
}

// leave makes g none.
func (g *guest) leave(db *DB) {
	g.tx = nil
	if db.logger != nil {
		db.logger.updates.Remove(&g.overdue)
	}
}

// endTurn lets other Updates begin, unless that is done.
func (tx *Txn) endTurn() {
	if tx.turn {
		tx.turn = false
		<-tx.db.mu.turn
	}
}

// enter begins a method that may change locks or sessions: within the function of an Update it
// locks mu. All methods that write begin so, but for those that write a value and leave its lock
// alone: nobody looks at what they change before it is published.
func (tx *Txn) enter() {
	tx.check()
	if tx.db.mu.guest.tx == tx {
		tx.db.mu.LockBeside()
	}
}

// leave ends what enter began.
func (tx *Txn) leave() {
	if tx.db.mu.guest.tx == tx {
		tx.db.mu.Unlock()
	}
}

// isCaller reports whether the function runs on the goroutine that asks.
func (g *guest) isCaller() bool {
	return g.checked && g.tx != nil && g.goroutine == goroutine()
}

// goroutine names the one that calls.
func goroutine() string {
	var stack [64]byte
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	return string(name)
}

// misuse says which method is called by the function of an Update, and where.
func misuse() string {
	var callers [32]uintptr
	method, site := callOf(callers[:runtime.Callers(1, callers[:])])
	return fmt.Sprintf("lockd: %s is called by the function of an Update, at %s, and would wait "+
		"for it for ever: use the methods of its Txn", method, site)
}

// callOf finds in a stack the call of a function of this package by other code: which function, and
// where it is called.
func callOf(callers []uintptr) (method, site string) {
	const us = "github.com/lockd/lockd."
	frames := runtime.CallersFrames(callers)
	for {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, us)
		if !ours {
			return method, fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		method = strings.NewReplacer("(*", "", ")", "").Replace(name)
		if !more {
			return method, "an unknown place"
		}
	}
}

// slowUpdate is how long the function of an Update may run before that is logged.
const slowUpdate = time.Second

// slowUpdate returns what to log of a function that runs for too long, once. It reports false if
// there is none.
func (db *DB) slowUpdate() (slog.Record, bool) {
	db.mu.LockBeside()
	defer db.mu.Unlock()
	now := db.now()
	if db.logger.updates.Pop(now) == nil {
		db.logger.updates.Arm(now)
		return slog.Record{}, false
	}
	g := &db.mu.guest
	_, site := callOf(g.callers[:])
	record := slog.NewRecord(now.Round(0), slog.LevelWarn, "update slow", 0)
	record.AddAttrs(slog.Duration("took", now.Sub(g.began)), slog.String("caller", site))
	return record, true
}
