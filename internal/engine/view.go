package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/waitq"
)

// LockView is one lock as it is published. It is immutable, so it may be read without the caller's
// lock.
type LockView struct {
	Key    string
	Row    *schema.Key     // nil: there is no such key
	Holder *schema.Session // that has the lock alone, or nil
	Shares []Holder        // the holders that share it, in the order of their grants

	delay     *delay
	queue     []*waitq.Place[*Waiter]
	semaphore *schema.Key // of the semaphore that it may belong to; nil if there is none
}

// LockViews returns all locks that are held, delayed or waited for, in no order.
func (e *Engine) LockViews(now time.Time) []LockView {
	undecided := e.undecided()
	views := make([]LockView, 0, len(e.locks))
	for key, state := range e.known(undecided) {
		if v := e.view(key, state, undecided[key], now); !v.free() {
			views = append(views, v)
		}
	}
	return views
}

// known yields the locks that have state beside their rows, or of which something is undecided: the
// state of these may be empty.
func (e *Engine) known(undecided undecidedByKey) iter.Seq2[string, *lockState] {
	return func(yield func(string, *lockState) bool) {
		for key, state := range e.locks {
			if !yield(key, state) {
				return
			}
		}
		empty := new(lockState)
		for key := range undecided {
			if e.locks[key] == nil && !yield(key, empty) {
				return
			}
		}
	}
}

// view returns the key's lock as it is published: from its state, and from p, which says what is
// undecided of the lock and may be nil.
func (e *Engine) view(key string, state *lockState, p *undecided, now time.Time) LockView {
	var shares []*schema.Share
	delay := state.delay
	v := LockView{Key: key, Row: e.rows.Keys.Get(key)}
	v.queue = slices.Collect(state.queue.Places())
	if p != nil {
		if p.replaces {
			delay = p.delay
		}
		v.queue = append(v.queue, p.aside...)
		shares = p.shares
	}
	v.Shares = e.publishedHolders(key, shares...)
	if isLocked(v.Row) {
		v.Holder = e.rows.Sessions.Get(string(v.Row.Session[:]))
	}
	if delay != nil && now.Before(delay.until) {
		v.delay = delay
	}
	if key == PrefixOf(key)+SemaphoreKey || !contenderOf(key).IsZero() {
		v.semaphore = e.rows.Keys.Get(PrefixOf(key) + SemaphoreKey)
	}
	return v
}

// free reports whether the lock is neither held, nor delayed, nor waited for.
func (v *LockView) free() bool {
	return v.Holder == nil && len(v.Shares) == 0 && v.delay == nil && len(v.queue) == 0
}

// Delay returns the end of the lock-delay, and the mode in which the lock was lost; both are zero
// if there is none.
func (v *LockView) Delay() (until time.Time, mode Mode) {
	if v.delay != nil {
		until, mode = v.delay.until.Round(0), v.delay.mode
	}
	return until, mode
}

// Waiters returns the calls that wait for the lock, in the order in which they came.
func (v *LockView) Waiters() []*Waiter {
	slices.SortFunc(v.queue, func(a, b *waitq.Place[*Waiter]) int {
		return cmp.Compare(a.Ticket(), b.Ticket())
	})
	var waiters []*Waiter
	for _, place := range v.queue {
		waiters = append(waiters, place.Waiter)
	}
	return waiters
}

// Limits has the rosters that LockView.Limit has parsed, by the rows of the semaphores' keys.
type Limits map[*schema.Key]roster

// Limit returns the limit of the semaphore whose own key or slot the lock is, or 0 if it is
// neither. It parses each semaphore once, and keeps the result in read.
func (v *LockView) Limit(read Limits) int {
	if v.semaphore == nil {
		return 0
	}
	slots, ok := read[v.semaphore]
	if !ok {
		// A key that is not of a semaphore has the limit 0.
		slots, _ = rosterOf(PrefixOf(v.Key), v.semaphore)
		read[v.semaphore] = slots
	}
	if v.semaphore.Key == v.Key || slots.has(v.Row) || v.delay != nil && v.delay.slot {
		return slots.limit
	}
	return 0 // another client's contender key, which has no slot yet
}

// WaitersFor returns how many calls wait for the key's lock.
func (e *Engine) WaitersFor(key string) int {
	if state := e.locks[key]; state != nil {
		return state.queue.Len()
	}
	return 0
}

// AllWaiters returns the calls that wait.
func (e *Engine) AllWaiters() []*Waiter {
	var waiters []*Waiter
	for _, s := range e.sessions {
		waiters = slices.AppendSeq(waiters, s.waiters())
	}
	return waiters
}

// PublishedSessions returns the sessions that live in the published state, in no order. It leaves
// out sessions whose creation is not durable yet.
func (e *Engine) PublishedSessions() []*Session {
	published := e.rows.Published()
	sessions := make([]*Session, 0, len(e.sessions))
	for _, s := range e.sessions {
		if s.Row.CreateIndex <= published {
			sessions = append(sessions, s)
		}
	}
	return sessions
}

// AllSessions returns the sessions that live, or whose end is not published.
func (e *Engine) AllSessions() []*Session { return slices.Collect(maps.Values(e.sessions)) }

// Held returns the locks that the session's handles have.
func (s *Session) Held() []*Hold {
	var holds []*Hold
	for state := s.held; state != nil; state = state.next {
		if state.hold != nil {
			holds = append(holds, state.hold)
		}
	}
	for one := s.shares; one != nil; one = one.next {
		holds = append(holds, one.holds...)
	}
	return holds
}

// States returns how many locks have state that is kept beside their rows.
func (e *Engine) States() int {
	if e.latest != nil && e.latest.empty() {
		return len(e.locks) - 1
	}
	return len(e.locks)
}

// undecided is what the batches that are not durable yet change of one lock, beside its row.
type undecided struct {
	replaces bool // the lock-delay, which is published as delay
	delay    *delay
	aside    []*waitq.Place[*Waiter] // of calls that still wait until their outcome is told
	shares   []*schema.Share         // that were granted or ended
}

// undecided returns what is undecided of each lock, which view shows as it was before. Every key
// that an undecided batch, or the shared transaction, has changed is in it.
func (e *Engine) undecided() undecidedByKey {
	all := make(undecidedByKey)
	for _, b := range []*Batch{e.flying, e.open} { // the older one first
		if b == nil {
			continue
		}
		for i := range b.events {
			if b.events[i].Space&(SpaceKeys|SpaceShares) != 0 {
				all.addEvent(&b.events[i])
			}
		}
		all.addEffects(b.effects)
	}
	if tx := &e.own; tx.shared {
		for _, key := range tx.passed {
			all.of(key)
		}
		for _, share := range tx.passedShares {
			all.addShare(share)
		}
		all.addEffects(tx.effects)
	}
	return all
}

// undecidedByKey is what is undecided of each lock, by its key.
type undecidedByKey map[string]*undecided

// of returns what is undecided of the key.
func (all undecidedByKey) of(key string) *undecided {
	if all[key] == nil {
		all[key] = &undecided{}
	}
	return all[key]
}

// addEvent adds the change of a key or of one of its shares.
func (all undecidedByKey) addEvent(event *Event) {
	all.of(event.Name)
	switch event.Body.Kind {
	case ShareGranted, ShareEnded:
		all.addShare(cmp.Or(event.Body.Old.(*schema.Share), event.Body.New.(*schema.Share)))
	}
}

func (all undecidedByKey) addShare(share *schema.Share) {
	u := all.of(share.Key())
	u.shares = append(u.shares, share)
}

// addEffects adds what the effects have changed. They are later than those added before.
func (all undecidedByKey) addEffects(effects []Effect) {
	for i := range effects {
		switch f := &effects[i]; f.Kind {
		case delaySet:
			if u := all.of(f.delay.key); !u.replaces {
				u.replaces, u.delay = true, f.replaced
			}
		case WaiterServed, WaiterLeft:
			if f.Waiter.left {
				continue
			}
			for j := range f.Waiter.claims {
				c := &f.Waiter.claims[j]
				u := all.of(c.key)
				u.aside = append(u.aside, &c.place)
			}
		}
	}
}

// awaited is a lock that calls wait for, in the published state.
type awaited struct {
	key     string
	state   *lockState
	waiters int                   // how many they are
	first   *waitq.Place[*Waiter] // the place of the call that came first
}

// MostAwaited returns the n locks that most calls wait for, or fewer if no more are waited for, the
// most awaited first. Of two with as many waiters, the lock whose first waiter has waited longer
// comes first, and then the smaller key.
func (e *Engine) MostAwaited(n int, now time.Time) []LockView {
	undecided := e.undecided()
	var most []awaited
	for key, state := range e.known(undecided) {
		if a := awaitedOf(key, state, undecided[key]); a.waiters > 0 {
			most = append(most, a)
		}
	}
	slices.SortFunc(most, func(a, b awaited) int {
		return cmp.Or(cmp.Compare(b.waiters, a.waiters),
			a.first.Waiter.Began.Compare(b.first.Waiter.Began), strings.Compare(a.key, b.key))
	})
	var views []LockView
	for _, a := range most[:min(max(0, n), len(most))] {
		views = append(views, e.view(a.key, a.state, undecided[a.key], now))
	}
	return views
}

// awaitedOf counts the calls that wait for the key's lock: see view.
func awaitedOf(key string, state *lockState, p *undecided) awaited {
	a := awaited{key, state, state.queue.Len(), state.queue.Front()}
	if p != nil {
		a.waiters += len(p.aside)
		for _, place := range p.aside {
			if a.first == nil || place.Ticket() < a.first.Ticket() {
				a.first = place
			}
		}
	}
	return a
}
