package lockdtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

const (
	maxSteps = 10_000 // of a schedule
	maxIdle  = 1000   // steps of the clock since a goroutine of the body went on
	maxBlind = 20     // of these, steps to no known deadline since any goroutine went on
	maxRow   = 200    // steps of one goroutine in a row
)

// span is how much of the clock's time a schedule has. A deadline after it, such as one in 100
// years, is never due.
const span = 90 * 365 * 24 * time.Hour

// spent reports whether the bubble's clock, which goes from 2000 to 2262, may have too little time
// left for two schedules: one that fails, and the same again.
func spent() bool { return time.Now().Year() >= 2070 }

// run runs the schedule, and returns what it has shown.
func (e *explorer) run(p plan, v volume) *outcome {
	w := &World{
		explorer: e, clock: clock.NewMock(), plan: p, lowest: -1, order: orderOf(p.order),
		seed: p.String(), failed: e.t.Failed(),
		notes: make(map[lockd.SessionID]*note), journal: journal{volume: v},
		woken: make(chan struct{}, 1),
	}
	w.epoch, w.began = w.clock.Now(), time.Now()
	w.now, w.active, w.end = w.epoch, w.epoch, w.epoch.Add(span)
	w.monitor = newMonitor(w)
	path := ""
	for _, c := range p.changes {
		if path == "" && slices.Contains(needsFile, c.kind) {
			path = e.path()
			defer os.Remove(path)
		}
	}
	w.process = w.newProcess(path)
	w.process.start("body", func() { e.body(w) })
	for w.failure == nil && !w.ended {
		w.advance(path)
	}
	steps := w.step
	if w.failure == nil {
		w.conclude()
	}
	if w.failure != nil {
		w.process.kill()
	}
	w.lookAtTest()
	return &outcome{plan: p, failure: w.failure, steps: steps, lines: w.journal.lines}
}

// orderOf returns the function that gives each goroutine its priority. For order 0, each goroutine
// has a lower priority than the one that began before it.
func orderOf(order uint64) func() uint64 {
	if order == 0 {
		next := uint64(1) << 62
		return func() uint64 { next--; return next }
	}
	return rand.New(rand.NewPCG(order, 1)).Uint64
}

// advance does one step.
func (w *World) advance(path string) {
	w.step++
	if w.step > maxSteps {
		w.fail("end", fmt.Sprintf("the schedule has not ended after %d steps", maxSteps))
		return
	}
	if len(w.plan.changes) > 0 && w.plan.changes[0].step <= w.step {
		c := w.plan.changes[0]
		w.plan.changes = w.plan.changes[1:]
		w.change(c.kind, path)
		w.look()
		return
	}
	g := w.process.next()
	switch {
	case g != nil:
		w.process.step(g)
		w.look()
		w.noteState(g)
	case w.process.done() && w.process.failed:
		w.reopens(path)
		w.look()
	case w.process.done():
		w.ended = true
		w.step--
	default:
		w.await()
		w.look()
	}
}

// look checks the promises, the test and the body's rules after a step.
func (w *World) look() {
	if w.failure != nil {
		return
	}
	w.monitor.look()
	w.lookAtTest()
	for _, r := range w.rules {
		w.guard("the rule "+r.name, func() {
			if err := r.holds(); err != nil {
				w.fail(r.name, err.Error())
			}
		})
	}
}

// lookAtTest fails the schedule if the body has failed the test by itself in this step.
func (w *World) lookAtTest() {
	if w.failure == nil && (!w.failed && w.explorer.t.Failed() || w.step == w.explorer.failsAt) {
		w.fail(ofTest, "the body has failed the test, and not by World.Errorf")
	}
}

// guard calls a function of the body's on Explore's own goroutine: a panic fails the schedule.
func (w *World) guard(what string, fn func()) {
	returned := false
	w.guarded = what
	defer func() {
		w.guarded = ""
		fault := recover()
		switch {
		case fault != nil:
			w.fail("panic", fmt.Sprintf("%s: %v\n%s", what, fault, debug.Stack()))
		case !returned: // Goexit ends this goroutine too, so no schedule can go on
			w.process.kill()
			w.explorer.t.Errorf("lockdtest: %s has ended Explore's own goroutine, as t.Fatal "+
				"does: call World.Errorf in its place\nAgain: %s", what, w.again())
		}
	}()
	fn()
	returned = true
}

// mustNotWait panics if a function of the body's that Explore itself calls is about to wait for
// another goroutine: none goes on while Explore calls that function.
func (w *World) mustNotWait(why hook.Reason) {
	if w.guarded != "" && (why == hook.Commit || why == hook.Others || why == hook.Locks) {
		panic("it writes to the database, or waits for a lock, and must not")
	}
}

// again is the command that runs the schedule again.
func (w *World) again() string { return again(w.explorer.t.Name(), w.seed) }

// next returns the goroutine that goes on, or nil if none can.
func (p *process) next() *goroutine {
	return p.first(func(*goroutine) bool { return true })
}

// first returns, of the goroutines that chosen accepts, the one that goes on first; nil if none
// can.
func (p *process) first(chosen func(*goroutine) bool) *goroutine {
	var next *goroutine
	for _, g := range p.goroutines {
		if chosen(g) && g.state == held && (next == nil || g.priority > next.priority) &&
			!p.world.now.Before(g.paused) && (p.dead || g.ready()) {
			next = g
		}
	}
	return next
}

// done reports whether all goroutines have ended, or are in a call that ends with the database.
func (p *process) done() bool {
	for _, g := range p.goroutines {
		switch {
		case g.state == ended, g == p.database && g.state == waiting:
		case g.state == waiting && (g.reason == hook.Ending || g.reason == hook.Change):
		default:
			return false
		}
	}
	return true
}

// step lets the goroutine go on until it is held again, waits or ends.
func (p *process) step(g *goroutine) {
	w := p.world
	w.blind = 0
	w.journal.begin(w, g.name, g.call)
	if g != p.database {
		w.idle, w.active = 0, w.now
	}
	if w.last != g {
		w.last, g.called = g, 0
	}
	g.called++
	g.state = running
	w.running.Store(g)
	w.explorer.turn.Store(&turn{g.name, g.call, w.seed})
	g.turn <- struct{}{}
	synctest.Wait()
	w.explorer.turn.Store(nil)
	w.running.Store(nil)
	if g.state == running && !p.dead {
		w.fail("goroutine", fmt.Sprintf("%s waits for something that is not lockd's: use "+
			"World.Await, or World.Sleep", g.name))
	}
	if g.called > maxRow { // it may poll for what another goroutine has to do
		g.called = 0
		w.setBack(g)
	}
}

// noteState notes in the line of a step that the goroutine now waits or has ended.
func (w *World) noteState(g *goroutine) {
	switch g.state {
	case waiting:
		w.journal.note("waits for " + string(g.reason) + describeKeys(g.keys))
	case ended:
		w.journal.note("ends")
	}
}

func describeKeys(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return " of " + strings.Join(keys, ", ")
}

// setBack lets the goroutine go on after all others.
func (w *World) setBack(g *goroutine) {
	w.lowest--
	g.priority = w.lowest
}

// change carries out a change of the plan.
func (w *World) change(k kind, path string) {
	g := w.process.next()
	switch k {
	case setBack:
		if g != nil {
			w.journal.begin(w, g.name, "goes on after all others")
			w.setBack(g)
			return
		}
	case passTime:
		w.await()
		return
	case pause:
		until := w.now.Add(w.monitor.longest())
		g = w.process.first(func(g *goroutine) bool { return !g.own })
		if g != nil && !until.After(w.end) {
			g.paused = until
			w.journal.begin(w, g.name, "stands still until "+w.at(g.paused))
			return
		}
	case loseRenewal:
		w.renewal = true
		w.journal.begin(w, "", "the next renewal is lost, and those within the TTL after it")
		return
	case failCommit:
		if w.commits++; w.commits == 1 {
			w.journal.begin(w, "", "the next commit fails")
		} else {
			w.journal.begin(w, "", fmt.Sprintf("the next %d commits fail", w.commits))
		}
		return
	case unclear:
		if w.restart != nil && path != "" {
			w.unclear = true
			w.journal.begin(w, "", "the next commit is in the file, and is reported as failed")
			return
		}
	case die, dieAfter, dieBack:
		if w.restart != nil && path != "" {
			w.dies(k, path)
			return
		}
	}
	w.journal.begin(w, "", "nothing changes")
}

// at returns the time since the clock began, as a text.
func (w *World) at(t time.Time) string { return t.Sub(time.Unix(0, 0)).String() }

// await lets time pass, until something is due.
func (w *World) await() {
	if w.idle++; w.idle > maxIdle && !w.process.sleeps() {
		w.fail("wait", fmt.Sprintf("nothing has gone on for %v of the clock, in %d steps; these "+
			"wait: %s", w.now.Sub(w.active), maxIdle, w.process.waiters()))
		return
	}
	next, known := w.process.controls.Next()
	known = known && next.After(w.now) // else a paused goroutine is to do what is due
	for _, g := range w.process.goroutines {
		for _, t := range []time.Time{g.wakes, g.paused} {
			if g.state == held && t.After(w.now) && (!known || t.Before(next)) {
				next, known = t, true
			}
		}
	}
	if !known || next.After(w.end) { // the body may still have timers of its own
		w.blind++
		next = w.now.Add(time.Second << min(w.blind, maxBlind))
		if (w.blind > maxBlind || next.After(w.end)) && w.process.next() == nil {
			w.fail("wait", "these wait for ever: "+w.process.waiters())
			return
		}
	}
	next = w.sleep(next)
	w.journal.begin(w, "", "the clock moves to "+w.at(next))
	w.now = next
	w.clock.Set(next)
	synctest.Wait()
}

// sleep lets timers of package time run until the instant, or until one of them wakes a goroutine
// of the body. It returns that instant.
func (w *World) sleep(until time.Time) time.Time {
	select {
	case <-w.woken:
	default:
	}
	w.running.Store(nil) // woken goroutines load it, and then see all that Explore wrote before
	// The bubble is ahead of the mock, which sleeps for a millisecond when it moves.
	at := func() time.Time { return w.epoch.Add(time.Since(w.began)) }
	timer := time.NewTimer(until.Sub(at()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.woken:
		until = at()
	}
	synctest.Wait()
	return until
}

// sleeps reports whether a goroutine will go on when the clock has moved far enough.
func (p *process) sleeps() bool {
	w := p.world
	return slices.ContainsFunc(p.goroutines, func(g *goroutine) bool {
		return g.state == held && (g.wakes.After(w.now) && !g.wakes.After(w.end) ||
			g.paused.After(w.now))
	})
}

// waiters names the goroutines that wait, and what each waits for.
func (p *process) waiters() string {
	var waiters []string
	for _, g := range p.goroutines {
		switch {
		case g == p.database:
		case g.state == held && g.wakes.After(p.world.now):
			waiters = append(waiters, g.name+" for the end of its sleep")
		case g.state == held:
			waiters = append(waiters, g.name+" for its condition")
		case g.state == waiting:
			waiters = append(waiters,
				fmt.Sprintf("%s for %s%s", g.name, g.reason, describeKeys(g.keys)))
		}
	}
	return strings.Join(waiters, "; ")
}

// dies lets the process die, and the next one begin.
func (w *World) dies(k kind, path string) {
	back := time.Duration(0)
	if k == dieBack {
		back = w.monitor.longestDelay()
		w.journal.begin(w, "", fmt.Sprintf("the process dies, the wall clock is set back by %v, "+
			"and the next one begins", back))
	} else {
		w.journal.begin(w, "", "the process dies, and the next one begins")
	}
	w.process.flies = k == dieAfter
	w.process.kill()
	w.monitor.endDelays()
	w.now = w.now.Add(-back)
	w.began = w.began.Add(back) // the bubble's clock, by which contexts end, does not go back
	w.clock.Set(w.now)
	w.begins(path)
}

// reopens closes a database that has failed, when its goroutines are done, and lets the next
// process begin.
func (w *World) reopens(path string) {
	w.journal.begin(w, "", "the database has failed: it is closed, and the next process begins")
	p := w.process
	if err := p.close(); !errors.Is(err, lockd.ErrFailed) {
		w.fail("G12", fmt.Sprintf("the database had failed, and Close returned: %v", err))
	}
	w.mustEndWaits()
	if w.failure == nil {
		w.begins(path)
	}
}

// begins lets the next process begin.
func (w *World) begins(path string) {
	restart := w.restart
	w.restart, w.renewal, w.commits, w.unclear = nil, false, 0, false
	w.monitor.forget()
	w.process = w.newProcess(path)
	w.process.start("next process", restart)
}

// kill closes the database, whose commits all fail from now on, and ends all goroutines.
func (p *process) kill() {
	w := p.world
	p.dead, w.journal.muted = true, true
	p.close()
	w.journal.muted = false
	for _, g := range p.goroutines {
		if g.state != ended && w.explorer.stuck == "" {
			w.explorer.stuck = g.name
		}
	}
}

// conclude checks the database when the body has ended, and closes it.
func (w *World) conclude() {
	p := w.process
	w.commits, w.unclear, w.renewal = 0, false, false
	if err := p.controls.Check(); err != nil {
		w.fail("state", err.Error())
		return
	}
	if err := p.close(); err != nil {
		w.fail("close", err.Error())
	}
	w.mustEndWaits()
}

// mustEndWaits fails if a goroutine waits although the database is closed.
func (w *World) mustEndWaits() {
	if waiters := w.process.waiters(); waiters != "" {
		w.fail("close", "the database is closed, and these wait: "+waiters)
	}
}

// close closes the database on a goroutine of its own, and lets all goroutines go on until none
// can.
func (p *process) close() (err error) {
	w := p.world
	for _, g := range p.goroutines {
		g.paused = time.Time{}
	}
	end := p.start("end", func() { err = p.db.Close() })
	end.own, end.priority = true, math.MaxInt64
	for g := p.next(); g != nil; g = p.next() {
		w.step++
		p.step(g)
		w.noteState(g)
	}
	return err
}
