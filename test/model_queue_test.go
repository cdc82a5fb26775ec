package lockd_test

import (
	"context"
	"slices"
)

// The rules of the model for waiters.

// acquire takes all locks at once, or queues.
func (tx *modelTx) acquire(w *modelWaiter) (queued bool, err error) {
	if tx.m.session(w.session.info.ID) == nil {
		return false, ended(w.session)
	}
	atOnce, mode := true, modeOf(w.opts)
	for _, key := range w.keys {
		free := (tx.m.first(key) == nil || tx.m.passes(w, key)) &&
			tx.m.modes(key).takeable(mode)
		atOnce = atOnce && (free ||
			tx.m.adoptable(key, w.session, mode) && !tx.m.awaits(key, w.session, mode))
	}
	if w.slot {
		lock, obstacle, err := tx.acquireSlot(w.session, w.keys[0], w.limit)
		if err != nil {
			return false, err
		}
		if atOnce = obstacle == nil; atOnce {
			w.locks = []*modelLock{lock}
		}
	} else if atOnce {
		for _, key := range w.keys {
			w.locks = append(w.locks, tx.hold(key, w.session, w.opts))
		}
	}
	if atOnce {
		tx.tell(func() { w.told = true })
		return false, nil
	}
	if w.deadlock != nil {
		return false, w.deadlock
	}
	w.began = tx.m.now
	tx.m.queue = append(tx.m.queue, w)
	tx.promises = tx.promises || tx.m.holdsAny(w.session) || len(w.carried) > 0
	return true, nil
}

// withdraw takes out a waiter that gives up, with the locks that it was granted and not told of.
func (tx *modelTx) withdraw(w *modelWaiter) {
	if slices.Contains(tx.m.queue, w) {
		tx.m.leave(w)
		tx.freed = append(tx.freed, w.keys...)
		return
	}
	for _, l := range w.locks {
		l.givenUp = true
		tx.unlockHandle(l)
	}
}

// gone is what became of a waiter that gave up, whatever became of the commits.
func (m *model) gone(w *modelWaiter) {
	m.leave(w)
	w.told, w.locks, w.err = true, nil, context.Canceled
}

// serve grants the waiters for the key their locks, until a waiter has to wait on.
func (tx *modelTx) serve(key string) {
	waiters := func() []*modelWaiter {
		return append([]*modelWaiter{tx.m.turn(key)}, tx.m.takesOver(key)...)
	}
	for tx.serveOne(waiters()) {
	}
	for _, w := range waiters() { // others may pass the first; one that takes over may pass others
		tx.promises = tx.promises || w != nil && len(w.keys) > 1
	}
}

// serveOne serves the first of the waiters that can be served, and reports whether there was one.
func (tx *modelTx) serveOne(waiters []*modelWaiter) bool {
	for _, w := range waiters {
		locks := tx.serveWaiter(w)
		if locks == nil {
			continue
		}
		tx.m.leave(w)
		w.locks = locks
		for _, l := range locks {
			tx.waited[l.grant] = max(tx.waited[l.grant], tx.m.now.Sub(w.began)) // R15
		}
		tx.freed = append(tx.freed, w.keys...) // others may share the other locks
		tx.tell(func() { w.told = true })
		return true
	}
	return false
}

// takesOver returns the waiters that may take the lock over, because their sessions have it without
// a handle: the oldest of each session. They wait for none of the others.
func (m *model) takesOver(key string) (list []*modelWaiter) {
	for _, holder := range m.holders(key) {
		s, mode := m.session(holder.Session.ID), holder.Grant.Mode
		w := m.firstFor(key, s, mode)
		if w != nil && !w.slot && m.adoptable(key, s, mode) {
			list = append(list, w)
		}
	}
	return list
}

// serveWaiter grants a waiter what it waits for, if it can have all of it.
func (tx *modelTx) serveWaiter(w *modelWaiter) []*modelLock {
	if w == nil {
		return nil
	}
	tx.serving = w
	defer func() { tx.serving = nil }()
	if w.slot {
		return tx.serveSlot(w)
	}
	mode := modeOf(w.opts)
	for _, wanted := range w.keys {
		turn := tx.m.modes(wanted).takeable(mode) &&
			(tx.m.first(wanted) == w || tx.passing && tx.m.passes(w, wanted))
		takesOver := tx.m.adoptable(wanted, w.session, mode) &&
			tx.m.firstFor(wanted, w.session, mode) == w
		if !turn && !takesOver {
			return nil
		}
	}
	if w.session.due(tx.m.now) {
		tx.m.counts["due and not granted"]++ // the queue goes on when the session ends (S26)
		return nil
	}
	locks := make([]*modelLock, len(w.keys))
	for i, wanted := range w.keys {
		locks[i] = tx.hold(wanted, w.session, w.opts)
	}
	return locks
}

func (m *model) leave(w *modelWaiter) {
	m.queue = slices.DeleteFunc(m.queue, func(other *modelWaiter) bool { return other == w })
}

// dismiss takes a waiter out with an error.
func (tx *modelTx) dismiss(w *modelWaiter, err error) {
	tx.m.leave(w)
	tx.freed = append(tx.freed, w.keys...)
	tx.tell(func() { w.told, w.err = true, err })
}
