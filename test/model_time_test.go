package lockd_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/internal/engine"
)

// model is the whole of a database: its state, and what stays when a commit fails.
type model struct {
	modelState
	now       time.Time
	index     uint64 // of the newest transaction, made durable or not
	published uint64 // of the newest durable one
	floor     uint64 // events up to it are not kept
	history   []lockd.Event
	granted   map[uint64]time.Time // when, by the index

	open     modelBatch
	flying   *modelBatch   // whose commit is held, or nil
	failures int           // how many of the next commits fail
	unserved bool          // a failed commit may have left a free lock with a queue
	roused   bool          // and the database looks after it at once
	retry    time.Time     // when what is due is tried again, with backoff
	backoff  time.Duration // 0: the last commit succeeded

	// Which of two things that are due at one instant is ended first is not promised, but what
	// follows depends on it. So ended has the names of those that the database has ended, in order.
	ended *[]string

	// dropped says at which index the database dropped the batch that fails. Another index than the
	// model's leaves it astray, and so does an end that the database has not seen.
	dropped func() uint64
	astray  error

	counts map[string]int // how often what happened
}

// modelBatch is what has been decided since the last commit, and what was before.
type modelBatch struct {
	before  modelState
	events  []lockd.Event
	effects []func()
	wrote   bool
	due     bool     // it has something that was due
	index   uint64   // of its last transaction
	over    []string // delays that it saw over; they stay so if it fails
}

const ownNode = "local"

func newModel(now time.Time) *model {
	return &model{
		modelState: modelState{
			keys: map[string]lockd.Entry{}, handles: map[string]*modelLock{},
			shares: map[string][]modelShare{}, removes: map[string]bool{},
			joined: map[string]uint64{},
			delays: map[string]modelDelay{}, lost: map[string]bool{},
		},
		granted: map[uint64]time.Time{},
		now:     now, index: 2, published: 2, floor: 1,
		// The process's own node is the first change.
		history: []lockd.Event{nodeEvent(2, catalog.NodePut, ownNode, "")},
	}
}

// write is a call that writes: what is due comes first, then fn, and then the commit of both. It
// returns fn's error, or ErrCommit.
func (m *model) write(fn func(tx *modelTx) error) error {
	m.begin()
	err := m.decide(fn)
	if failed := m.commit(m.open); failed != nil {
		return failed
	}
	return err
}

// begin begins a batch.
func (m *model) begin() {
	m.open = modelBatch{before: m.undo()}
}

// undo is the state that a commit that fails puts back. A commit fails only when told to.
func (m *model) undo() modelState {
	if m.failures == 0 && m.flying == nil {
		return modelState{}
	}
	return m.clone()
}

// settleOpen settles what was decided and has no rows: it depends only on the commit that is held,
// if there is one.
func (m *model) settleOpen() {
	if m.flying != nil {
		m.flying.effects = append(m.flying.effects, m.open.effects...)
	} else {
		for _, effect := range m.open.effects {
			effect()
		}
	}
	m.open.effects = nil
	m.open.before = m.undo()
}

// decide does what is due, and then fn.
func (m *model) decide(fn func(tx *modelTx) error) error {
	m.endDue()
	return m.transact(fn)
}

// rouse is what the database does by itself after a commit failed, unless that commit was such a
// try itself: then there is a backoff.
func (m *model) rouse() {
	if !m.roused {
		return
	}
	m.roused = false
	if m.now.Before(m.retry) && m.backoff > 0 {
		return
	}
	m.tryDue()
}

// tryDue does what is due, and nothing else.
func (m *model) tryDue() {
	m.begin()
	m.endDue()
	_ = m.commit(m.open)
}

// commit tells what the batch did, or takes it back.
func (m *model) commit(b modelBatch) error {
	if b.wrote && m.failures > 0 {
		m.failures--
		m.countUndone(b.before)
		m.modelState = b.before
		for _, key := range b.over {
			delete(m.delays, key)
			delete(m.lost, key)
		}
		m.unserved = true
		if at := m.dropped(); at != m.index {
			m.astray = fmt.Errorf("index of what was dropped: got %d, want %d", at, m.index)
		}
		if m.roused = !b.due; b.due {
			m.backoff = min(max(time.Second, 2*m.backoff), time.Minute)
			m.retry = m.now.Add(m.backoff)
		}
		return lockd.ErrCommit
	}
	if b.wrote {
		m.published = b.index
		m.backoff = 0
	}
	for _, effect := range b.effects {
		effect()
	}
	m.history = append(m.history, b.events...)
	return nil
}

// due is one thing whose time has come.
type due struct {
	at      time.Time
	session *modelSession
	check   *modelCheck
	lock    *modelLock
	key     string
}

func (m *model) compare(a, b due) int {
	kind := func(d due) int {
		if d.key == "" {
			return 0 // at one instant ends come before grants
		}
		return 1
	}
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(kind(a), kind(b)),
		cmp.Compare(m.place(a), m.place(b)))
}

// place is where the end of what is due comes among those that were seen.
func (m *model) place(d due) int {
	if at := slices.Index(*m.ended, d.name()); at >= 0 {
		return at
	}
	return len(*m.ended)
}

// name is the database's name of it.
func (d due) name() string {
	switch {
	case d.session != nil:
		return d.session.info.ID.String()
	case d.check != nil:
		return engine.CatalogKey(d.check.Node, d.check.ID)
	case d.lock != nil:
		return fmt.Sprintf("%d%v%s", d.lock.grant.Fence, d.lock.grant.Session, d.lock.grant.Key)
	}
	return d.key
}

// takeEnded takes what is due from those that were seen.
func (m *model) takeEnded(d due) {
	at := m.place(d)
	if at == len(*m.ended) {
		m.astray = fmt.Errorf("the database has not ended %q, which is due", d.name())
		return
	}
	*m.ended = slices.Delete(*m.ended, at, at+1)
}

// pending returns what has a deadline: checks first, for a session may end at the index of a lapse.
func (m *model) pending() []due {
	all := make([]due, 0, len(m.live)+len(m.delays)+len(m.catalog.checks))
	for i := range m.catalog.checks {
		if check := &m.catalog.checks[i]; !check.deadline.IsZero() {
			all = append(all, due{at: check.deadline, check: check})
		}
	}
	for _, s := range m.live {
		if s.info.TTL > 0 && !s.kept {
			all = append(all, due{at: s.deadline, session: s})
		}
	}
	for _, l := range m.held() {
		if !l.until.IsZero() {
			all = append(all, due{at: l.until, lock: l})
		}
	}
	for _, key := range sortedKeys(m.delays) {
		all = append(all, due{at: m.delays[key].until, key: key})
	}
	return all
}

// endDue does all that is due, each thing in a transaction of its own.
func (m *model) endDue() {
	index := m.index
	for {
		all := slices.DeleteFunc(m.pending(), func(d due) bool { return m.now.Before(d.at) })
		if len(all) == 0 {
			break
		}
		first := slices.MinFunc(all, m.compare)
		m.takeEnded(first)
		_ = m.transact(func(tx *modelTx) error {
			switch {
			case first.session != nil:
				tx.end(first.session, lockd.ErrExpired)
				return nil
			case first.check != nil:
				if len(all) > 1 {
					tx.count("lapsed beside others")
				}
				tx.lapse(first.check)
				return nil
			case first.lock != nil:
				tx.outstay(first.lock)
				return nil
			}
			delete(m.delays, first.key)
			delete(m.lost, first.key)
			m.open.over = append(m.open.over, first.key)
			tx.freed = append(tx.freed, first.key)
			tx.serveContenders(semaphoreOf(first.key))
			return nil
		})
	}
	if m.unserved {
		m.unserved = false
		_ = m.transact(func(tx *modelTx) error {
			for _, l := range m.givenUp() {
				tx.unlockHandle(l)
			}
			for _, w := range m.queue {
				tx.freed = append(tx.freed, w.keys...)
			}
			for _, w := range slices.Backward(slices.Clone(m.queue)) {
				if w.deadlock != nil {
					tx.dismiss(w, w.deadlock)
				}
			}
			return nil
		})
	}
	m.open.due = m.open.due || m.index > index
}

// next is the next instant at which something happens by itself, and whether there is one.
func (m *model) next() (time.Time, bool) {
	var next time.Time
	found := false
	for _, d := range m.pending() {
		if at := m.notBefore(d.at); !found || at.Before(next) {
			next, found = at, true
		}
	}
	if at := m.notBefore(m.now); m.unserved && (!found || at.Before(next)) {
		next, found = at, true
	}
	return next, found
}

// notBefore is when something that is due at an instant is done: S29.
func (m *model) notBefore(at time.Time) time.Time {
	if m.backoff > 0 && at.Before(m.retry) {
		return m.retry
	}
	return at
}

// advance moves the clock, and does what happens by itself on the way.
func (m *model) advance(to time.Time) {
	for {
		at, ok := m.next()
		if !ok || at.After(to) {
			break
		}
		if at.After(m.now) {
			m.now = at
		}
		m.tryDue()
	}
	m.now = to
}

// close is DB.Close. It reports whether it was durable.
func (m *model) close() error {
	m.begin()
	_ = m.transact(func(tx *modelTx) error {
		for _, w := range slices.Clone(m.queue) {
			tx.dismiss(w, lockd.ErrClosed)
		}
		return nil
	})
	for _, s := range slices.Clone(m.live) {
		if s.info.Lifetime == lockd.BoundToProcess || s.kept {
			_ = m.transact(func(tx *modelTx) error {
				tx.end(s, lockd.ErrClosed)
				return nil
			})
		}
	}
	err := m.commit(m.open)
	m.endAll()
	return err
}

// held returns the handles that have a lock, in the order of the keys.
func (m *model) held() (list []*modelLock) {
	for _, key := range sortedKeys(m.keys) {
		if l := m.handles[key]; l != nil {
			list = append(list, l)
		}
		for _, share := range m.shares[key] {
			for _, h := range share.handles {
				list = append(list, h.lock)
			}
		}
	}
	return list
}

// givenUp returns the locks whose calls have returned without them.
func (m *model) givenUp() []*modelLock {
	return slices.DeleteFunc(m.held(), func(l *modelLock) bool { return !l.givenUp })
}

// errKept is ErrClosed as the cause of the end of a handle on what the file keeps.
var errKept = fmt.Errorf("kept in the file: %w", lockd.ErrClosed)

// endAll ends every handle and wait that is left, without a write.
func (m *model) endAll() {
	for _, s := range m.live {
		s.cause = lockd.ErrClosed
		if s.info.Lifetime == lockd.Independent {
			s.cause = errKept
		}
	}
	for _, l := range m.held() {
		l.cause = m.session(l.grant.Session).cause
	}
	for _, w := range m.queue {
		w.told, w.err = true, lockd.ErrClosed
	}
	m.queue = nil
}

// reopen is Open on what the file has.
func (m *model) reopen() {
	clear(m.granted)
	m.index, m.floor = m.published, m.published // indexes of failed commits are not in the file
	m.history = nil
	m.failures, m.unserved, m.roused, m.backoff, m.retry = 0, false, false, 0, time.Time{}
	clear(m.handles)
	clear(m.removes)
	for key, shares := range m.shares {
		m.shares[key] = nil
		for _, share := range shares {
			m.counts["share kept by Open"]++
			m.shares[key] = append(m.shares[key], modelShare{grant: share.grant})
		}
	}
	m.queue = nil
	maps.DeleteFunc(m.delays, func(_ string, d modelDelay) bool { return !m.now.Before(d.until) })
	m.findLost()
	for i, s := range m.live { // their handles are others
		again := *s
		again.cause, again.kept = nil, false
		again.renew(m.now)
		m.live[i] = &again
	}
	for i := range m.catalog.checks {
		if check := &m.catalog.checks[i]; !check.deadline.IsZero() {
			check.begin(m.now)
			m.counts["begun by Open"]++
		}
	}
	m.begin()
	for _, s := range slices.Clone(m.live) {
		if s.info.Lifetime == lockd.BoundToProcess {
			_ = m.transact(func(tx *modelTx) error {
				tx.end(s, lockd.ErrProcessGone)
				return nil
			})
		}
	}
	_ = m.commit(m.open)
}

// events are the net changes of the transaction.
func (tx *modelTx) events() []lockd.Event {
	var events []lockd.Event
	add := func(e lockd.Event) {
		e.Index = tx.index
		events = append(events, e)
	}
	for key, new := range tx.m.keys {
		if old := tx.before.keys[key]; !sameEntry(old, new) {
			add(tx.keyEvent(old, new))
		}
	}
	for key, old := range tx.before.keys {
		if _, there := tx.m.keys[key]; !there {
			add(tx.keyEvent(old, lockd.Entry{}))
		}
	}
	if tx.began != nil {
		add(lockd.Event{Kind: lockd.SessionCreated, Session: tx.began.info})
	}
	for s, cause := range tx.ends {
		add(lockd.Event{Kind: lockd.SessionEnded, Session: s.info, Cause: cause})
	}
	events = append(events, tx.shareEvents()...)
	events = append(events, tx.catalogEvents()...)
	slices.SortFunc(events, compareEvents)
	return events
}

func (tx *modelTx) keyEvent(old, new lockd.Entry) lockd.Event {
	e := lockd.Event{Kind: lockd.KeyPut, Key: new.Key, Entry: new, Previous: old}
	if new.Key == "" {
		e.Kind, e.Key = lockd.KeyDeleted, old.Key
	}
	causes := tx.causes[old.Key]
	switch held, holds := !old.Session.IsZero(), !new.Session.IsZero(); {
	case holds && !held:
		tx.grants(&e, new.Sequencer())
		return e
	case !held || (holds && old.Fence == new.Fence):
		return e
	case holds:
		tx.grants(&e, new.Sequencer())
	}
	e.Ended.ID = old.Session
	if e.Cause = causes; e.Kind != lockd.KeyDeleted {
		e.Cause = causes[:1]
	}
	return e
}

// grants has the event tell a grant of the transaction.
func (tx *modelTx) grants(e *lockd.Event, grant lockd.Sequencer) {
	e.Granted.ID, e.Waited = grant.Session, tx.waited[grant]
	if e.Waited > 0 {
		tx.count("wait told")
	}
}
