package lockd_test

import (
	"slices"

	"github.com/lockd/lockd"
)

// The model's rules for calls that pass a waiter that stands first at a free lock and waits for
// another lock.

// passes reports whether a request is served ahead of the waiters for the key.
func (m *model) passes(request *modelWaiter, key string) bool {
	first := m.first(key)
	d, delayed := m.delays[key]
	if first == nil || first.slot || len(first.keys) == 1 || delayed && !m.now.Before(d.until) {
		return false
	}
	k := modelKeepers{m: m, seen: []*modelWaiter{first}}
	for _, other := range first.keys {
		if other != key {
			k.addAt(first, other)
		}
	}
	return slices.Contains(k.sessions, request.session) ||
		slices.ContainsFunc(request.carried, func(l *modelLock) bool {
			return slices.Contains(k.locks, l)
		})
}

// modelKeepers are the sessions, and the handles of their locks, that keep a waiter from being
// served.
type modelKeepers struct {
	m        *model
	sessions []*modelSession
	locks    []*modelLock
	seen     []*modelWaiter
}

// addAt adds what keeps the waiter from the key: its holders, the waiters in front, and what keeps
// these. A holder is kept by the calls that wait with its session or carry its lock.
func (k *modelKeepers) addAt(w *modelWaiter, key string) {
	for _, holder := range k.m.holdersAgainst(w, key) {
		if !slices.Contains(k.sessions, holder.session) {
			k.sessions = append(k.sessions, holder.session)
		}
		if holder.lock != nil && !slices.Contains(k.locks, holder.lock) {
			k.locks = append(k.locks, holder.lock)
		}
		for _, other := range k.m.queue {
			if other.session == holder.session || slices.Contains(other.carried, holder.lock) {
				k.add(other)
			}
		}
	}
	for _, other := range k.m.queue {
		if other == w {
			break
		}
		if slices.Contains(other.keys, key) {
			k.add(other)
		}
	}
}

func (k *modelKeepers) add(w *modelWaiter) {
	if slices.Contains(k.seen, w) {
		return
	}
	k.seen = append(k.seen, w)
	for _, key := range w.keys {
		k.addAt(w, key)
	}
}

// modelHolder is a session that holds a lock, by a handle or by none.
type modelHolder struct {
	session *modelSession
	lock    *modelLock
}

// holdersAgainst are the holders that have to release a lock, or a slot, before the waiter can have
// it.
func (m *model) holdersAgainst(w *modelWaiter, key string) (list []modelHolder) {
	mode := modeOf(w.opts)
	switch e := m.keys[key]; {
	case w.slot:
		sem, err := m.semaphore(key)
		for _, s := range m.live {
			if err == nil && slices.Contains(sem.holders, s.info.ID.String()) &&
				m.keys[contenderOf(key, s)].Session == s.info.ID {
				list = append(list, modelHolder{s, m.handles[contenderOf(key, s)]})
			}
		}
	case !e.Session.IsZero():
		if !m.adoptable(key, w.session, mode) {
			list = append(list, modelHolder{m.session(e.Session), m.handles[key]})
		}
	case mode == lockd.Exclusive:
		for _, share := range m.shares[key] {
			s := m.session(share.grant.Session)
			if len(share.handles) == 0 {
				list = append(list, modelHolder{session: s})
			}
			for _, h := range share.handles {
				list = append(list, modelHolder{s, h.lock})
			}
		}
	}
	return list
}

// passers are the waiters for the key that pass the first of them, in their order.
func (m *model) passers(key string) (list []*modelWaiter) {
	first := m.first(key)
	for _, w := range m.queue {
		if w != first && !w.slot && slices.Contains(w.keys, key) && m.passes(w, key) {
			list = append(list, w)
		}
	}
	return list
}

// servePasser serves the first call that passes a waiter for several keys at a free lock, and
// reports whether there was one.
func (tx *modelTx) servePasser() bool {
	tx.passing = true
	defer func() { tx.passing = false }()
	for _, w := range tx.m.queue {
		for _, key := range w.keys {
			free := tx.m.keys[key].Session.IsZero() // or shared
			if len(w.keys) > 1 && free && tx.m.first(key) == w && tx.serveOne(tx.m.passers(key)) {
				return true
			}
		}
	}
	return false
}

// grantedTo notes that the session is granted a lock: others of its calls may pass now.
func (tx *modelTx) grantedTo(s *modelSession) {
	tx.promises = tx.promises || slices.ContainsFunc(tx.m.queue, func(w *modelWaiter) bool {
		return w.session == s && w != tx.serving
	})
}

func (m *model) holdsAny(s *modelSession) bool {
	for key := range m.keys {
		for _, holder := range m.holders(key) {
			if holder.Session.ID == s.info.ID {
				return true
			}
		}
	}
	return false
}
