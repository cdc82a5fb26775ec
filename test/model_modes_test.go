package lockd_test

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// The rules of the model for locks that are shared. model_holders_test.go says who may hold one.

// modelShare is one grant of a shared lock. It is replaced, never changed, because the state before
// is kept for when a commit fails.
type modelShare struct {
	grant   lockd.Sequencer
	handles []modelHandle
}

// modelHandle is a handle of a share.
type modelHandle struct {
	lock   *modelLock
	policy lockd.KeyPolicy
	had    bool // its session had the share before, without a handle
}

// modelDelay is a lock-delay.
type modelDelay struct {
	until time.Time
	mode  lockd.LockMode // in which the lock was lost
}

func modeOf(opts *lockd.LockOptions) lockd.LockMode {
	if opts == nil {
		return lockd.Exclusive
	}
	return opts.Mode
}

// modes returns the modes of the key's lock.
func (m *model) modes(key string) (l lockModes) {
	if !m.keys[key].Session.IsZero() {
		l.holders = append(l.holders, lockd.Exclusive)
	}
	for range m.shares[key] {
		l.holders = append(l.holders, lockd.Shared)
	}
	if d, ok := m.delays[key]; ok && m.now.Before(d.until) {
		l.delayed = append(l.delayed, d.mode)
	}
	return l
}

// holders returns the holders of the key's lock, in the order of their grants.
func (m *model) holders(key string) (list []lockd.Holder) {
	add := func(grant lockd.Sequencer) {
		list = append(list, lockd.Holder{
			Session: m.session(grant.Session).info, Grant: grant, Since: m.granted[grant.Fence],
		})
	}
	if e := m.keys[key]; !e.Session.IsZero() {
		add(e.Sequencer())
	}
	for _, share := range m.shares[key] {
		add(share.grant)
	}
	return list
}

// setShares replaces the shares of a lock.
func (m *model) setShares(key string, shares []modelShare) {
	if len(shares) == 0 {
		delete(m.shares, key)
		delete(m.removes, key)
		return
	}
	slices.SortFunc(shares, func(a, b modelShare) int {
		return cmp.Or(cmp.Compare(a.grant.Fence, b.grant.Fence),
			bytes.Compare(a.grant.Session[:], b.grant.Session[:]))
	})
	m.shares[key] = shares
}

// shareOf is the share that has the handle.
func (m *model) shareOf(l *modelLock) (share modelShare, ok bool) {
	for _, share := range m.shares[l.grant.Key] {
		if slices.ContainsFunc(share.handles, func(h modelHandle) bool { return h.lock == l }) {
			return share, true
		}
	}
	return modelShare{}, false
}

// loose is the newest share that the session has of the lock without a handle.
func (m *model) loose(key string, s *modelSession) (share modelShare, ok bool) {
	for _, share := range slices.Backward(m.shares[key]) {
		if share.grant.Session == s.info.ID && len(share.handles) == 0 {
			return share, true
		}
	}
	return modelShare{}, false
}

// holdsIn reports whether the session holds the lock in the mode.
func (m *model) holdsIn(key string, id lockd.SessionID, mode lockd.LockMode) bool {
	if mode == lockd.Exclusive {
		return m.keys[key].Session == id
	}
	return slices.ContainsFunc(m.shares[key], func(share modelShare) bool {
		return share.grant.Session == id
	})
}

// proves is K41 and R6.
func (m *model) proves(q lockd.Sequencer) bool {
	switch {
	case q.Session.IsZero():
		return false
	case q.Mode == lockd.Exclusive:
		return m.keys[q.Key].Sequencer() == q
	}
	return slices.ContainsFunc(m.shares[q.Key], func(share modelShare) bool {
		return share.grant == q
	})
}

// without returns the shares of the lock without the given one.
func (m *model) without(share modelShare) []modelShare {
	return slices.DeleteFunc(slices.Clone(m.shares[share.grant.Key]), func(o modelShare) bool {
		return o.grant == share.grant
	})
}

// replace puts a share with other handles in its place.
func (m *model) replace(share modelShare, handles []modelHandle) {
	m.setShares(share.grant.Key, append(m.without(share), modelShare{share.grant, handles}))
}

// grantShare is R2.
func (tx *modelTx) grantShare(key string, s *modelSession, opts *lockd.LockOptions) modelShare {
	tx.grantedTo(s)
	tx.m.granted[tx.index] = tx.m.now
	switch first := len(tx.m.shares[key]) == 0; {
	case first:
		e, ok := tx.m.keys[key]
		if !ok {
			e = lockd.Entry{Key: key, CreateIndex: tx.index}
		}
		e.Fence, e.LockIndex = tx.index, 1+max(e.LockIndex, tx.locked[key])
		if opts.Value != nil {
			e.Value, e.Flags = opts.Value, opts.Flags
		}
		tx.write(e)
	case opts.Value != nil:
		before := tx.m.keys[key]
		e := tx.put(key, opts.Value, opts.Flags)
		same := bytes.Equal(e.Value, before.Value) && e.Flags == before.Flags
		if e.Fence == tx.index && !same {
			tx.m.joined[key] = e.Fence
		}
	}
	return tx.addShare(key, s)
}

// addShare adds a share; the shares of one session in one transaction are one.
func (tx *modelTx) addShare(key string, s *modelSession) modelShare {
	share := modelShare{grant: lockd.Sequencer{
		Key: key, Session: s.info.ID, LockIndex: tx.m.keys[key].LockIndex, Fence: tx.index,
		Mode: lockd.Shared,
	}}
	for _, same := range tx.m.shares[key] {
		if same.grant == share.grant {
			return same
		}
	}
	if len(tx.m.shares[key]) > 0 {
		tx.count("lock shared by several")
	}
	tx.m.setShares(key, append(slices.Clone(tx.m.shares[key]), share))
	tx.wrote = true
	return share
}

// holdShare makes a handle of a share: of a new one, or one that the session has without a handle.
func (tx *modelTx) holdShare(
	key string, s *modelSession, opts *lockd.LockOptions,
) *modelLock {
	_, exists := tx.m.keys[key]
	share, had := tx.m.loose(key, s)
	policy := opts.Key
	if had || exists && !tx.m.removes[key] {
		policy = lockd.LeaveKey
	}
	switch {
	case !had:
		share = tx.grantShare(key, s, opts)
	case opts.Value != nil:
		tx.put(key, opts.Value, opts.Flags)
	}
	lock := &modelLock{session: s, grant: share.grant, policy: policy, took: had}
	lock.limit(opts, tx.m.now)
	if had {
		tx.count("share taken over")
	}
	if len(share.handles) > 0 {
		tx.count("grant with several handles")
	}
	tx.handle(share, modelHandle{lock, policy, had})
	return lock
}

// handle gives the share one more handle.
func (tx *modelTx) handle(share modelShare, h modelHandle) {
	tx.m.replace(share, append(slices.Clone(share.handles), h))
	if h.policy == lockd.RemoveAfter {
		tx.m.removes[share.grant.Key] = true
	}
}

// dropShare ends a share whose handles are told by others.
func (tx *modelTx) dropShare(share modelShare, cause error) {
	tx.m.setShares(share.grant.Key, tx.m.without(share))
	tx.shareEnds[share.grant] = cause
	tx.wrote = true
	tx.freed = append(tx.freed, share.grant.Key)
}

// endShare ends a share, which its handles lose.
func (tx *modelTx) endShare(share modelShare, cause error) {
	for _, h := range share.handles {
		tx.tell(func() { h.lock.cause = cause })
	}
	tx.dropShare(share, cause)
}

// endGrant ends the share of one grant.
func (tx *modelTx) endGrant(grant lockd.Sequencer, cause error) {
	for _, share := range tx.m.shares[grant.Key] {
		if share.grant == grant {
			tx.endShare(share, cause)
		}
	}
}

// endShares ends all shares of the lock, or only those of a session.
func (tx *modelTx) endShares(key string, id lockd.SessionID, cause error) (n int) {
	for _, share := range tx.m.shares[key] {
		if id.IsZero() || share.grant.Session == id {
			tx.endShare(share, cause)
			n++
		}
	}
	return n
}

// releaseShare is Lock.Unlock of one of the handles of a share. R9 is at its end.
func (tx *modelTx) releaseShare(l *modelLock, share modelShare) {
	var handle modelHandle
	var others []modelHandle
	for _, h := range share.handles {
		if h.lock == l {
			handle = h
		} else {
			others = append(others, h)
		}
	}
	key := l.grant.Key
	tx.tell(func() { l.cause, l.released = lockd.ErrUnlocked, true })
	switch {
	case len(others) > 0:
		tx.m.replace(share, others)
		return
	case l.givenUp && handle.had:
		tx.m.replace(share, nil)
		tx.freed = append(tx.freed, key)
		return
	}
	last := len(tx.m.shares[key]) == 1
	tx.dropShare(share, lockd.ErrUnlocked)
	if e := tx.m.keys[key]; last && handle.policy == lockd.RemoveAfter &&
		e.ModifyIndex == e.Fence && tx.m.joined[key] != e.Fence {
		tx.count("key gone with its last sharer")
		tx.remove(key, lockd.ErrUnlocked)
	}
}

// downgrade is R4.
func (tx *modelTx) downgrade(l *modelLock) error {
	key := l.grant.Key
	if _, ok := tx.m.shareOf(l); ok {
		return nil
	}
	if tx.m.handles[key] != l {
		return lockd.ErrNotHeld
	}
	e, policy := tx.m.keys[key], l.policy
	if e.ModifyIndex != e.Fence {
		policy = lockd.LeaveKey
	}
	tx.ended(e, lockd.ErrUnlocked)
	delete(tx.m.handles, key)
	e.Session, e.Fence = lockd.SessionID{}, tx.index
	tx.write(e)
	tx.m.granted[tx.index] = tx.m.now
	share := tx.addShare(key, l.session)
	tx.handle(share, modelHandle{lock: l, policy: policy})
	tx.tell(func() { l.grant = share.grant })
	tx.freed = append(tx.freed, key)
	tx.count("downgrade")
	return nil
}

// shareEvents returns the events of the shares that the transaction granted or ended.
func (tx *modelTx) shareEvents() (events []lockd.Event) {
	has := func(shares []modelShare, share modelShare) bool {
		return slices.ContainsFunc(shares, func(o modelShare) bool {
			return o.grant == share.grant
		})
	}
	for key, shares := range tx.before.shares {
		for _, share := range shares {
			if has(tx.m.shares[key], share) {
				continue
			}
			end := lockd.Event{
				Index: tx.index, Kind: lockd.ShareEnded, Key: key, Share: share.grant,
				Cause: tx.shareEnds[share.grant],
			}
			end.Ended.ID = share.grant.Session
			events = append(events, end)
		}
	}
	for key, shares := range tx.m.shares {
		for _, share := range shares {
			if !has(tx.before.shares[key], share) {
				granted := lockd.Event{
					Index: tx.index, Kind: lockd.ShareGranted, Key: key, Share: share.grant,
				}
				tx.grants(&granted, share.grant)
				events = append(events, granted)
			}
		}
	}
	return events
}

// sortedKeys are the keys of the map, in order. It is called often, and slices.Sorted allocates
// more.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
