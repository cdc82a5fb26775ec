package engine_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// world is an engine as its callers drive it: the writer, and the handles of a database. Commands
// stand for the calls, and texts for what the engine tells.
type world struct {
	t      testing.TB
	path   string // of the file, if there is one
	rows   *store.Store
	engine *engine.Engine
	now    time.Time
	slow   time.Duration // engine.Config.Slow
	taken  *engine.Batch // that is being committed, or nil

	// The handles that callers have been told of.
	sessions map[string]*engine.Session
	holds    map[string]*engine.Hold
	waiters  map[string]*engine.Waiter // that wait

	named map[string]string // the names of sessions, by the text of their IDs

	out   strings.Builder // what the command answers
	trace *strings.Builder
}

// begin is the instant at which every world begins.
var begin = time.Unix(1_000_000_000, 0).UTC()

// newWorld returns a world in memory, where all that is sealed is told at once.
func newWorld(t testing.TB, slow time.Duration) *world { return openWorld(t, store.New(), slow) }

// newBatches returns a world whose writes wait for a commit, and which has no file.
func newBatches(t testing.TB, slow time.Duration) *world {
	rows := store.New()
	rows.Rehearse(store.Hooks{})
	return openWorld(t, rows, slow)
}

// newFile returns a world with a file, which can be opened again.
func newFile(t testing.TB, slow time.Duration) *world {
	rows, path := store.New(), filepath.Join(t.TempDir(), "lockd.db")
	openFile(t, rows, path)
	w := openWorld(t, rows, slow)
	w.path = path
	t.Cleanup(func() { w.rows.Close() })
	return w
}

func openFile(t testing.TB, rows *store.Store, path string) {
	err := rows.Open(path, store.Options{Mode: 0o600, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
}

// reopen opens the file as another process does. Only sessions that live have handles then.
func (w *world) reopen() {
	w.commit()
	if err := w.rows.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.rows = store.New()
	openFile(w.t, w.rows, w.path)
	w.load()
	clear(w.sessions)
	clear(w.holds)
	clear(w.waiters)
	for _, s := range w.engine.AllSessions() {
		w.sessions[sessionName(s.Row.ID)] = s
	}
}

func openWorld(t testing.TB, rows *store.Store, slow time.Duration) *world {
	w := &world{
		t: t, rows: rows, now: begin, slow: slow,
		named:    make(map[string]string),
		sessions: make(map[string]*engine.Session),
		holds:    make(map[string]*engine.Hold),
		waiters:  make(map[string]*engine.Waiter),
	}
	w.load()
	return w
}

// load reads the rows, and writes the rows that every open database has.
func (w *world) load() {
	w.engine = engine.New(w.rows, engine.Config{Node: "local", Slow: w.slow})
	w.engine.Load(w.now)
	w.write(func(tx *engine.Txn) error {
		tx.Initialize()
		return nil
	})
	w.commit()
	w.out.Reset()
}

// handle is the owner of a hold, and of a waiter.
type handle struct {
	name  string
	holds []*handle // of a waiter: what it is to be given
	hold  engine.Hold
	engine.Waiter
}

func nameOf(owner any) string { return owner.(*handle).name }

// write runs fn as one transaction, and tells what is published by it.
func (w *world) write(fn func(tx *engine.Txn) error) error {
	tx := w.engine.Begin(w.now)
	if err := fn(tx); err != nil {
		tx.Undo()
		return err
	}
	w.tell(tx.Seal())
	tx.Done()
	return nil
}

// endRefused ends the sessions that an operation was refused to because they are due.
func (w *world) endRefused() {
	for {
		due, ok := w.engine.PopRefused(w.now)
		if !ok {
			return
		}
		w.write(func(tx *engine.Txn) error {
			tx.EndDue(due)
			return nil
		})
	}
}

// endDue ends what is due, each thing in a transaction of its own, as the writer does.
func (w *world) endDue() {
	const all = 1 << 30
	for {
		due, _, ok := w.engine.PopDue(w.now, all)
		if !ok {
			break
		}
		w.write(func(tx *engine.Txn) error {
			tx.EndDue(due)
			return nil
		})
	}
	if w.engine.PopUnserved() {
		w.write(func(tx *engine.Txn) error {
			tx.ServeAll()
			return nil
		})
	}
}

// take closes the open batch, if it has any rows and none is being committed.
func (w *world) take() {
	if w.taken == nil && w.engine.Pending() {
		w.taken = w.engine.Take()
	}
}

// commit makes durable what was taken, or else the open batch.
func (w *world) commit() {
	if w.take(); w.taken == nil {
		return
	}
	b := w.taken
	if err := w.engine.Write(b); err != nil {
		w.t.Fatal(err)
	}
	w.taken = nil
	w.tell(w.engine.Publish(b))
	w.engine.Reuse(b)
}

// drop fails the commit of what was taken, or else of the open batch.
func (w *world) drop() {
	if w.take(); w.taken == nil {
		return
	}
	w.engine.Drop(w.taken)
	w.taken = nil
}

// tell prints what was published, in the order in which a database tells it (G10).
func (w *world) tell(o engine.Outcome) {
	w.record(o)
	for i := range o.Effects {
		switch f := &o.Effects[i]; f.Kind {
		case engine.LockReleased:
			w.printf("released %s\n", nameOf(f.Hold.Owner))
		case engine.LockLost:
			w.printf("lost %s: %v\n", nameOf(f.Hold.Owner), f.Cause)
			delete(w.holds, nameOf(f.Hold.Owner))
		case engine.SessionMade:
			w.sessions[sessionName(f.Session.Row.ID)] = f.Session
		case engine.LockDowngraded:
			w.holds[nameOf(f.Next.Owner)] = f.Next
		case engine.LockHeld:
			w.holds[nameOf(f.Hold.Owner)] = f.Hold
		case engine.HoldSlow, engine.WaitSlow:
			w.printf("slow %s\n", w.slowness(f.Slow))
		case engine.SessionEnded:
			w.printf("ended %s: %v\n", sessionName(f.Session.Row.ID), f.Cause)
		}
	}
	for i := range o.Events {
		w.printf("%s\n", w.event(&o.Events[i]))
	}
	for i := range o.Effects {
		f := &o.Effects[i]
		if f.Kind != engine.WaiterServed && f.Kind != engine.WaiterLeft {
			continue
		}
		h := f.Waiter.Owner.(*handle)
		delete(w.waiters, h.name)
		if f.Kind == engine.WaiterLeft {
			w.printf("left %s: %s\n", h.name, w.problem(f.Waiter.Err))
			continue
		}
		w.printf("served %s\n", h.name)
		for _, given := range h.holds {
			w.holds[given.name] = &given.hold
		}
	}
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(&w.out, format, args...) }

// answer returns what was printed since the last answer, with names for the IDs of sessions.
func (w *world) answer() string {
	text := w.out.String()
	w.out.Reset()
	for id, name := range w.named {
		text = strings.ReplaceAll(text, id, "<"+name+">")
	}
	return text
}

// idOf returns the ID of the session with the name, which may have 16 bytes; "-" is no session.
func idOf(name string) (id schema.ID) {
	if name != "-" {
		copy(id[:], name)
	}
	return id
}

// sessionName is the name of the session with the ID.
func sessionName(id schema.ID) string {
	return strings.TrimRight(string(id[:]), "\x00")
}
