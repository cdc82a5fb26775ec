package lockdtest

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// seed names the one schedule that Explore runs.
var seed = flag.String("lockdtest.seed", "",
	"run only the schedule of lockdtest.Explore that the seed names")

// Faults is a set of faults.
type Faults uint8

// The faults.
const (
	// FailedCommits are commits that fail: a call that waits for one gets lockd.ErrCommit. If the
	// body calls World.Restart, such a commit may be in the file: then the database has failed.
	FailedCommits Faults = 1 << iota
	// LostRenewals are renewals of a session, lost for its TTL: Session.Renew returns ErrDropped.
	LostRenewals
	// Pauses let a goroutine stand still for longer than the TTLs and lock-delays of all sessions.
	// The renewals of the sessions that it made are lost meanwhile.
	Pauses
)

// ExploreOptions configures Explore. A nil *ExploreOptions and the zero value mean the defaults.
type ExploreOptions struct {
	// Schedules is how many schedules are run. Zero means 1,000, which takes about a second for a
	// body of some ten calls. The same number runs the same schedules.
	Schedules int

	// Changes is how often a schedule departs from its plain order at most: by setting a goroutine
	// back behind all others, letting time pass, a fault, or the death of the process. Zero means
	// 3; NoChanges means none.
	Changes int

	// Without are faults that do not come about. The zero value excludes none. Without Pauses a
	// goroutine may still be late, where time passes although it could go on.
	Without Faults
}

// NoChanges as ExploreOptions.Changes means that schedules differ in their orders only.
const NoChanges = -1

const (
	defaultSchedules = 1000
	defaultChanges   = 3
	shrinkRuns       = 2000
)

// Explore runs the body many times, each time on a database of its own, with its goroutines in
// another order and with other faults, and fails the test at the first schedule that breaks one of
// the database's promises or a rule of the body's. It prints that schedule, shrunk to the shortest
// that was found, step by step, with a seed: go test -lockdtest.seed=... runs that schedule again.
//
// See the package comment for what a schedule is. Explore runs in a bubble of testing/synctest of
// its own, so it cannot be called in a bubble. It fails the test at once if the options or the seed
// are not valid. With a seed each call of Explore runs that schedule: -run chooses the test.
func Explore(t *testing.T, opts *ExploreOptions, body func(w *World)) {
	t.Helper()
	e := newExplorer(t, opts, body)
	if *seed == "" {
		if found := e.search(); found != nil {
			t.Fatal(found.text(t.Name()))
		}
		return
	}
	p, err := parsePlan(*seed)
	if err != nil {
		t.Fatalf("lockdtest: -lockdtest.seed: %v", err)
	}
	found := e.replay(p)
	if found.failure != nil {
		t.Fatal(found.text(t.Name()))
	}
	t.Logf("lockdtest: the schedule of seed %s passes:\n%s", p, found.timeline())
}

func newExplorer(t *testing.T, opts *ExploreOptions, body func(w *World)) *explorer {
	t.Helper()
	mustHave(body != nil)
	e := &explorer{t: t, body: body}
	if opts != nil {
		e.opts = *opts
	}
	if err := e.opts.complete(); err != nil {
		t.Fatalf("lockdtest: %v", err)
	}
	return e
}

// complete fills in the defaults.
func (o *ExploreOptions) complete() error {
	switch {
	case o.Schedules < 0:
		return fmt.Errorf("ExploreOptions.Schedules is %d, below 0", o.Schedules)
	case o.Changes < NoChanges:
		return fmt.Errorf("ExploreOptions.Changes is %d, below 0; NoChanges means none", o.Changes)
	case o.Without >= Pauses<<1:
		return fmt.Errorf("ExploreOptions.Without is %d, not a set of Faults", o.Without)
	}
	if o.Schedules == 0 {
		o.Schedules = defaultSchedules
	}
	switch o.Changes {
	case 0:
		o.Changes = defaultChanges
	case NoChanges:
		o.Changes = 0
	}
	return nil
}

// explorer is one call of Explore.
type explorer struct {
	t        *testing.T
	opts     ExploreOptions
	body     func(w *World)
	bubble   *testing.T
	files    int
	dir      string // for the files of processes that die
	restarts bool   // the body has said what a next process runs
	plain    int    // steps of schedule 0
	steps    int    // of the longest schedule so far
	runs     int    // that looked for a shorter schedule
	stuck    string // a goroutine that has not ended with its database
	failsAt  int    // the step in which the body failed the test, whose Failed stays true; 0: none
	turn     atomic.Pointer[turn]
}

// turn is the turn of a goroutine, from its point to the next.
type turn struct{ name, call, seed string }

// hangs is how much real time a goroutine may take for one turn.
const hangs = 30 * time.Second

// watch panics when a turn does not end. The bubble cannot see that: it takes a goroutine that
// waits for a mutex, or loops, for one that can go on.
func (e *explorer) watch() (stop func()) {
	tick, done := time.NewTicker(hangs), make(chan struct{})
	go func() {
		defer tick.Stop()
		var last *turn
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			t := e.turn.Load()
			if t != nil && t == last {
				panic(fmt.Sprintf("lockdtest: goroutine %q went on from %q, and has not come to a "+
					"point for %v: it loops, or waits for a mutex or the like; use World.Await. "+
					"The seed is %s", t.name, t.call, hangs, t.seed))
			}
			last = t
		}
	}()
	return func() { close(done) }
}

// outcome is what one run of a schedule has shown.
type outcome struct {
	plan    plan
	failure *failure // nil: none
	steps   int
	lines   []line // if they were asked for

	number int // of the schedule that failed first
	first  int // how many steps that schedule had; 0: a seed named the schedule
}

// ofTest is the rule that is broken when the body fails the test by itself.
const ofTest = "test"

// failure is what is wrong.
type failure struct {
	rule string // the promise or rule that is broken
	text string
}

func (f *failure) String() string {
	if f.rule == "" {
		return f.text
	}
	return fmt.Sprintf("%s: %s", f.rule, f.text)
}

// search runs the schedules, and returns the shortest outcome with a failure that it finds.
func (e *explorer) search() (found *outcome) {
	e.t.Helper()
	defer e.watch()()
	for number := 0; found == nil && number < e.opts.Schedules; {
		synctest.Test(e.t, func(t *testing.T) {
			e.bubble = t
			for ; found == nil && number < e.opts.Schedules && !spent(); number++ {
				found = e.try(number)
			}
			if found != nil {
				e.mustEnd(t, found)
			}
		})
	}
	return found
}

// try runs the schedule with that number, and returns the shortest outcome with its failure, or nil
// if it passes.
func (e *explorer) try(number int) (found *outcome) {
	o := e.run(e.plan(number), quiet)
	if o.failure != nil {
		found = e.shrink(o)
		found.number, found.first = number, o.steps
		return found
	}
	if number == 0 {
		e.plain = o.steps
	}
	e.steps = max(e.steps, o.steps)
	return nil
}

// plan returns the plan of the schedule with that number. Number 0 has no change. Then every other
// one has one change and the order of number 0, until each kind has been at each step: a bug that
// one change shows there is found for certain, with schedules enough. The others are drawn.
func (e *explorer) plan(number int) plan {
	if number == 0 {
		return plan{}
	}
	kinds := e.kinds()
	if single := number / 2; e.opts.Changes > 0 && number%2 == 1 {
		all := append([]kind{setBack}, kinds...)
		if step := 1 + single/len(all); step <= e.plain {
			return plan{changes: []change{{all[single%len(all)], step}}}
		}
	}
	return drawPlan(uint64(number), number/2%(e.opts.Changes+1), max(e.steps, 1), kinds)
}

// replay runs the schedule of the plan.
func (e *explorer) replay(p plan) (found *outcome) {
	e.t.Helper()
	e.restarts = true
	defer e.watch()()
	synctest.Test(e.t, func(t *testing.T) {
		e.bubble = t
		found = e.run(p, loud)
		e.mustEnd(t, found)
	})
	return found
}

// mustEnd fails the test at once if a goroutine has not ended: the bubble panics then, and the test
// has to show the schedule before that.
func (e *explorer) mustEnd(t *testing.T, found *outcome) {
	if e.stuck != "" {
		t.Fatalf("%s\nAnd goroutine %q has not ended with the database, so the bubble panics.",
			found.text(e.t.Name()), e.stuck)
	}
}

// kinds returns the kinds that a plan may have besides setBack.
func (e *explorer) kinds() []kind {
	kinds := []kind{passTime}
	for _, f := range []struct {
		fault Faults
		kind  kind
	}{{FailedCommits, failCommit}, {LostRenewals, loseRenewal}, {Pauses, pause}} {
		if e.opts.Without&f.fault == 0 {
			kinds = append(kinds, f.kind)
		}
	}
	if e.restarts {
		kinds = append(kinds, die, dieAfter, dieBack)
		if e.opts.Without&FailedCommits == 0 {
			kinds = append(kinds, unclear)
		}
	}
	return kinds
}

// shrink looks for a shorter schedule that breaks the same rule, and returns its outcome with the
// lines.
func (e *explorer) shrink(o *outcome) *outcome {
	if o.failure.rule == ofTest { // T.Failed stays true, so it cannot tell whether a run fails
		e.failsAt = o.steps
		return e.loudly(o)
	}
	best := o
	better := func(p plan) bool {
		if e.runs >= shrinkRuns || spent() {
			return false
		}
		e.runs++
		o := e.run(p, quiet)
		if o.failure == nil || o.failure.rule != best.failure.rule || !o.shorter(best) {
			return false
		}
		best = o
		return true
	}
	for again := true; again; {
		again = false
		for i := 0; i < len(best.plan.changes); i++ {
			if better(best.plan.without(i)) {
				again, i = true, i-1
			}
		}
		for order := range uint64(20) {
			if order != best.plan.order && better(best.plan.inOrder(order)) {
				again = true
			}
		}
		for i := 0; i < len(best.plan.changes); i++ {
			for step := 1; step <= best.steps && i < len(best.plan.changes); step++ {
				if better(best.plan.moved(i, step)) {
					again = true
				}
			}
		}
	}
	return e.loudly(best)
}

// loudly runs the outcome's schedule again, and keeps its lines. If this run does not break the
// same rule, the new outcome has the failure of the first run, and says what happened in this one.
func (e *explorer) loudly(o *outcome) *outcome {
	again := e.run(o.plan, loud)
	text := o.failure.text
	switch {
	case again.failure == nil && o.failure.rule == ofTest: // the body may fail the test only once
	case again.failure == nil:
		text += "\nThe same schedule passes when it is run again, as below: " + differs
	case again.failure.rule == o.failure.rule:
		return again
	default:
		text += fmt.Sprintf("\nThe same schedule fails otherwise when it is run again, as below: "+
			"%s. Then it fails with: %v", differs, again.failure)
	}
	again.failure, again.steps = &failure{o.failure.rule, text}, o.steps
	return again
}

// differs tells why a schedule has other steps when it is run again.
const differs = "the body does not do the same each time (see the package comment)"

// shorter reports whether o is easier to read than the other outcome: it has fewer steps, or else
// fewer changes, or else a smaller order.
func (o *outcome) shorter(than *outcome) bool {
	switch {
	case o.steps != than.steps:
		return o.steps < than.steps
	case len(o.plan.changes) != len(than.plan.changes):
		return len(o.plan.changes) < len(than.plan.changes)
	}
	return o.plan.order < than.plan.order
}

// text is what the test fails with.
func (o *outcome) text(test string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "lockdtest: %v\n", o.failure)
	if o.first > 0 {
		fmt.Fprintf(&text, "Found by schedule %d, of %d steps; the shortest one that does so has "+
			"%d", o.number, o.first, o.steps)
	} else {
		fmt.Fprintf(&text, "Done again, in %d steps", o.steps)
	}
	fmt.Fprintf(&text, ":\n\n%s", o.timeline())
	fmt.Fprintf(&text, "\nAgain: %s", again(test, o.plan.String()))
	return text.String()
}

// again is the command that runs the schedule of the seed again.
func again(test, seed string) string {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(test), "'", ".") // it stands in quotes
	pattern = strings.ReplaceAll(pattern, "/", "$/^")               // each part is matched alone
	return fmt.Sprintf("go test -run '^%s$' -lockdtest.seed=%s", pattern, seed)
}
