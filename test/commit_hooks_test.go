package lockd_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// commits counts the commits of a database in a file, and holds or fails them.
type commits struct {
	began   chan struct{} // a held commit has begun
	outcome chan error    // the outcome of a held commit
	over    chan struct{} // the test is over: no commit is held or fails any more

	mu     sync.Mutex // protects what follows
	n      int        // commits that have begun
	within bool       // a commit has begun, and is not over
	beside int        // how often something was written between two of them
	hold   bool
	before func() error // fails a commit of which nothing is written, or nil
	after  func() error // fails a commit that is in the file, or nil
}

// commits opens the file anew, so that the test controls its commits.
func (h *harness) commits() *commits {
	h.t.Helper()
	c := &commits{
		began: make(chan struct{}), outcome: make(chan error), over: make(chan struct{}),
	}
	h.hook(store.Hooks{
		BeforeCommit: c.beforeCommit, AfterCommit: c.afterCommit, Synced: c.synced,
	})
	h.t.Cleanup(func() { close(c.over) })
	return c
}

func (c *commits) beforeCommit() error {
	c.mu.Lock()
	c.n++
	c.within = true
	hold, before := c.hold, c.before
	c.mu.Unlock()
	if isClosed(c.over) {
		return nil
	}
	if hold {
		c.began <- struct{}{}
		select {
		case err := <-c.outcome:
			return err
		case <-c.over:
			return nil
		}
	}
	if before != nil {
		return before()
	}
	return nil
}

func (c *commits) afterCommit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.within = false
	if c.after != nil && !isClosed(c.over) {
		return c.after()
	}
	return nil
}

func (c *commits) synced() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.within && c.n > 0 { // before the first commit, Open syncs
		c.beside++
	}
	return nil
}

// wroteBeside is how often something was written between two commits.
func (c *commits) wroteBeside() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beside
}

// begun is how many commits have begun.
func (c *commits) begun() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// held starts the call, and returns when its commit is held.
func (c *commits) held(fn func() error) *call {
	c.mu.Lock()
	c.hold = true
	c.mu.Unlock()
	started := start(fn)
	<-c.began
	return started
}

// release ends the held commit with err. The next ones are not held.
func (c *commits) release(err error) {
	c.mu.Lock()
	c.hold = false
	c.mu.Unlock()
	c.outcome <- err
}

// fail fails the commits from now on, before anything is written; nil ends that.
func (c *commits) fail(err error) { c.failBy(func() error { return err }) }

// failBy asks fn for the outcome of each commit, before anything is written.
func (c *commits) failBy(fn func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = fn
}

// failAfter fails the commits from now on when they are in the file.
func (c *commits) failAfter(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = func() error { return err }
}

// call is a call on a goroutine of its own.
type call struct {
	done chan struct{}
	err  error
}

func start(fn func() error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = fn()
	}()
	return c
}

func (c *call) returned() bool { return isClosed(c.done) }

// wait returns what the call returned.
func (c *call) wait() error {
	<-c.done
	return c.err
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

var errDisk = errors.New("the disk is broken")

// mustFail fails the test unless err is ErrCommit with the cause.
func mustFail(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lockd.ErrCommit) || !errors.Is(err, errDisk) {
		t.Fatalf("%s: got %v, want ErrCommit with its cause", what, err)
	}
}

// observers see whatever can be seen of a database.
type observers struct {
	h       *harness
	index   uint64
	entries map[string]lockd.Entry
	changed map[string]<-chan struct{}

	mu     sync.Mutex // protects what follows
	events int
}

func (h *harness) observe() *observers {
	o := &observers{h: h, index: h.Snapshot().Index(), entries: make(map[string]lockd.Entry)}
	o.changed = map[string]<-chan struct{}{
		"keys":     h.changed(h.t.Context(), lockd.PrefixScope(""), o.index),
		"sessions": h.changed(h.t.Context(), lockd.SessionsScope(), o.index),
	}
	for key, e := range h.Snapshot().Prefix("") {
		o.entries[key] = e
	}
	for _, scope := range []lockd.Scope{lockd.PrefixScope(""), lockd.SessionsScope()} {
		go func() {
			for _, err := range h.Watch(h.t.Context(), scope, o.index) {
				if err == nil {
					o.mu.Lock()
					o.events++
					o.mu.Unlock()
				}
			}
		}()
	}
	h.settle()
	return o
}

// seen returns what the observers have seen since they began.
func (o *observers) seen(handles map[string]<-chan struct{}) []string {
	var seen []string
	o.mu.Lock()
	if o.events > 0 {
		seen = append(seen, "event")
	}
	o.mu.Unlock()
	if o.h.Snapshot().Index() != o.index {
		seen = append(seen, "index")
	}
	o.h.settle()
	for scope, changed := range o.changed {
		if isClosed(changed) {
			seen = append(seen, "changed "+scope)
		}
	}
	for name, done := range handles {
		if isClosed(done) {
			seen = append(seen, "done "+name)
		}
	}
	found := 0
	for key := range o.h.Snapshot().Prefix("") {
		found++
		e, ok := o.h.Get(key)
		if old := o.entries[key]; !ok || e.ModifyIndex != old.ModifyIndex {
			seen = append(seen, "get "+key)
		}
	}
	if found != len(o.entries) {
		seen = append(seen, "keys")
	}
	return seen
}

// sessions makes n sessions without TTL.
func (h *harness) sessions(n int) []*lockd.Session {
	h.t.Helper()
	sessions := make([]*lockd.Session, n)
	for i := range sessions {
		sessions[i] = h.session(nil)
	}
	return sessions
}

// line is the calls that wait for one lock, in the order in which they began to wait.
type line struct {
	h     *harness
	key   string
	calls []*call
	locks []*lockd.Lock
	ends  []context.CancelFunc // of each call's context
}

// line has the sessions wait for the lock, one after the other.
func (h *harness) line(key string, sessions ...*lockd.Session) *line {
	h.t.Helper()
	l := &line{h: h, key: key, locks: make([]*lockd.Lock, len(sessions))}
	waiters := h.Waiters(key)
	for i, s := range sessions {
		ctx, cancel := context.WithCancel(h.t.Context())
		l.ends = append(l.ends, cancel)
		l.calls = append(l.calls, start(func() (err error) {
			l.locks[i], err = s.Lock(ctx, key, nil)
			return err
		}))
		h.settle()
	}
	if got := h.Waiters(key) - waiters; got != len(sessions) {
		h.t.Fatalf("waiters: got %d more, want %d", got, len(sessions))
	}
	return l
}

// mustWait fails the test unless exactly these calls of the line still wait.
func (l *line) mustWait(who ...int) {
	l.h.t.Helper()
	l.h.settle()
	for i, call := range l.calls {
		if call.returned() == slices.Contains(who, i) {
			l.h.t.Fatalf("waiter %d: returned %t (%v), and %v should wait", i, call.returned(),
				call.err, who)
		}
	}
}

// stillWaits is mustWait for the whole line while a commit is held and another one waits for it. It
// does not settle, which would wait too.
func (l *line) stillWaits() {
	l.h.t.Helper()
	for i, call := range l.calls {
		if call.returned() {
			l.h.t.Fatalf("waiter %d returned %v", i, call.err)
		}
	}
}

// serve fails the test unless the first of these has the lock and the others wait; then the first
// releases it, and so on.
func (l *line) serve(who ...int) {
	l.h.t.Helper()
	for n, i := range who {
		l.mustWait(who[n+1:]...)
		l.h.must(l.calls[i].err)
		if holder := l.h.entry(l.key).Session; holder != l.locks[i].Sequencer().Session {
			l.h.t.Fatalf("waiter %d was told, but the holder is %v", i, holder)
		}
		l.h.must(l.locks[i].Unlock())
	}
}
