package lockdtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

// process is a process that a run plays: a database and its goroutines, whose turns it decides.
type process struct {
	world      *World
	db         *lockd.DB
	controls   *hook.Controls
	database   *goroutine // the database's own goroutine
	goroutines []*goroutine
	handles    []hook.Held // handles that calls returned, and that are not known to have ended
	opened     uint64      // the index of the database when the process began

	dead   bool
	flies  bool // the commit that is under way when the process dies becomes durable
	failed bool // a commit that is in the file was reported as failed
}

var _ hook.Turns = (*process)(nil)

// goroutine is a goroutine that the schedule knows.
type goroutine struct {
	name     string
	turn     chan struct{}
	state    state
	ready    func() bool // whether it can go on, if it is held
	priority int64
	call     string    // its point, in words; not kept up if no lines are kept
	wakes    time.Time // the end of its World.Sleep
	paused   time.Time // until when it stands still

	reason hook.Reason // why it waits
	keys   []string    // whose locks it waits for; it may stand in their queues until it goes on
	rank   int         // the step in which its call began
	called int         // how many steps it made in a row

	// several has the step in which it last went on from a wait for that lock and for others.
	several map[string]int

	own     bool // it is the database's or Explore's: it does not die, and is not paused
	exiting bool // it ends, because its process has died
}

// state is what a goroutine does.
type state int

const (
	held    state = iota // it has yet to get its turn
	running              // it has its turn
	waiting              // in a call of lockd's
	ended                // it has ended
)

// newProcess returns a process whose database is at the path, or in memory.
func (w *World) newProcess(path string) *process {
	p := &process{world: w}
	p.database = w.newGoroutine("database")
	p.database.state, p.database.own = ended, true
	p.goroutines = append(p.goroutines, p.database)
	kit := &hook.Clock{Clock: w.clock, Rehearse: true, Checked: true, Hooks: hook.Hooks{
		File:    hook.File{BeforeCommit: p.beforeCommit, AfterCommit: p.afterCommit},
		Renewal: w.renews, Published: p.published, NewID: w.newID, Handed: p.handed, Turns: p,
	}}
	opts := &lockd.Options{
		Clock: kit, Logger: slog.New(slog.DiscardHandler), Sync: lockd.SyncNever,
	}
	var err error
	if path == "" {
		p.db, err = lockd.New(opts)
	} else {
		p.db, err = lockd.Open(path, opts)
	}
	if err != nil {
		w.explorer.bubble.Fatalf("lockdtest: %v", err)
	}
	p.controls, p.opened = &kit.Controls, p.db.Stats().Index
	return p
}

// path returns the path for the database of a run in which the process may die.
func (e *explorer) path() string {
	if e.dir == "" {
		e.dir = e.t.TempDir()
	}
	e.files++
	return filepath.Join(e.dir, fmt.Sprintf("%d.db", e.files))
}

func (w *World) newGoroutine(name string) *goroutine {
	priority := int64(w.order() >> 1)
	return &goroutine{name: name, turn: make(chan struct{}), ready: always, priority: priority}
}

// start starts a goroutine, which goes on when it is its turn.
func (p *process) start(name string, fn func()) *goroutine {
	g := p.world.newGoroutine(name)
	g.call = "begins"
	p.goroutines = append(p.goroutines, g)
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				p.world.fail("panic", fmt.Sprintf("%s: %v\n%s", name, fault, debug.Stack()))
			}
			g.state = ended
		}()
		<-g.turn
		p.resumed(g)
		fn()
	}()
	return g
}

// hold blocks until the condition holds and it is the goroutine's turn.
func (p *process) hold(g *goroutine, ready func() bool) {
	g.state, g.ready = held, ready
	<-g.turn
}

// resumed ends the goroutine if its process has died.
func (p *process) resumed(g *goroutine) {
	if p.dead && !g.own {
		g.exiting = true
		runtime.Goexit()
	}
}

// caller returns the goroutine that calls, or nil if Explore itself calls, or if the goroutine ends
// because its process has died.
func (p *process) caller() *goroutine {
	g := p.world.running.Load()
	if g == nil || g.exiting {
		return nil
	}
	if g.state != running {
		p.world.fail("", "a goroutine that World.Go has not started calls lockd, or the World: "+
			callSite(""))
		return nil
	}
	return g
}

// point holds the goroutine that calls.
func (p *process) point(what string, ready func() bool) {
	g := p.caller()
	if g == nil {
		return
	}
	g.call = p.world.journal.call(what)
	p.hold(g, ready)
	p.resumed(g)
}

// Begin implements hook.Turns.
func (p *process) Begin() {
	p.point("", always)
	if g := p.world.running.Load(); g != nil {
		g.rank = p.world.step
	}
}

// Return implements hook.Turns.
func (p *process) Return() { p.point("is answered", always) }

// Wait implements hook.Turns.
func (p *process) Wait(why hook.Reason, keys []string) (end func()) {
	return p.wait(why, keys, p.resumed)
}

// Hold implements hook.Turns.
func (p *process) Hold() (end func()) {
	return p.wait(hook.Others, nil, func(*goroutine) {})
}

func (p *process) wait(why hook.Reason, keys []string, resumed func(*goroutine)) (end func()) {
	g := p.caller()
	if g == nil {
		p.world.mustNotWait(why)
		return func() {}
	}
	g.state, g.reason, g.keys = waiting, why, keys
	g.call = p.world.journal.call(arrival(why))
	return func() {
		caller := p.world.running.Load() // first: see World.await
		if caller == g {                 // it did not have to wait
			g.state = running
		} else {
			select {
			case p.world.woken <- struct{}{}:
			default:
			}
			p.hold(g, always)
		}
		g.goesOn(p.world.step)
		if caller != g {
			resumed(g)
		}
	}
}

// goesOn notes that the goroutine has waited, and goes on in the step.
func (g *goroutine) goesOn(step int) {
	if len(g.keys) > 1 {
		if g.several == nil {
			g.several = make(map[string]int)
		}
		for _, key := range g.keys {
			g.several[key] = step
		}
	}
	g.reason, g.keys = "", nil
}

// arrival is the text of the point at which a goroutine has waited.
func arrival(why hook.Reason) string {
	switch why {
	case hook.Work, hook.Others:
		return "goes on"
	}
	return "has waited for " + string(why)
}

// Join implements hook.Turns.
func (p *process) Join() (leave func()) {
	g := p.database
	g.call = "begins"
	p.hold(g, always)
	return func() { g.state = ended }
}

var (
	errChosen = errors.New("commit fails in this schedule")
	errDead   = errors.New("process has died")
)

func (p *process) beforeCommit() error {
	w := p.world
	underWay := !p.dead
	if g := p.caller(); g != nil {
		g.call = w.journal.call("commits")
		p.hold(g, always)
	}
	switch {
	case p.dead && !(p.flies && underWay):
		return errDead
	case p.dead:
		p.flies = false
	case w.commits > 0 && w.running.Load() != nil:
		w.commits--
		w.journal.note("the commit fails")
		return errChosen
	}
	return nil
}

func (p *process) afterCommit() error {
	w := p.world
	switch {
	case p.dead:
		return errDead
	case w.unclear && w.running.Load() != nil:
		w.unclear, p.failed = false, true
		w.journal.note("the commit is in the file, and is reported as failed")
		return errChosen
	}
	return nil
}

// renews is called before a session is renewed.
func (w *World) renews(session [16]byte) error {
	n := w.notes[session]
	switch {
	case n == nil:
		return nil
	case n.maker != nil && w.now.Before(n.maker.paused):
	case w.renewal:
		w.renewal = false
		n.lost = w.now.Add(w.monitor.life(session))
	case !w.now.Before(n.lost):
		return nil
	}
	w.journal.note(fmt.Sprintf("a renewal of %s is lost", w.monitor.name(session)))
	return ErrDropped
}

// newID returns the ID of a new session: a number, so that a schedule always has the same lines.
func (w *World) newID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[8:], uint64(len(w.notes)+1))
	w.notes[id] = &note{maker: w.running.Load()}
	return id
}
