package lockdtest

import (
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
	index    uint64 // of the newest event that was looked at
	fence    uint64 // the largest fence of any key
	keys     map[string]*seen
	sessions map[lockd.SessionID]lockd.SessionInfo
	alive    map[lockd.SessionID]bool
}

// seen is what was seen of a key's lock.
type seen struct {
	holder  lockd.SessionID // exclusive; zero: none, or unknown since the process died
	shares  int             // grants that have not ended; those of a process that died do not count
	fence   uint64
	granted map[uint64]int    // by fence, the step in which a grant was seen
	delayed time.Time         // the end of the lock-delay
	by      lockd.SessionInfo // the session that lost the lock
	mode    lockd.LockMode    // in which that session had the lock
}

func newMonitor(w *World) monitor {
	return monitor{
		world: w, keys: make(map[string]*seen), index: 1,
		sessions: make(map[lockd.SessionID]lockd.SessionInfo),
		alive:    make(map[lockd.SessionID]bool),
	}
}

// forget forgets who holds what: the next process finds the locks as the file has them. Delays go
// on by the wall clock, and are never longer than they were.
func (m *monitor) forget() {
	for _, k := range m.keys {
		k.holder, k.shares = lockd.SessionID{}, 0
		if full := m.world.now.Add(k.by.LockDelay); full.Before(k.delayed) {
			k.delayed = full
		}
	}
	m.news = true
}

// endDelays forgets the delays that are over: setting the wall clock back revives none of them
// (S34).
func (m *monitor) endDelays() {
	for _, k := range m.keys {
		if !m.world.now.Before(k.delayed) {
			k.delayed = time.Time{}
		}
	}
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

// longest is how long a goroutine stands still so that another session is granted its lock: longer
// than the TTL and the lock-delay of every session that lives, except sessions that outlive the
// schedule.
func (m *monitor) longest() time.Duration {
	var life, delay time.Duration
	for id := range m.alive {
		if l := m.life(id); !m.world.now.Add(l).After(m.world.end) {
			life, delay = max(life, l), max(delay, m.sessions[id].LockDelay)
		}
	}
	return life + delay + time.Millisecond
}

// longestDelay is the longest lock-delay of all sessions, also of those that have ended.
func (m *monitor) longestDelay() (delay time.Duration) {
	for _, s := range m.sessions {
		delay = max(delay, s.LockDelay)
	}
	return delay
}

// look checks what was published since the last time.
func (m *monitor) look() {
	db := m.world.process.db
	if !m.news {
		return
	}
	m.news = false
	last := m.index
	for e := range events(db, lockd.SessionsScope(), m.index) {
		last = max(last, e.Index)
		m.session(e)
	}
	for e := range events(db, lockd.PrefixScope(""), m.index) {
		last = max(last, e.Index)
		m.note(e)
		m.lock(e)
	}
	m.index = last
}

// lock checks what the event says of the key's lock: the end of a grant makes room for the next.
func (m *monitor) lock(e lockd.Event) {
	k := m.keys[e.Key]
	if k == nil {
		k = new(seen)
		m.keys[e.Key] = k
	}
	if !e.Ended.ID.IsZero() {
		m.ended(k, e)
	}
	if !e.Granted.ID.IsZero() {
		m.granted(k, e)
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

// note notes the event of a key.
func (m *monitor) note(e lockd.Event) {
	j := &m.world.journal
	if j.volume == quiet {
		return
	}
	if e.Granted.ID.IsZero() && e.Ended.ID.IsZero() {
		j.note(fmt.Sprintf("%s = %q", e.Key, e.Entry.Value))
		return
	}
	if ended := e.Ended.ID; !ended.IsZero() {
		j.note(fmt.Sprintf("%s is no longer held by %s: %v", e.Key, m.name(ended), e.Cause))
	}
	if granted := e.Granted.ID; !granted.IsZero() {
		j.note(fmt.Sprintf("%s is granted to %s, %s, fence %d", e.Key, m.name(granted),
			e.Share.Mode, fenceOf(e)))
	}
}

// fenceOf is the fence of the grant that the event tells of.
func fenceOf(e lockd.Event) uint64 { return max(e.Entry.Fence, e.Share.Fence) }

// ended notes the end of a grant.
func (m *monitor) ended(k *seen, e lockd.Event) {
	if e.Share.Mode == lockd.Shared {
		k.shares = max(0, k.shares-1)
	} else {
		k.holder = lockd.SessionID{}
	}
	if delay := e.Ended.LockDelay; delay > 0 && isLoss(e.Cause) {
		if until := e.Time.Add(delay); e.Share.Mode == lockd.Exclusive || until.After(k.delayed) {
			k.delayed, k.by, k.mode = until, e.Ended, e.Share.Mode
		}
	}
}

// granted checks a grant.
func (m *monitor) granted(k *seen, e lockd.Event) {
	w, name, mode, fence := m.world, m.name(e.Granted.ID), e.Share.Mode, fenceOf(e)
	if !k.holder.IsZero() {
		w.fail("G1", fmt.Sprintf("%s was granted to %s while %s held it", e.Key, name,
			m.name(k.holder)))
	}
	if mode == lockd.Exclusive && k.shares > 0 {
		w.fail("G1", fmt.Sprintf("%s was granted to %s while %d shared it", e.Key, name, k.shares))
	}
	if e.Time.Before(k.delayed) && (mode == lockd.Exclusive || k.mode == lockd.Exclusive) {
		w.fail("G7", fmt.Sprintf("%s was granted to %s at %s, and the delay of %s lasts until %s",
			e.Key, name, w.at(e.Time), m.name(k.by.ID), w.at(k.delayed)))
	}
	if fence < m.fence || fence == k.fence && e.Index != fence {
		w.fail("G8", fmt.Sprintf("%s was granted to %s with fence %d, after fence %d of the key "+
			"and %d of any", e.Key, name, fence, k.fence, m.fence))
	}
	if mode == lockd.Shared {
		k.shares++
	} else {
		k.holder = e.Granted.ID
	}
	if k.granted == nil {
		k.granted = make(map[uint64]int)
	}
	k.fence, k.granted[fence] = fence, w.step
	m.fence = max(m.fence, fence)
}

// grantedBefore reports whether that grant of the key's lock was seen before the step.
func (m *monitor) grantedBefore(key string, fence uint64, step int) bool {
	k := m.keys[key]
	if k == nil {
		return false
	}
	granted, seen := k.granted[fence]
	return seen && granted < step
}

// isLoss reports whether a grant that ended for that cause was lost, so that a delay follows.
func isLoss(cause error) bool {
	return !errors.Is(cause, lockd.ErrUnlocked) && !errors.Is(cause, lockd.ErrClosed) &&
		!errors.Is(cause, lockd.ErrKeyDeleted)
}

// events yields the events after the index that are published, and waits for no more. A commit that
// was durable, and not published before the process died, has no events.
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

// atOnce is a context that ends when a call first asks for its Done, as a call does that waits.
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

// published is called under the database's lock, when losses have been told and nothing else has.
// So the end of every grant that has ended has been told by now (G10).
func (p *process) published() {
	w := p.world
	w.monitor.news = true
	if p.db == nil {
		return // the database is being opened
	}
	live := p.handles[:0]
	for _, h := range p.handles {
		if h.Err() != nil {
			continue
		}
		live = append(live, h)
		if !p.dead && !h.Holds() {
			w.fail("G10", fmt.Sprintf("the lock of %s has gone from %s, and Done is not closed "+
				"when that is told", h.Key, w.monitor.name(h.Session)))
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
	if !h.Holds() {
		w.fail("G3", fmt.Sprintf("the lock of %s is returned to %s with fence %d, which is not "+
			"published", h.Key, name, h.Fence))
	}
	for _, other := range p.handles {
		if other.Key == h.Key && other.Err() == nil && !(other.Shared() && h.Shared()) {
			w.fail("G1", fmt.Sprintf("the lock of %s is returned to %s, while %s has it", h.Key,
				name, w.monitor.name(other.Session)))
		}
	}
	p.handles = append(p.handles, h)
	if h.Fence <= p.opened || w.monitor.grantedBefore(h.Key, h.Fence, g.rank) {
		return // the call took over a grant from before it began
	}
	if p.awaitedWithOthers(h.Key, g) {
		return // a holder may pass a call for several locks (R13)
	}
	for _, other := range p.waitFor(h.Key, g.rank) {
		w.fail("G9", fmt.Sprintf("the lock of %s is returned to %s, whose call began in "+
			"step %d, and %s has waited for it since step %d", h.Key, g.name, g.rank,
			other.name, other.rank))
	}
}

// awaitedWithOthers reports whether another call, which waits for several locks, may have stood in
// the queue for the lock since the call of g began.
func (p *process) awaitedWithOthers(key string, g *goroutine) bool {
	return slices.ContainsFunc(p.goroutines, func(other *goroutine) bool {
		return other != g && (other.several[key] >= g.rank ||
			len(other.keys) > 1 && slices.Contains(other.keys, key))
	})
}

// waitFor returns the goroutines that wait for the lock, in calls that began before the step.
func (p *process) waitFor(key string, step int) (before []*goroutine) {
	for _, g := range p.goroutines {
		if g.state == waiting && g.rank < step && slices.Contains(g.keys, key) {
			before = append(before, g)
		}
	}
	return before
}
