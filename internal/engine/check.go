package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// Check compares the state that is kept beside the rows with the rows.
func (e *Engine) Check() error {
	if err := e.rows.Check(); err != nil {
		return err
	}
	held, shares := 0, e.rows.Shares.Len() // by the rows, less those that are known
	for key, row := range e.rows.Keys.Ascend("") {
		if row.Session.IsZero() {
			continue
		}
		held++
		if err := e.checkHeld(key, row); err != nil {
			return err
		}
	}
	for key, state := range e.locks {
		if state.session != nil {
			held--
		}
		shares -= state.shares.n
		if err := e.checkShares(key, state); err != nil {
			return err
		}
		if err := e.checkState(key, state); err != nil {
			return err
		}
	}
	if e.latest != nil && e.locks[e.latest.key] != e.latest {
		return fmt.Errorf("bug: the state of key %q is not among those of the locks",
			e.latest.key)
	}
	if held != 0 || shares != 0 {
		return fmt.Errorf("bug: %d locked keys and %d shares are not known", held, shares)
	}
	if err := errors.Join(
		e.checkSemaphores(), e.checkStats(), e.checkSlow(), e.checkNodeIDs(),
	); err != nil {
		return err
	}
	beats := 0
	for key, row := range e.rows.Checks.Ascend("") {
		if !lapses(row) {
			continue
		}
		beats++
		if b := e.leases[key]; b == nil || !b.due.Queued() {
			return fmt.Errorf("bug: check %q has a TTL but no deadline", key)
		}
	}
	if n := len(e.leases); n != beats {
		return fmt.Errorf("bug: %d checks have a deadline, but %d a TTL", n, beats)
	}
	return e.checkSessions()
}

// checkStats compares the counts with the state, if everything is published.
func (e *Engine) checkStats() error {
	if e.Undecided() != nil {
		return nil
	}
	locks, shares, waiters := 0, 0, 0
	for _, s := range e.sessions {
		for one := s.shares; one != nil; one = one.next {
			shares++
		}
		for state := s.held; state != nil; state = state.next {
			locks++
		}
		for w := range s.waiters() {
			if !w.left {
				waiters++
			}
		}
	}
	got, want := e.counts, e.counts
	want.Keys, want.Sessions = e.rows.Keys.Len(), e.rows.Sessions.Len()
	want.Locks, want.Shares, want.Waiters = locks, shares, waiters
	if got != want {
		return fmt.Errorf("bug: counted %+v, found %+v", got, want)
	}
	return nil
}

// checkHeld checks a key that is locked.
func (e *Engine) checkHeld(key string, row *schema.Key) error {
	state := e.locks[key]
	if state == nil || state.session == nil || state.session.Row.ID != row.Session {
		return fmt.Errorf("bug: key %q is locked, but its session does not know", key)
	}
	if !state.session.live {
		return fmt.Errorf("bug: key %q is locked by a session that has ended", key)
	}
	hold := state.hold
	if hold != nil && hold.Sequencer() != SequencerOf(row) {
		return fmt.Errorf("bug: key %q has the handle of another grant", key)
	}
	return checkTerm(hold)
}

// checkShares compares the holders that share a lock with their rows.
func (e *Engine) checkShares(key string, state *lockState) error {
	n, loose := 0, 0
	row := e.rows.Keys.Newest(key)
	for _, share := range e.rows.Shares.Prefix(schema.SharePrefix(key)) {
		n++
		one := state.shares.find(grantID{e.sessions[share.Session()], share.Fence()})
		switch {
		case one == nil || one.row != share || one.state != state || !one.session.live:
			return fmt.Errorf("bug: the share of %q with fence %d is not known", key, share.Fence())
		case row == nil || !row.Session.IsZero() || row.LockIndex != share.LockIndex:
			return fmt.Errorf("bug: key %q is shared, and its row says otherwise", key)
		case state.shares.removes != share.Removes:
			return fmt.Errorf("bug: the shares of %q differ in whether they remove it", key)
		case len(one.holds) == 0:
			loose++
		}
		for _, hold := range one.holds {
			if hold.Session != one.session || hold.Fence != share.Fence() || hold.Mode != Shared {
				return fmt.Errorf("bug: the share of %q has the handle of another grant", key)
			}
			if err := checkTerm(hold); err != nil {
				return err
			}
		}
	}
	if state.shares.n != n || state.shares.loose != loose {
		return fmt.Errorf("bug: key %q has %d shares and %d of them loose, but counts %d and %d",
			key, n, loose, state.shares.n, state.shares.loose)
	}
	return nil
}

// checkState checks what is known of a key's lock.
func (e *Engine) checkState(key string, state *lockState) error {
	if state.key != key {
		return fmt.Errorf("bug: key %q has the state of %q", key, state.key)
	}
	if state.empty() && state != e.latest {
		return fmt.Errorf("bug: the state of key %q is empty, but kept", key)
	}
	if state.session == nil && state.hold != nil {
		return fmt.Errorf("bug: key %q is free, but has a handle", key)
	}
	place := state.queue.Front()
	if place == nil || e.unserved {
		return nil
	}
	for other := range state.queue.Places() {
		if e.couldHave(other.Waiter) {
			return fmt.Errorf("bug: a call waits for %q that could have what it waits for", key)
		}
	}
	if place.Waiter.Slot {
		return e.checkWaits(state)
	}
	return e.checkFirst(state, place.Waiter)
}

// checkFirst finds a lock that is not given to the first waiter, by what the state says alone and
// not by the function that decides whose turn it is.
func (e *Engine) checkFirst(state *lockState, first *Waiter) error {
	key := state.key
	if first.Session.stalls {
		return nil
	}
	if s := state.session; s != nil && state.hold == nil {
		if own := s.firstFor(key, Exclusive); own != nil && !own.Slot && len(own.claims) == 1 {
			return fmt.Errorf("bug: key %q is held by the session of a call that waits for it", key)
		}
	}
	alone := first.Options.Mode == Exclusive
	if state.session != nil || alone && state.shares.n > 0 ||
		state.delay != nil && (alone || state.delay.mode == Exclusive) {
		return nil
	}
	// Else the first waiter has to wait for other keys too.
	if len(first.claims) == 1 {
		return fmt.Errorf("bug: key %q is free, but not given to the call that waits for it", key)
	}
	return nil
}

// couldHave reports whether a hand-off would grant the waiter its locks.
func (e *Engine) couldHave(w *Waiter) bool {
	tx := e.Running()
	if w.Slot || w.phase != standing || w.Session.stalls || w.Session.isDue(tx.now) {
		return false
	}
	tx.passing = true
	defer func() { tx.passing = false }()
	for i := range w.claims {
		c := &w.claims[i]
		// A delay that is over may still have waiters: endDelay serves them.
		d := c.state.delay
		delayed := d != nil && (d.mode == Exclusive || w.Options.Mode == Exclusive)
		if delayed || !tx.inTurn(w, c) {
			return false
		}
	}
	return true
}

// checkWaits checks the first waiter for a slot that does not wait for a delay of its own.
func (e *Engine) checkWaits(state *lockState) error {
	var w *Waiter
	for place := range state.queue.Places() {
		w = place.Waiter
		if !w.Slot {
			return nil // it waits for the lock of the semaphore's key
		}
		if e.delayOf(contenderKey(w.prefix(), w.Session.Row.ID)) == nil {
			break
		}
		w = nil
	}
	if w == nil || w.Session.stalls {
		return nil
	}
	key := state.key
	slots, err := rosterOf(w.prefix(), e.rows.Keys.Newest(key))
	if err != nil {
		return fmt.Errorf("bug: %q is no semaphore, but a call waits for it", key)
	}
	if slots.limit == 0 { // the key was deleted, but the lost slots still count
		slots.limit = int(w.Limit)
	}
	taken := len(e.semaphores[w.prefix()].lost)
	for _, id := range slots.holders {
		row := e.rows.Keys.Newest(contenderKey(w.prefix(), id))
		if row != nil && row.Session == id {
			taken++
		}
	}
	if taken < slots.limit {
		return fmt.Errorf("bug: %q has a slot, but does not give it to the call that waits", key)
	}
	return nil
}

// checkSemaphores compares the state that is kept beside the rows of semaphores with the rows.
func (e *Engine) checkSemaphores() error {
	for prefix, sem := range e.semaphores {
		slots, err := rosterOf(prefix, e.rows.Keys.Newest(prefix+SemaphoreKey))
		for hold := range sem.slots {
			if err != nil || !slots.names(hold.Session.Row.ID) ||
				e.locks[hold.Key] == nil || e.locks[hold.Key].hold != hold {
				return fmt.Errorf("bug: %q is held, but the semaphore does not know",
					hold.Key)
			}
		}
		if err := e.checkRoster(sem, slots); err != nil {
			return err
		}
		for lost := range sem.lost {
			if e.delayOf(lost.key) != lost {
				return fmt.Errorf("bug: %q counts as lost, but is not delayed", lost.key)
			}
		}
		if len(sem.slots)+len(sem.lost)+sem.waiting == 0 {
			return fmt.Errorf("bug: nothing is known of semaphore %q", prefix)
		}
	}
	return nil
}

// checkRoster compares the roster that is kept with the one that was read anew, and with the rows.
func (e *Engine) checkRoster(sem *semaphore, anew roster) error {
	kept := sem.roster
	if kept.row != nil && kept.row == anew.row &&
		(kept.limit != anew.limit || !slices.Equal(kept.holders, anew.holders)) {
		return fmt.Errorf("bug: %q is kept otherwise than it is", kept.row.Key)
	}
	for _, id := range kept.holders {
		row := e.rows.Keys.Newest(contenderKey(sem.prefix, id))
		if _, idle := kept.idle[id]; idle != (row == nil || row.Session != id) {
			return fmt.Errorf("bug: session %s is idle in %q: %t", id, sem.prefix, idle)
		}
	}
	return nil
}

func (e *Engine) checkSessions() error {
	live, nested := 0, 0
	for id, s := range e.sessions {
		calls := 0
		for w := range s.waiters() {
			if w.phase == standing {
				calls++
			}
		}
		if calls != s.calls {
			return fmt.Errorf("bug: session %s has %d calls, but counts %d", id, calls, s.calls)
		}
		if s.holdsAny() {
			nested += s.calls
		}
		if s.live {
			live++
		}
		if s.live != (e.rows.Sessions.Newest(string(id[:])) != nil) {
			return fmt.Errorf("bug: session %s has no row, or has ended and has one", id)
		}
		var prev *lockState
		for state := s.held; state != nil; state = state.next {
			if state.session != s || state.prev != prev || e.locks[state.key] != state {
				return fmt.Errorf("bug: the list of what session %s holds is broken", id)
			}
			prev = state
		}
		if s.live && s.life > 0 && !s.expires.Queued() {
			return fmt.Errorf("bug: session %s has a TTL but no deadline", id)
		}
	}
	if nested != e.nested {
		return fmt.Errorf("bug: %d calls wait whose session holds a lock, but it counts %d", nested,
			e.nested)
	}
	if live != e.rows.Sessions.Len() {
		return fmt.Errorf("bug: %d sessions live, %d have rows", live, e.rows.Sessions.Len())
	}
	return nil
}

// checkSlow compares the deadlines with the grants and with the calls that wait.
func (e *Engine) checkSlow() error {
	if e.slow == nil {
		return nil
	}
	for grant, h := range e.slow.holds {
		lasts := e.lasts(grant) == nil
		kept := h.reported && e.Undecided() != nil // because its end may be taken back
		if h.due.Queued() != (lasts && !h.reported) || !lasts && !kept {
			return fmt.Errorf("bug: %+v: lasts %t, reported %t, queued %t", grant, lasts,
				h.reported, h.due.Queued())
		}
	}
	waits := 0
	for _, s := range e.sessions {
		for w := range s.waiters() {
			waits++
			one := e.slow.waits[w]
			if one == nil || w.phase == standing && one.reported == one.due.Queued() {
				return fmt.Errorf("bug: a call that waits for %q is not reported", w.claims[0].key)
			}
		}
	}
	held := 0
	for _, state := range e.locks {
		if held += state.shares.n; state.session != nil {
			held++
		}
	}
	if held > len(e.slow.holds) || waits != len(e.slow.waits) {
		return fmt.Errorf("bug: %d grants of %d, and %d calls of %d are reported when slow",
			len(e.slow.holds), held, len(e.slow.waits), waits)
	}
	return nil
}
