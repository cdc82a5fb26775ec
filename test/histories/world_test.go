package histories_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

// world is the database of one history through its reopens, and a record of all operations on it.
type world struct {
	dir   string // empty: in memory
	seed  uint64
	keys  []string
	begin time.Time
	last  atomic.Int64 // the newest stamp

	current atomic.Pointer[era]
	asked   atomic.Int64 // operations

	mu       sync.Mutex // protects what follows
	records  []*record
	sessions []*session
	handles  map[string][]handle // the grants that callers were told of, by key
	looks    []look
	eras     []*era
	found    []string // violations that were seen while the history ran
	counts   map[string]int
}

// era is the database from one Open to the next.
type era struct {
	w         *world
	number    int
	db        *lockd.DB
	transport http.RoundTripper
	server    *httptest.Server
	host      string // which requests of its own clients name
	path      string

	openCalled, opened int64
	floor              uint64 // the index when it was opened
	before             map[string]lockd.Entry
	alive              map[string]bool // the sessions that lived when it was opened
	armed              atomic.Bool     // faults may come
	wish               atomic.Int32    // the fault that is to come
	lost               atomic.Bool     // later answers may not be in the file
	dead               atomic.Bool     // the process is as if killed
	copied             string          // the file that it left
	shut, closed       int64           // stamps of the call of Close and of its return
	unclean            bool            // sessions of the process have not ended
	over               chan struct{}   // closed when the next era has begun, or there is none
	stop               context.CancelFunc
	watched            sync.WaitGroup
	events             []seen // of keys
	ends               []seen // of sessions
	replays            [][]seen
	replayedFrom       []uint64
}

// seen is an event and the time at which it had come.
type seen struct {
	lockd.Event
	at int64
}

// The faults.
const (
	noFault int32 = iota
	crash         // the process is killed when a commit is in the file and no caller is told
	failing       // a commit is reported as failed that is in the file
)

var (
	errDisk = errors.New("the disk is full")
	errDead = errors.New("the process was killed")
)

func newWorld(dir string, seed uint64) *world {
	return &world{
		dir: dir, seed: seed, keys: []string{"a", "b", "c", "d"}, begin: time.Now(),
		handles: map[string][]handle{}, counts: map[string]int{},
	}
}

// stamp returns the time in nanoseconds. Each call returns a larger stamp than all before it.
func (w *world) stamp() int64 {
	for {
		last := w.last.Load()
		next := max(last+1, int64(time.Since(w.begin)))
		if w.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// violation keeps what the calling goroutine has found to be wrong.
func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// open begins an era on the file.
func (w *world) open(path string) error {
	e := &era{
		w: w, number: len(w.eras), path: path, over: make(chan struct{}),
		before: map[string]lockd.Entry{}, alive: map[string]bool{},
		host: fmt.Sprintf("era%d.history%d.invalid", len(w.eras), w.seed),
	}
	chance := rand.New(rand.NewPCG(w.seed, uint64(1000+e.number)))
	var turn sync.Mutex // of chance
	file := store.Hooks{
		BeforeCommit: func() error {
			turn.Lock()
			defer turn.Unlock()
			switch {
			case e.dead.Load():
				return errDead
			case e.armed.Load() && chance.IntN(60) == 0:
				w.count("commits failed")
				return errDisk
			}
			return nil
		},
		AfterCommit: func() error {
			if e.wish.CompareAndSwap(failing, noFault) {
				e.lost.Store(true)
				e.dead.Store(true)
				return errDisk
			}
			return nil
		},
		Synced: func() error { return e.synced() },
	}
	opts := &lockd.Options{
		Clock: &hook.Clock{Clock: clock.New(), Hooks: hook.Hooks{File: file}},
		Sync:  lockd.SyncNever, Logger: slog.New(slog.DiscardHandler), History: 100_000,
	}
	e.openCalled = w.stamp()
	var err error
	if path == "" {
		e.db, err = lockd.New(opts)
	} else {
		e.db, err = lockd.Open(path, opts)
	}
	if err != nil {
		return fmt.Errorf("open era %d: %w", e.number, err)
	}
	e.see()
	http := &consulapi.Options{Logger: opts.Logger}
	if e.transport, err = consulapi.Transport(e.db, http); err != nil {
		return err
	}
	handler, err := consulapi.Handler(e.db, http)
	if err != nil {
		return err
	}
	e.server = httptest.NewServer(e.own(handler))
	e.armed.Store(true)
	w.mu.Lock()
	w.eras = append(w.eras, e)
	w.mu.Unlock()
	w.current.Store(e)
	return nil
}

// own refuses what clients of other eras ask: the server may have the port that theirs had before
// it was closed.
func (e *era) own(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Host != e.host {
			http.Error(out, "the server of "+e.host, http.StatusMisdirectedRequest)
			return
		}
		handler.ServeHTTP(out, r)
	})
}

// see notes the state, and watches from there on.
func (e *era) see() {
	now := e.db.Snapshot()
	e.floor = now.Index()
	for key, entry := range now.Prefix("") {
		e.before[key] = entry
	}
	for s := range now.Sessions() {
		e.alive[s.ID.String()] = true
	}
	e.opened = e.w.stamp()
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	for scope, list := range map[lockd.Scope]*[]seen{
		lockd.PrefixScope(""): &e.events, lockd.SessionsScope(): &e.ends,
	} {
		e.watched.Go(func() { *list = e.watch(ctx, scope, e.floor) })
	}
}

// watch returns all events when the database ends.
func (e *era) watch(ctx context.Context, scope lockd.Scope, from uint64) (list []seen) {
	for event, err := range e.db.Watch(ctx, scope, from) {
		switch {
		case err == nil:
			list = append(list, seen{event, e.w.stamp()})
		case !errors.Is(err, lockd.ErrClosed) && !errors.Is(err, lockd.ErrFailed):
			e.w.violation("era %d: watch from %d ended: %v", e.number, from, err)
		}
	}
	return list
}

// replay watches from an index that has passed.
func (e *era) replay(from uint64) {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	at := len(e.replays)
	e.replays, e.replayedFrom = append(e.replays, nil), append(e.replayedFrom, from)
	e.watched.Go(func() {
		list := e.watch(context.Background(), lockd.PrefixScope(""), from)
		w.mu.Lock()
		defer w.mu.Unlock()
		e.replays[at] = list
	})
}

// synced is called when no other goroutine writes to the file.
func (e *era) synced() error {
	if e.dead.Load() {
		return errDead
	}
	if !e.wish.CompareAndSwap(crash, noFault) {
		return nil
	}
	e.lost.Store(true) // before the copy, which has all that was answered by now
	e.copied = filepath.Join(e.w.dir, fmt.Sprintf("%d.db", e.number+1))
	if err := copyFile(e.copied, e.path); err != nil {
		e.w.violation("copy: %v", err)
	}
	e.dead.Store(true)
	return errDead
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// reopen ends the era, by a fault or without one, and begins the next.
func (w *world) reopen(fault int32) error {
	e := w.current.Load()
	if fault != noFault {
		e.wish.Store(fault)
		for i := 0; !e.dead.Load(); i++ { // the next commit runs into it
			_, _ = e.db.Put("other", fmt.Append(nil, i), nil)
		}
	}
	e.finish()
	path := e.path
	if fault == crash {
		path = e.copied
	}
	err := w.open(path)
	close(e.over)
	return err
}

// finish closes the database and all that depends on it.
func (e *era) finish() {
	e.armed.Store(false)
	e.shut = e.w.stamp()
	err := e.db.Close()
	// A commit that fails also undoes what was decided meanwhile, such as the ends of sessions.
	e.unclean = e.lost.Load() || errors.Is(err, lockd.ErrCommit)
	if err != nil && !e.unclean {
		e.w.violation("era %d: close: %v", e.number, err)
	}
	e.closed = e.w.stamp()
	e.w.count("closed")
	e.server.CloseClientConnections()
	e.server.Close()
	e.watched.Wait() // all of them end with ErrClosed
	e.stop()
}

// look is the queue of one key, as it was at some instant between two stamps.
type look struct {
	era         *era
	key         string
	from, until int64
	queue       []string // sessions
}

// observe looks at the queues until the history is over.
func (w *world) observe(ctx context.Context) {
	for ctx.Err() == nil {
		e := w.current.Load()
		from := w.stamp()
		var looks []look
		for info := range e.db.Locks() {
			if len(info.Queue) == 0 {
				continue
			}
			l := look{era: e, key: info.Key, from: from}
			for _, waiter := range info.Queue {
				l.queue = append(l.queue, waiter.Session.ID.String())
			}
			looks = append(looks, l)
		}
		until := w.stamp()
		w.mu.Lock()
		for _, l := range looks {
			l.until = until
			w.looks = append(w.looks, l)
		}
		w.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
	}
}

// record is one operation on one key.
type record struct {
	input
	output
	call, back int64 // stamps; back is 0 while the operation may still be done
	client     int
	era        *era
	own        bool // the caller has a handle of the grant
	several    bool // it is a call for several keys
}

func (w *world) add(r *record) *record {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
	return r
}

// handle is a grant that its holder was told of.
type handle struct {
	era   *era
	grant lockd.Sequencer
	done  <-chan struct{}
}

// told is called when a call has been told of a grant. All earlier holders must have been told of
// their loss by then (G10), except those that share the lock.
func (w *world) told(e *era, grant lockd.Sequencer, own <-chan struct{}) {
	key, fence := grant.Key, grant.Fence
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []handle
	for _, h := range w.handles[key] {
		select {
		case <-h.done:
			w.counts["ends of holds told first"]++
			continue
		default:
		}
		left = append(left, h)
		both := h.grant.Mode == lockd.Shared && grant.Mode == lockd.Shared
		if h.era == e && h.grant.Fence < fence && !both {
			w.found = append(w.found, fmt.Sprintf(
				"G10: fence %d of %q is told of, and the holder with fence %d knows of no loss",
				fence, key, h.grant.Fence))
		}
		if h.era == e && h.grant.Fence == fence && own != nil &&
			(!both || h.grant.Session == grant.Session) {
			w.found = append(w.found, fmt.Sprintf("fence %d of %q has two handles", fence, key))
		}
	}
	if own != nil {
		left = append(left, handle{e, grant, own})
	}
	w.handles[key] = left
}

// downgrading is called before a lock is downgraded: the sharers may be told of their grants first.
func (w *world) downgrading(key string, own <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, h := range w.handles[key] {
		if h.done == own {
			w.handles[key][i].grant.Mode = lockd.Shared
		}
	}
}

// session is a session that was made in this history.
type session struct {
	id             string
	ttl, delay     time.Duration
	deletes, bound bool
	made           int64 // the call that made it
	era            int   // the era in which it was made

	renewals []int64 // calls that succeeded
	closings []closing
}

// closing is a call that ends a session.
type closing struct {
	call, back int64 // back is 0 if its outcome is not known
	owner      bool
}
