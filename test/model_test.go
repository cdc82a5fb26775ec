package lockd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"pgregory.net/rapid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

var (
	modelOps     = flag.Int("model.ops", 200_000, "operations of the model test in memory")
	modelFileOps = flag.Int("model.fileops", 20_000, "operations of the model test on a file")
)

// Ensure that a database in memory does what the model does.
func TestModel_Memory(t *testing.T) { testModel(t, *modelOps, "") }

// Ensure that a database on a synced file does what the model does, also when commits fail, and
// when it is closed, or left by a crash, and opened again.
func TestModel_File(t *testing.T) { testModel(t, *modelFileOps, t.TempDir()) }

// testModel does at least so many random operations to databases and models, and a tenth of them
// with -short or under the race detector, which has little to find in calls that come one by one.
// All chance comes from rapid's seed, so that a failure can be repeated, and is made small.
func testModel(t *testing.T, want int, dir string) {
	full := full()
	if !full {
		want /= 10
	}
	seed := uint64(time.Now().UnixNano())
	if given := flag.Lookup("rapid.seed").Value.String(); given != "0" {
		seed, _ = strconv.ParseUint(given, 10, 64)
	}
	setFlag(t, "rapid.checks", "20")
	setFlag(t, "rapid.steps", "150") // on average
	var done atomic.Int64
	counts := map[string]int{}
	goesOn := func() bool { // what happens rarely is waited for, within bounds
		n := done.Load()
		return n < int64(want) ||
			full && n < 5*int64(want) && len(neverCounted(counts, dir != "")) > 0
	}
	for round := uint64(0); goesOn(); round++ {
		before := done.Load()
		setFlag(t, "rapid.seed", strconv.FormatUint(seed+round<<32, 10))
		rapid.Check(t, func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) { newTwin(t, dir, counts).run(&done) })
		})
		if done.Load() == before {
			t.Fatal("no operations in a whole round")
		}
	}
	t.Logf("seed %d: %d operations, of which: %v", seed, done.Load(), counts)
	if done.Load() < int64(want) {
		t.Errorf("%d operations, want %d", done.Load(), want)
	}
	if full {
		for _, what := range neverCounted(counts, dir != "") {
			t.Errorf("it never happened: %s", what)
		}
	}
}

// setFlag sets a flag until the test is over.
func setFlag(t *testing.T, name, value string) {
	old := flag.Lookup(name).Value.String()
	t.Cleanup(func() {
		if err := flag.Set(name, old); err != nil {
			t.Error(err)
		}
	})
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
}

// twin is a database and its model, and everything that was got from both.
type twin struct {
	t      *rapid.T
	db     *lockd.DB
	m      *model
	clock  *clock.Mock
	inside *hook.Clock // on the clock
	late   *lateClock  // on the clock
	disk   *powerDisk  // nil: no power is cut
	path   string      // empty: in memory
	files  int
	names  map[lockd.SessionID]string
	named  int // how many sessions were given a name

	failures atomic.Int64 // how many of the next commits fail
	spared   bool         // but not the very next one
	drops    []uint64     // the last indexes of those that failed, until the model took them
	during   func()       // called in the next commit

	mu       sync.Mutex // protects what follows
	observed []lockd.Event
	ends     []error // of watches

	referee  referee
	seen     int // how much of observed was compared
	stop     context.CancelFunc
	sessions []twinSession // the oldest first, those that ended long ago left out
	locks    []twinLock
	calls    []*twinCall
	standing []*modelWaiter // those that waited before the present operation
	keeper   twinKeeper
}

type twinSession struct {
	real  *lockd.Session
	model *modelSession
}

type twinLock struct {
	real  twinHandle
	model *modelLock
}

// twinHandle is a lock or a slot.
type twinHandle interface {
	Sequencer() lockd.Sequencer
	Done() <-chan struct{}
	Err() error
}

// twinCall is a Lock, LockAll or Acquire that waits.
type twinCall struct {
	model  *modelWaiter
	cancel context.CancelFunc // nil: its context never ends
	done   chan struct{}
	locks  []twinHandle // valid once done is closed
	err    error
}

// returned reports whether the call has returned. It does not block.
func (c *twinCall) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func newTwin(t *rapid.T, dir string, counts map[string]int) *twin {
	w := newTwinOn(t, dir, counts)
	w.open()
	return w
}

// newTwinOn is newTwin, but the database is yet to be opened.
func newTwinOn(t *rapid.T, dir string, counts map[string]int) *twin {
	w := &twin{t: t, clock: clock.NewMock(), names: map[lockd.SessionID]string{}}
	w.late = &lateClock{Mock: w.clock}
	w.m = newModel(w.clock.Now())
	w.m.dropped, w.m.counts = w.dropped, counts
	if dir != "" {
		sub, err := os.MkdirTemp(dir, "")
		w.must(err)
		w.path = filepath.Join(sub, "0.db")
		t.Cleanup(func() { w.must(os.RemoveAll(sub)) })
	}
	t.Cleanup(func() {
		w.stop()
		w.failures.Store(0)
		synctest.Wait() // rapid may leave a step halfway, with a commit that is still to fail
		if err := w.db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, call := range w.calls {
			<-call.done
		}
	})
	return w
}

func (w *twin) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// open opens the database, and watches all of it from the index that was opened.
func (w *twin) open() {
	hooks := store.Hooks{BeforeCommit: func() error {
		if during := w.during; during != nil {
			w.during = nil
			during()
		}
		if w.failures.Load() == 0 {
			return nil
		}
		if w.spared {
			w.spared = false
			return nil
		}
		w.failures.Add(-1)
		w.drops = append(w.drops, w.inside.Controls.NewestIndex())
		if w.disk != nil && w.disk.failSync(w.drops[len(w.drops)-1]) {
			w.m.counts["sync failed"]++
			return nil
		}
		return errors.New("disk is full")
	}}
	opts := &lockd.Options{}
	if w.disk != nil {
		hooks.Changed, hooks.Synced = w.disk.changed, w.disk.sync
		hooks.AfterCommit = w.disk.committed
		w.disk.logged = false // the next commit may be one of bbolt's
		opts.Sync = lockd.SyncNever
	}
	w.inside = probe(w.late, hooks)
	ended := new([]string)
	w.m.ended = ended
	w.inside.Hooks.Ends = func(due string) { *ended = append(*ended, due) }
	opts.Clock = w.inside
	var err error
	if w.path == "" {
		w.db, err = lockd.New(opts)
	} else {
		w.db, err = lockd.Open(w.path, opts)
	}
	w.must(err)
	w.observed, w.ends, w.seen = nil, nil, 0
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	for _, scope := range []lockd.Scope{
		lockd.PrefixScope(""), lockd.SessionsScope(), lockd.CatalogScope(),
	} {
		go w.watch(ctx, scope)
	}
	synctest.Wait()
}

func (w *twin) watch(ctx context.Context, scope lockd.Scope) {
	for e, err := range w.db.Watch(ctx, scope, w.m.floor) {
		w.mu.Lock()
		if err != nil {
			w.ends = append(w.ends, err)
		} else {
			w.observed = append(w.observed, e)
		}
		w.mu.Unlock()
	}
}

// dropped is the last index of the oldest dropped batch that the model has not asked for.
func (w *twin) dropped() uint64 {
	index := w.drops[0]
	w.drops = w.drops[1:]
	return index
}

// run does operations until rapid has enough.
func (w *twin) run(done *atomic.Int64) {
	w.fail(w.compare())
	w.t.Repeat(map[string]func(*rapid.T){
		"step": func(t *rapid.T) {
			o := w.draw(t)
			t.Logf("at %v: %v", w.clock.Now().Sub(time.Unix(0, 0)), o)
			w.standing = w.waiting(len(w.calls))
			err := w.do(o)
			synctest.Wait()
			w.m.rouse()
			if err == nil {
				err = w.compare()
			}
			w.fail(err)
			done.Add(1)
		},
	})
	w.fail(w.askConsul())
}

// fail is the one place where a difference ends the test, so that rapid recognizes it. IDs of
// sessions are random, and so are told by their names.
func (w *twin) fail(err error) {
	if err == nil {
		return
	}
	text := err.Error()
	for id, name := range w.names {
		text = strings.ReplaceAll(text, id.String(), name)
	}
	w.t.Fatal(text)
}

// compare finds what is different.
func (w *twin) compare() error {
	return errors.Join(w.compareState(), w.compareSeen(), w.compareEvents(), w.compareSessions(),
		w.compareLocks(), w.compareCalls(), w.compareFailures(), w.compareKeeper())
}

func (w *twin) compareState() error {
	s := w.db.Snapshot()
	if s.Index() != w.m.published {
		return fmt.Errorf("index: got %d, want %d", s.Index(), w.m.published)
	}
	n := 0
	for key, got := range s.Prefix("") {
		n++
		if want := w.m.keys[key]; !sameEntry(got, want) {
			return fmt.Errorf("entry: got  %+v\nwant %+v", got, want)
		}
		if got, ok := w.db.Get(key); !ok || !sameEntry(got, w.m.keys[key]) {
			return fmt.Errorf("get: got  %+v\nwant %+v", got, w.m.keys[key])
		}
	}
	if n != len(w.m.keys) {
		return fmt.Errorf("keys: got %d, want %d", n, len(w.m.keys))
	}
	n = 0
	for got := range s.Sessions() {
		n++
		if want := w.m.session(got.ID); want == nil || !sameInfo(got, want.info) {
			return fmt.Errorf("session: got %+v", got)
		}
	}
	if n != len(w.m.live) {
		return fmt.Errorf("sessions: got %d, want %d", n, len(w.m.live))
	}
	if err := errors.Join(w.compareDeadlines(), w.compareCatalog(s)); err != nil {
		return err
	}
	for _, key := range modelKeys {
		if got := slices.Collect(s.Holders(key)); !sameHolders(got, w.m.holders(key)) {
			return fmt.Errorf("holders of %q: got  %+v\nwant %+v", key, got, w.m.holders(key))
		}
		if got, want := w.inside.Controls.Waiters(key), w.m.waiters(key); got != want {
			return fmt.Errorf("waiters of %q: got %d, want %d", key, got, want)
		}
	}
	return nil
}

func (w *twin) compareEvents() error {
	if len(w.ends) > 0 {
		return fmt.Errorf("watch ended: %w", errors.Join(w.ends...))
	}
	got := w.observed[w.seen:]
	want := w.m.history[min(w.seen, len(w.m.history)):]
	slices.SortFunc(got, compareEvents)
	for i := range min(len(got), len(want)) {
		if !sameEvent(got[i], want[i]) {
			return fmt.Errorf("event: got  %+v\nwant %+v", got[i], want[i])
		}
	}
	if err := w.referee.see(got); err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("events: got  %+v\nwant %+v", got, want)
	}
	w.seen = len(w.observed)
	return nil
}

func (w *twin) compareSessions() error {
	for _, s := range w.sessions {
		if err := sameEnd(s.real, s.model.cause, lockd.ErrNoSession); err != nil {
			return fmt.Errorf("session %s: %w", s.model.info.Name, err)
		}
	}
	return nil
}

func (w *twin) compareLocks() error {
	for _, l := range w.locks {
		if got := l.real.Sequencer(); got != l.model.grant {
			return fmt.Errorf("sequencer: got %+v, want %+v", got, l.model.grant)
		}
		if err := sameEnd(l.real, l.model.cause, lockd.ErrNotHeld); err != nil {
			return fmt.Errorf("lock %q, fence %d: %w", l.model.grant.Key, l.model.grant.Fence, err)
		}
	}
	return nil
}

// sameEnd compares what Done and Err tell.
func sameEnd(
	got interface {
		Done() <-chan struct{}
		Err() error
	}, cause, sentinel error,
) error {
	closed := false
	select {
	case <-got.Done():
		closed = true
	default:
	}
	err := got.Err()
	if closed != (cause != nil) || (err != nil) != closed {
		return fmt.Errorf("done %v, err %v, want %v", closed, err, cause)
	}
	isKept := cause == errKept
	if isKept {
		cause = lockd.ErrClosed
	}
	if closed && !(errors.Is(err, cause) && errors.Is(err, sentinel) != isKept) {
		return fmt.Errorf("err: got %v, want %v", err, cause)
	}
	return nil
}

// compareCalls compares the calls that wait, and keeps what they got.
func (w *twin) compareCalls() error {
	for n, call := range w.calls {
		returned := call.returned()
		if returned != call.model.told {
			return fmt.Errorf("wait of %s for %q: returned %v (%v), want %v",
				call.model.session.info.Name, call.model.keys, returned, call.err, call.model.told)
		}
		if !returned {
			continue
		}
		if err := sameError(call.err, call.model.err); err != nil {
			return fmt.Errorf("wait for %q: %w", call.model.keys, err)
		}
		if call.err != nil {
			continue
		}
		if len(call.locks) != len(call.model.locks) {
			return fmt.Errorf("wait for %q: got %d locks", call.model.keys, len(call.locks))
		}
		for i, l := range call.locks {
			err := errors.Join(w.take(l, call.model.locks[i]),
				overtakes(call.model.locks[i], w.waiting(n)))
			if err != nil {
				return err
			}
		}
	}
	w.calls = slices.DeleteFunc(w.calls, func(call *twinCall) bool { return call.model.told })
	return nil
}

// waiting returns the first n of the calls, as the model has them.
func (w *twin) waiting(n int) (list []*modelWaiter) {
	for _, call := range w.calls[:n] {
		list = append(list, call.model)
	}
	return list
}

// take keeps a lock that was granted.
func (w *twin) take(got twinHandle, want *modelLock) error {
	if got.Sequencer() != want.grant {
		return fmt.Errorf("lock: got %+v, want %+v", got.Sequencer(), want.grant)
	}
	w.locks = append(w.locks, twinLock{got, want})
	if lost := slices.IndexFunc(w.locks, func(l twinLock) bool {
		return l.model.cause != nil
	}); lost >= 0 && len(w.locks) > 12 {
		w.locks = slices.Delete(w.locks, lost, lost+1)
	}
	return sameEnd(got, want.cause, lockd.ErrNotHeld)
}

// probe asks for every lock on behalf of no session: the delay is looked at before the session
// (K35). It is not done at every step, because each try to write may put right what another left
// wrong, such as a timer that was not set.
func (w *twin) probe() error {
	var got, want []error
	var holders, held [][]lockd.Holder
	toShare := &lockd.LockOptions{Mode: lockd.Shared}
	stay := errors.New("nothing is to change")
	err := w.db.Update(func(tx *lockd.Txn) error {
		for _, key := range modelKeys {
			_, err := tx.Lock(key, lockd.SessionID{}, nil)
			_, other := tx.Lock(key, lockd.SessionID{}, toShare)
			got = append(got, err, other)
			holders = append(holders, slices.Collect(tx.Holders(key)))
		}
		return stay
	})
	synctest.Wait()
	failed := w.m.write(func(tx *modelTx) error {
		for _, key := range modelKeys {
			_, err := tx.lock(key, lockd.SessionID{}, nil)
			_, other := tx.lock(key, lockd.SessionID{}, toShare)
			want = append(want, err, other)
			held = append(held, tx.m.holders(key))
		}
		return stay
	})
	if err := sameError(err, failed); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	for i, key := range modelKeys {
		if !sameHolders(holders[i], held[i]) {
			return fmt.Errorf("holders of %q: got %+v, want %+v", key, holders[i], held[i])
		}
	}
	for i := range got {
		if err := sameError(got[i], want[i]); err != nil {
			return fmt.Errorf("probe of %q: %w", modelKeys[i/2], err)
		}
	}
	return nil
}

func (w *twin) compareFailures() error {
	if got := w.failures.Load(); got != int64(w.m.failures) {
		return fmt.Errorf("commits that are still to fail: got %d, want %d", got, w.m.failures)
	}
	return w.m.astray
}
