package lockd_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

var (
	engineOps = flag.Int("model.engineops", 300_000, "operations of the model test of the rules, "+
		"in memory and again on a file")
	engineRun = flag.Uint64("model.enginerun", 0, "the one run of that test to do, by its seed")
)

// Ensure that the rules alone do what the model does, without a writer or a goroutine: in memory,
// and on a file, where writes wait for commits, of which some fail, and the file is left as by a
// crash and opened again. It does in seconds what takes a database minutes.
func TestModel_Engine(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.db") // to copy it takes no sync
	rows := store.New()
	if err := errors.Join(rows.Open(empty, store.Options{}), rows.Close()); err != nil {
		t.Fatal(err)
	}
	for name, empty := range map[string]string{"memory": "", "file": empty} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testEngine(t, empty)
		})
	}
}

// full reports whether all operations are done, and not a tenth.
func full() bool { return !testing.Short() && !raced }

// testEngine does the operations on four keys and a semaphore, most of them while four sessions
// live, or more. They are on copies of the empty file; without one they are in memory.
func testEngine(t *testing.T, empty string) {
	counts := map[string]int{}
	if seed := *engineRun; seed != 0 {
		if script, err := newCore(seed, empty, counts).play(nil); err != nil {
			t.Fatalf("%v\n%v", err, script)
		}
		return
	}
	want, first := *engineOps, rand.Uint64()>>16|1
	if !full() {
		want /= 10
	}
	began, done, runs := time.Now(), 0, uint64(0)
	for ; done < want; runs++ {
		seed := first + runs
		script, err := newCore(seed, empty, counts).play(nil)
		done += len(script)
		if err != nil {
			script, err = shortest(script, seed, empty, err)
			t.Fatalf("-model.enginerun=%d: %v\nafter\n%v", seed, err, script)
		}
	}
	took := time.Since(began)
	t.Logf("seeds %d to %d: %d operations, %.0f in a second, of which: %v", first, first+runs-1,
		done, float64(done)/took.Seconds(), counts)
	if full() {
		always := coreCounts
		if empty == "" {
			always = always[:len(always)-3]
		}
		for _, what := range always {
			if counts[what] == 0 {
				t.Errorf("it never happened: %s", what)
			}
		}
		if n, want := counts["beside four sessions"], want*2/3; n < want {
			t.Errorf("%d operations beside four sessions or more, want %d", n, want)
		}
	}
}

// coreCounts is what has to happen; the last three only on a file.
var coreCounts = []string{
	"lock shared by several", "share taken over", "grant with several handles", "downgrade",
	"key gone with its last sharer", "key deleted with the last session that shared it",
	"delay after the loss of exclusive", "delay after the loss of shared",
	"held too long, exclusive", "held too long, shared", "wait told", "due and not granted",
	"deadlock", "share undone", "end of a share undone", "share kept by Open",
}

// coreScript is what was done in one run.
type coreScript []op

func (s coreScript) String() string {
	var text strings.Builder
	for _, o := range s {
		fmt.Fprintln(&text, o)
	}
	return text.String()
}

// shortest leaves out of a script what a failure does not need.
func shortest(failed coreScript, seed uint64, empty string, err error) (coreScript, error) {
	for n := len(failed) / 2; n > 0; n /= 2 {
		for at := 0; at+n <= len(failed); {
			ops := slices.Delete(slices.Clone(failed), at, at+n)
			script, again := newCore(seed, empty, map[string]int{}).play(ops)
			if again == nil {
				at += n
			} else {
				failed, err = script, again
			}
		}
	}
	return failed, err
}

// coreRun is how many operations a run has.
const coreRun = 150

// core is an engine and its model, and everything that was got from both.
type core struct {
	random *rand.Rand
	path   string // of the file, if there is one
	rows   *store.Store
	engine *engine.Engine
	m      *model
	now    time.Time
	named  uint64

	failures int      // how many of the next commits fail
	drops    []uint64 // as a twin's drops
	events   []lockd.Event
	seen     int
	referee  referee

	sessions []coreSession
	locks    []coreLock
	calls    []*coreCall
}

type coreSession struct {
	real  *coreOwner
	model *modelSession
	over  bool // and its end was compared
}

type coreLock struct {
	real  *coreHold
	model *modelLock
	over  bool // and its end was compared
}

// coreOwner is the handle of a session.
type coreOwner struct {
	state *engine.Session
	cause error
}

// coreHold is the handle of a lock.
type coreHold struct {
	hold     engine.Hold
	now      *engine.Hold // what took its place by a downgrade
	pending  bool         // a downgrade is decided, and was not published when this was set
	cause    error
	released bool
}

// current is the hold of the handle, as it was published.
func (h *coreHold) current() *engine.Hold { return cmp.Or(h.now, &h.hold) }

// coreCall is a call that waits.
type coreCall struct {
	engine.Waiter
	holds []*coreHold
	model *modelWaiter
	told  bool
	err   error
}

func newCore(seed uint64, empty string, counts map[string]int) *core {
	c := &core{random: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(0, 0).UTC()}
	if empty != "" {
		c.path = filepath.Join(filepath.Dir(empty), "lockd.db")
		if err := copyFile(c.path, empty); err != nil {
			panic("the model of the rules: " + err.Error())
		}
	}
	c.m = newModel(c.now)
	c.m.counts, c.m.dropped = counts, c.dropped
	c.m.ended = new([]string)
	if err := c.open(); err != nil {
		panic("the model of the rules: " + err.Error())
	}
	return c
}

// open begins with what the file has, if there is one.
func (c *core) open() error {
	c.rows = store.New()
	if c.path != "" {
		if err := c.rows.Open(c.path, store.Options{NoSync: true}); err != nil {
			return err
		}
	}
	c.engine = engine.New(c.rows, engine.Config{
		Node: ownNode, Ends: func(due string) { *c.m.ended = append(*c.m.ended, due) },
	})
	if err := c.engine.CheckReferences(); err != nil {
		return err
	}
	c.engine.Load(c.now)
	return c.write(func(tx *engine.Txn) error {
		tx.Initialize()
		return nil
	})
}

// reopen leaves the file as a crash does, and opens it again. The old handles are of no use then;
// the sessions of the process end, and the others have new ones.
func (c *core) reopen() error {
	if err := errors.Join(c.engine.Check(), c.rows.Close()); err != nil {
		return err
	}
	c.sessions, c.locks, c.calls, c.events, c.seen, c.failures = nil, nil, nil, nil, 0, 0
	c.m.reopen()
	if err := c.open(); err != nil {
		return err
	}
	for _, s := range c.engine.Sessions((*engine.Session).BoundToProcess) {
		_ = c.apply(func(tx *engine.Txn) error {
			tx.EndSession(s, lockd.ErrProcessGone)
			return nil
		})
	}
	if err := c.commit(); err != nil {
		return err
	}
	for _, s := range c.m.live {
		state := c.engine.Known(schema.ID(s.info.ID))
		if state == nil {
			return fmt.Errorf("session %s is not kept", s.info.Name)
		}
		c.sessions = append(c.sessions, coreSession{real: &coreOwner{state: state}, model: s})
	}
	return c.compareState()
}

// close gives the file up, if there is one.
func (c *core) close() error {
	err := c.rows.Close()
	if c.path != "" {
		err = errors.Join(err, os.Remove(c.path))
	}
	return err
}

func (c *core) dropped() uint64 {
	index := c.drops[0]
	c.drops = c.drops[1:]
	return index
}

// apply does fn as one transaction of the open batch.
func (c *core) apply(fn func(tx *engine.Txn) error) error {
	tx := c.engine.Begin(c.now)
	if err := fn(tx); err != nil {
		tx.Undo()
		return err
	}
	c.tell(tx.Seal())
	tx.Done()
	return nil
}

// write does what is due, and fn, and commits both, as a writer does.
func (c *core) write(fn func(tx *engine.Txn) error) error {
	c.endDue()
	err := c.apply(fn)
	if failed := c.commit(); failed != nil {
		return failed
	}
	return err
}

func (c *core) endDue() {
	const all = 1 << 30
	for {
		due, _, ok := c.engine.PopDue(c.now, all)
		if !ok {
			break
		}
		_ = c.apply(func(tx *engine.Txn) error {
			tx.EndDue(due)
			return nil
		})
	}
	if c.engine.PopUnserved() {
		_ = c.apply(func(tx *engine.Txn) error {
			tx.ServeAll()
			return nil
		})
		for _, call := range c.calls {
			c.refused(call, call.Err)
		}
	}
}

func (c *core) commit() error {
	if !c.engine.Pending() {
		return nil
	}
	b := c.engine.Take()
	if c.failures > 0 {
		c.failures--
		c.drops = append(c.drops, c.rows.Index())
		c.engine.Drop(b)
		return lockd.ErrCommit
	}
	if err := c.engine.Write(b); err != nil {
		return err
	}
	c.tell(c.engine.Publish(b))
	c.engine.Reuse(b)
	return nil
}

// tryDue does what is due by itself.
func (c *core) tryDue() {
	c.endDue()
	_ = c.commit()
}

// tell takes in what was published.
func (c *core) tell(o engine.Outcome) {
	for i := range o.Effects {
		switch f := &o.Effects[i]; f.Kind {
		case engine.LockReleased:
			h := f.Hold.Owner.(*coreHold)
			h.cause, h.released = lockd.ErrUnlocked, true
		case engine.LockLost:
			f.Hold.Owner.(*coreHold).cause = f.Cause
		case engine.LockDowngraded:
			h := f.Hold.Owner.(*coreHold)
			h.now, h.pending = f.Next, false
		case engine.SessionEnded:
			for _, s := range c.sessions {
				if s.real.state == f.Session {
					s.real.cause = f.Cause
				}
			}
		case engine.WaiterServed, engine.WaiterLeft:
			call := f.Waiter.Owner.(*coreCall)
			call.told, call.err = true, f.Waiter.Err
		}
	}
	for i := range o.Events {
		c.events = append(c.events, coreEvent(&o.Events[i]))
	}
}

// play does the operations, or random ones, until both sides differ, or the rules find a bug of
// their own. Afterwards c is of no use.
func (c *core) play(ops coreScript) (script coreScript, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("panic: %v\n%s", bug, debug.Stack())
		}
		if errors.Is(err, errClosedLater) {
			c.m.counts["circle closed later"]++
			err = nil
		}
		err = errors.Join(err, c.close())
	}()
	for n := range coreRun {
		var o op
		if ops == nil {
			o = c.draw()
		} else if n == len(ops) {
			break
		} else {
			o = ops[n]
		}
		script = append(script, o)
		if len(c.m.live) >= 4 {
			c.m.counts["beside four sessions"]++
		}
		if err := c.do(o); err != nil {
			return script, err
		}
		c.rouse()
		if err := c.compare(n%32 == 0); err != nil {
			return script, err
		}
	}
	return script, c.compare(true)
}

// rouse is what a writer does by itself after a commit failed.
func (c *core) rouse() {
	if c.m.roused && !(c.m.backoff > 0 && c.m.now.Before(c.m.retry)) {
		c.tryDue()
	}
	c.m.rouse()
}

// errClosedLater ends a run in which calls that waited before are in a circle now. Only with a call
// that waits for a slot, or to share a lock, may such a circle come about (R14).
var errClosedLater = errors.New("calls that waited before are in a circle")

// closesLater reports whether the call may be the one that was in no circle when it began to wait.
func closesLater(step engine.DeadlockStep) bool {
	return step.Waiter.Slot || step.Waiter.Options.Mode == engine.Shared
}

// compareQueues finds a waiter that was forgotten: to look at all queues once more serves none.
func (c *core) compareQueues() error {
	if c.m.unserved || c.engine.Undecided() != nil {
		return nil
	}
	if at, ok := c.engine.Next(); ok && !at.After(c.now) {
		return nil
	}
	tx := c.engine.Begin(c.now)
	tx.ServeAll()
	served := len(tx.Seal().Effects) > 0 || c.engine.Pending() // on a file effects wait for rows
	tx.Done()
	for _, call := range c.calls {
		found, _ := errors.AsType[*engine.Deadlock](call.Err)
		if found != nil && slices.ContainsFunc(found.Steps, closesLater) {
			return errClosedLater
		}
	}
	if served {
		return errors.New("a waiter could be served, and was not")
	}
	return nil
}

// compare finds what is different: what was told, or all of it.
func (c *core) compare(all bool) error {
	if got := c.rows.Published(); got != c.m.published {
		return fmt.Errorf("index: got %d, want %d", got, c.m.published)
	}
	if err := errors.Join(c.compareEvents(), c.compareHandles(), c.m.astray); err != nil || !all {
		return err
	}
	return errors.Join(c.compareState(), c.engine.Check(), c.compareQueues())
}

func (c *core) compareEvents() error {
	got, want := c.events[c.seen:], c.m.history[min(c.seen, len(c.m.history)):]
	slices.SortFunc(got, compareEvents)
	if len(got) != len(want) {
		return fmt.Errorf("events: got  %+v\nwant %+v", got, want)
	}
	for i := range got {
		if !sameEvent(got[i], want[i]) {
			return fmt.Errorf("event: got  %+v\nwant %+v", got[i], want[i])
		}
	}
	c.seen = len(c.events)
	return c.referee.see(got)
}

func (c *core) compareHandles() error {
	for i := range c.sessions {
		s := &c.sessions[i]
		if s.over {
			continue
		}
		if s.over = s.model.cause != nil; !sameCause(s.real.cause, s.model.cause) {
			return fmt.Errorf("session %s: got %w, want %w", s.model.info.Name, s.real.cause,
				s.model.cause)
		}
	}
	for i := range c.locks {
		l := &c.locks[i]
		if l.over {
			continue
		}
		l.over = l.model.cause != nil
		if got := l.real.grant(); got != l.model.grant || !sameCause(l.real.cause, l.model.cause) {
			return fmt.Errorf("lock: got %v, %w, want %v, %w", got, l.real.cause, l.model.grant,
				l.model.cause)
		}
	}
	waits := 0
	for n, call := range c.calls {
		if call.told != call.model.told || sameRefusal(call.err, call.model.err) != nil {
			return fmt.Errorf("wait for %q: got %t, %w, want %t, %w", call.model.keys, call.told,
				call.err, call.model.told, call.model.err)
		}
		if !call.told {
			waits++
			continue
		}
		if call.err != nil {
			continue
		}
		if err := c.takeAll(call, c.calls[:n]); err != nil {
			return err
		}
	}
	if waits < len(c.calls) {
		c.calls = slices.DeleteFunc(c.calls, func(call *coreCall) bool { return call.told })
	}
	return nil
}

func sameCause(got, want error) bool {
	return got == nil && want == nil || got != nil && want != nil && sameError(got, want) == nil
}

// takeAll keeps what a call was granted. The calls that began earlier may not have been overtaken.
func (c *core) takeAll(call *coreCall, earlier []*coreCall) error {
	if len(call.holds) != len(call.model.locks) {
		return fmt.Errorf("wait for %q: got %d locks", call.model.keys, len(call.holds))
	}
	for i, h := range call.holds {
		if err := c.take(h, call.model.locks[i], earlier); err != nil {
			return err
		}
	}
	return nil
}

func (c *core) take(h *coreHold, want *modelLock, earlier []*coreCall) error {
	if got := h.grant(); got != want.grant {
		return fmt.Errorf("lock: got %v, want %v", got, want.grant)
	}
	c.locks = append(c.locks, coreLock{real: h, model: want})
	if lost := slices.IndexFunc(c.locks, func(l coreLock) bool {
		return l.model.cause != nil
	}); lost >= 0 && len(c.locks) > 12 {
		c.locks = slices.Delete(c.locks, lost, lost+1)
	}
	if want.grant.Mode == lockd.Exclusive {
		return nil
	}
	var before []*modelWaiter
	for _, call := range earlier {
		before = append(before, call.model)
	}
	return overtakes(want, before)
}

func (c *core) compareState() error {
	s := c.rows.Snapshot()
	n := 0
	for key, row := range s.Keys.Prefix("") {
		n++
		if got, want := coreEntry(row), c.m.keys[key]; !sameEntry(got, want) {
			return fmt.Errorf("entry: got  %+v\nwant %+v", got, want)
		}
	}
	if n != len(c.m.keys) {
		return fmt.Errorf("keys: got %d, want %d", n, len(c.m.keys))
	}
	for _, key := range modelKeys {
		got, want := coreHolders(engine.HoldersIn(s, key)), c.m.holders(key)
		if !sameHolders(got, want) {
			return fmt.Errorf("holders of %q: got  %+v\nwant %+v", key, got, want)
		}
		if got, want := c.engine.WaitersFor(key), c.m.waiters(key); got != want {
			return fmt.Errorf("waiters of %q: got %d, want %d", key, got, want)
		}
	}
	n = 0
	for _, row := range s.Sessions.Prefix("") {
		n++
		want := c.m.session(lockd.SessionID(row.ID))
		if want == nil || !sameInfo(coreInfo(row), want.info) {
			return fmt.Errorf("session: got %+v", row)
		}
	}
	if n != len(c.m.live) {
		return fmt.Errorf("sessions: got %d, want %d", n, len(c.m.live))
	}
	return nil
}

// grant is what proves the lock.
func (h *coreHold) grant() lockd.Sequencer { return coreSequencer(h.current().Sequencer()) }

func newCoreHold(opts *lockd.LockOptions) *coreHold {
	h := new(coreHold)
	h.hold.Owner = h
	if opts != nil {
		h.hold.SetMaxHold(opts.MaxHold)
	}
	return h
}

// newID makes the next ID of a session. They come in no order.
func (c *core) newID() (id schema.ID) {
	c.named++
	binary.BigEndian.PutUint64(id[:], c.named*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(id[8:], c.named)
	return id
}
