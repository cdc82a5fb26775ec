package lockdtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

// monitor checks the promises that a schedule could break, by what the database publishes and
// returns.
type monitor struct {
	world    *World
	news     bool   // something was published
	index    uint64 // up to which the database was looked at
	fence    uint64 // the largest of all
	keys     map[string]*seen
	sessions map[lockd.SessionID]lockd.SessionInfo
	alive    map[lockd.SessionID]bool
}

// seen is what was seen of a key's lock.
type seen struct {
	holder  lockd.SessionID // zero: none, or unknown since the process died
	fence   uint64
	index   uint64 // of its last transition
	granted int    // the step in which the last grant was seen
	delayed time.Time
	by      lockd.SessionID // whose delay it is
}

func newMonitor(w *World) monitor {
	return monitor{
		world: w, keys: make(map[string]*seen), index: 1,
		sessions: make(map[lockd.SessionID]lockd.SessionInfo),
		alive:    make(map[lockd.SessionID]bool),
	}
}

// forget forgets who holds what: the next process finds it as the file has it.
func (m *monitor) forget() {
	for _, k := range m.keys {
		k.holder = lockd.SessionID{}
	}
	m.news = true
}

// name names a session as the body does.
func (m *monitor) name(id lockd.SessionID) string {
	if name := m.sessions[id].Name; name != "" {
		return name
	}
	return fmt.Sprintf("session %d", id[15])
}

// life is how long the session lives after a renewal.
func (m *monitor) life(id lockd.SessionID) time.Duration {
	return m.sessions[id].TTL + m.sessions[id].Grace
}

// longest is how long a goroutine stands still so that its lock can have passed on: longer than the
// TTL and the lock-delay of every session that lives.
func (m *monitor) longest() time.Duration {
	var life, delay time.Duration
	for id := range m.alive {
		life, delay = max(life, m.life(id)), max(delay, m.sessions[id].LockDelay)
	}
	return life + delay + time.Millisecond
}

// look checks what was published since the last time.
func (m *monitor) look() {
	db := m.world.process.db
	if !m.news {
		return
	}
	m.news = false
	var changes []lockd.Transition
	last := m.index
	for e := range events(db, lockd.SessionsScope(), m.index) {
		last = max(last, e.Index)
		m.session(e)
	}
	for e := range events(db, lockd.PrefixScope(""), m.index) {
		last = max(last, e.Index)
		m.note(e)
		k := m.keys[e.Key]
		if k == nil {
			k = new(seen)
			m.keys[e.Key] = k
		}
		if e.Lock == lockd.LockUnchanged || k.index >= e.Index {
			continue
		}
		for _, t := range db.History(e.Key) {
			if t.Index > k.index {
				changes = append(changes, t)
			}
		}
		k.index = e.Index
		if n := len(changes); n > 0 {
			k.index = max(k.index, changes[n-1].Index)
		}
	}
	m.index = last
	slices.SortStableFunc(changes, func(a, b lockd.Transition) int {
		return cmp.Compare(a.Index, b.Index)
	})
	for _, t := range changes {
		m.transition(t)
	}
}

func (m *monitor) session(e lockd.Event) {
	id := e.Session.ID
	m.sessions[id] = e.Session
	if e.Kind == lockd.SessionCreated {
		m.alive[id] = true
		return
	}
	delete(m.alive, id)
	m.world.journal.note(fmt.Sprintf("%s has ended: %v", m.name(id), e.Cause))
}

// note tells of the event of a key.
func (m *monitor) note(e lockd.Event) {
	j := &m.world.journal
	if j.volume == quiet {
		return
	}
	switch e.Lock {
	case lockd.LockUnchanged:
		j.note(fmt.Sprintf("%s = %q", e.Key, e.Entry.Value))
	case lockd.LockGranted, lockd.LockHandedOn:
		j.note(fmt.Sprintf("%s %v to %s, fence %d", e.Key, e.Lock, m.name(e.Entry.Session),
			e.Entry.Fence))
	default:
		j.note(fmt.Sprintf("%s %v by %s", e.Key, e.Lock, m.name(e.Previous.Session)))
	}
}

// transition checks a grant, or the end of one.
func (m *monitor) transition(t lockd.Transition) {
	w, k := m.world, m.keys[t.Key]
	if t.Change != lockd.LockGranted {
		k.holder = lockd.SessionID{}
		if delay := m.sessions[t.Session].LockDelay; delay > 0 && isLoss(t.Cause) {
			k.delayed, k.by = t.Time.Add(delay), t.Session
		}
		return
	}
	name := m.name(t.Session)
	if !k.holder.IsZero() {
		w.fail("G1", fmt.Sprintf("%s was granted to %s while %s held it", t.Key, name,
			m.name(k.holder)))
	}
	if t.Time.Before(k.delayed) {
		w.fail("G7", fmt.Sprintf("%s was granted to %s at %s, and the delay of %s lasts until %s",
			t.Key, name, w.at(t.Time), m.name(k.by), w.at(k.delayed)))
	}
	if t.Fence < k.fence || t.Fence == k.fence && t.Index != t.Fence || t.Fence < m.fence {
		w.fail("G8", fmt.Sprintf("%s was granted to %s with fence %d, after fence %d of the key "+
			"and %d of any", t.Key, name, t.Fence, k.fence, m.fence))
	}
	k.holder, k.fence, k.granted = t.Session, t.Fence, w.step
	m.fence = max(m.fence, t.Fence)
}

// isLoss reports whether a grant that ended for that cause was lost, so that a delay follows.
func isLoss(cause error) bool {
	return !errors.Is(cause, lockd.ErrUnlocked) && !errors.Is(cause, lockd.ErrClosed) &&
		!errors.Is(cause, lockd.ErrKeyDeleted)
}

// events yields those after the index that are there, and waits for none. Of what was durable, and
// not told before the process died, there are none.
func events(db *lockd.DB, scope lockd.Scope, index uint64) iter.Seq[lockd.Event] {
	return func(yield func(lockd.Event) bool) {
		for ; ; index++ {
			for e, err := range db.Watch(&atOnce{Context: context.Background()}, scope, index) {
				if errors.Is(err, lockd.ErrCompacted) {
					break
				}
				if err != nil || !yield(e) {
					return
				}
			}
		}
	}
}

// atOnce is a context that ends as soon as a call waits for its end.
type atOnce struct {
	context.Context
	waits bool
}

func (c *atOnce) Done() <-chan struct{} {
	c.waits = true
	done := make(chan struct{})
	close(done)
	return done
}

func (c *atOnce) Err() error {
	if c.waits {
		return context.Canceled
	}
	return nil
}

// published is called under the database's lock, before anything is told but losses: so every grant
// that has ended is told of now (G10).
func (p *process) published() {
	w := p.world
	w.monitor.news = true
	if p.db == nil {
		return // it is being opened
	}
	live := p.handles[:0]
	for _, h := range p.handles {
		if h.Err() != nil {
			continue
		}
		live = append(live, h)
		if e, _ := p.db.Get(h.Key); !p.dead && (e.Session != h.Session || e.Fence != h.Fence) {
			w.fail("G10", fmt.Sprintf("the lock of %s has gone from %s to %s, and Done of %s is "+
				"not closed when that is told", h.Key, w.monitor.name(h.Session),
				w.monitor.name(e.Session), w.monitor.name(h.Session)))
		}
	}
	p.handles = live
}

// handed is called when a call is about to return a lock or a slot.
func (p *process) handed(h hook.Held) {
	w, g := p.world, p.caller()
	if g == nil || h.Err() != nil { // it was lost while the call was on its way
		return
	}
	name := w.monitor.name(h.Session)
	for _, other := range p.handles {
		if other.Key == h.Key && other.Err() == nil {
			w.fail("G1", fmt.Sprintf("the lock of %s is returned to %s, while %s has it", h.Key,
				name, w.monitor.name(other.Session)))
		}
	}
	p.handles = append(p.handles, h)
	k := w.monitor.keys[h.Key]
	if k != nil && k.fence == h.Fence && k.granted < g.rank {
		return // it was taken over, as it was
	}
	for _, other := range p.goroutines {
		if other.state == waiting && other.rank < g.rank && slices.Contains(other.keys, h.Key) {
			w.fail("G9", fmt.Sprintf("the lock of %s is returned to %s, whose call began in "+
				"step %d, and %s has waited for it since step %d", h.Key, g.name, g.rank,
				other.name, other.rank))
		}
	}
}
