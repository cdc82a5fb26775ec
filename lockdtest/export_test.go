package lockdtest

import (
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

// BePatientFor sets how long the test waits for what its own goroutines have to do.
func (db *DB) BePatientFor(d time.Duration) { db.patience = d }

// FeignBug lets the check of the database's state return err.
func (db *DB) FeignBug(err error) { db.controls.Check = func() error { return err } }

// Found is the schedule that Explore would fail the test with. The zero value means none.
type Found struct {
	Seed    string
	Text    string
	Number  int // of the schedule that failed first
	Steps   int // of the shortest one
	First   int // of the first one
	Changes int
}

// Search is Explore, except that it returns the schedule instead of failing the test with it.
func Search(t *testing.T, opts *ExploreOptions, body func(w *World)) Found {
	t.Helper()
	e := newExplorer(t, opts, body)
	return found(t, e.search())
}

// Replay is Explore with a seed. It returns the timeline if the schedule passes.
func Replay(t *testing.T, seed string, body func(w *World)) Found {
	t.Helper()
	e := newExplorer(t, nil, body)
	p, err := parsePlan(seed)
	if err != nil {
		t.Fatal(err)
	}
	return found(t, e.replay(p))
}

func found(t *testing.T, o *outcome) Found {
	if o == nil {
		return Found{}
	}
	f := Found{
		Seed: o.plan.String(), Text: o.timeline(), Number: o.number, Steps: o.steps, First: o.first,
		Changes: len(o.plan.changes),
	}
	if o.failure != nil {
		f.Text = o.text(t.Name())
	}
	return f
}

// Returned is a lock that a call returns.
type Returned struct {
	Key         string
	Shared      bool
	Unpublished bool
	Lost        error
	Gone        bool // the database no longer has the grant after that, and Lost does not tell it
}

// Return has the goroutine's call return a lock of the session that the database has not granted.
func (w *World) Return(id lockd.SessionID, r Returned) {
	defer func() { r.Unpublished = r.Unpublished || r.Gone }()
	w.process.handed(hook.Held{
		Key: r.Key, Session: id, Fence: w.monitor.fence + 1,
		Err:    func() error { return r.Lost },
		Shared: func() bool { return r.Shared },
		Holds:  func() bool { return !r.Unpublished },
	})
}

// FeignBug lets the check of the database's state return err.
func (w *World) FeignBug(err error) { w.process.controls.Check = func() error { return err } }

// CheckOptions returns why Explore refuses the options.
func CheckOptions(opts ExploreOptions) error { return opts.complete() }

// CheckSeed returns why Explore refuses the seed.
func CheckSeed(seed string) (again string, err error) {
	p, err := parsePlan(seed)
	return p.String(), err
}

// Judge returns the promise that a world finds broken by the events, "" if none is.
func Judge(events ...lockd.Event) string { return JudgeProcesses(events, 0, 0, nil) }

// JudgeProcesses is Judge of the events of two processes. The first dies at the one instant of Unix
// time, and the clock is at the other when the next begins.
func JudgeProcesses(first []lockd.Event, dies, begins time.Duration, next []lockd.Event) string {
	w := World{now: time.Unix(0, 0).Add(dies)}
	w.monitor = newMonitor(&w)
	for _, e := range first {
		w.monitor.lock(e)
	}
	w.monitor.endDelays()
	w.now = time.Unix(0, 0).Add(begins)
	w.monitor.forget()
	for _, e := range next {
		w.monitor.lock(e)
	}
	if w.failure == nil {
		return ""
	}
	return w.failure.rule
}
