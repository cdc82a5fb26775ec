package lockd_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// This is the model: the rules once more, in maps and slices, without a thought for speed. A
// transaction or a commit that fails is undone by putting a copy back. model_time_test.go has the
// time, and what commits do to it; model_test.go compares it with a database.

// modelState is what a failed transaction or commit takes back.
type modelState struct {
	keys    map[string]lockd.Entry
	handles map[string]*modelLock // of the keys that are held by one
	shares  map[string][]modelShare
	removes map[string]bool       // a holder that shares the key created it, and is to remove it
	joined  map[string]uint64     // the last fence in whose transaction another share wrote the key
	delays  map[string]modelDelay // gone only when a write or the timer saw it over
	lost    map[string]bool       // which of the delays stand for a slot
	live    []*modelSession       // the oldest first
	queue   []*modelWaiter        // all waiters, for whatever, in the order in which they began
	catalog modelCatalog
}

func (s *modelState) clone() modelState {
	return modelState{
		keys: maps.Clone(s.keys), handles: maps.Clone(s.handles), shares: maps.Clone(s.shares),
		removes: maps.Clone(s.removes), joined: maps.Clone(s.joined),
		delays: maps.Clone(s.delays), lost: maps.Clone(s.lost),
		live: slices.Clone(s.live), queue: slices.Clone(s.queue),
		catalog: s.catalog,
	}
}

type modelSession struct {
	info     lockd.SessionInfo
	deadline time.Time // if it has a TTL
	cause    error     // why it ended, once that was told
	kept     bool      // a keeper renews it
}

type modelLock struct {
	session  *modelSession
	grant    lockd.Sequencer
	policy   lockd.KeyPolicy
	slot     bool  // it is that of a contender key
	cause    error // why it ended, once that was told
	released bool
	givenUp  bool // no caller has it
	had      bool // its session had the lock before, without a handle
	took     bool // it took over a share

	until time.Time // when it is lost by its MaxHold; zero: never
}

// limit is R11.
func (l *modelLock) limit(opts *lockd.LockOptions, now time.Time) {
	if opts != nil && opts.MaxHold > 0 {
		l.until = now.Add(opts.MaxHold)
	}
}

// modelWaiter is a call of Lock, LockAll or Acquire.
type modelWaiter struct {
	session *modelSession
	keys    []string
	opts    *lockd.LockOptions
	slot    bool
	limit   int
	carried []*modelLock // by its context
	began   time.Time

	deadlock error // why it is refused (R14), which the model does not find out itself

	told  bool
	locks []*modelLock
	err   error
}

// modelTx is a transaction: all that it writes carries one index.
type modelTx struct {
	m         *model
	index     uint64
	wrote     bool
	before    modelState
	locked    map[string]uint64 // the last lock index of what was locked and deleted
	freed     []string          // keys whose queue is to be looked at
	promises  bool              // a call may pass the first waiter of a free lock now
	passing   bool              // and such a call is looked for
	serving   *modelWaiter      // the waiter that is being served
	causes    map[string]oneOf  // why the grant before it ended
	ends      map[*modelSession]error
	shareEnds map[lockd.Sequencer]error
	began     *modelSession
	waited    map[lockd.Sequencer]time.Duration // for what was granted
	effects   []func()                          // what is told when it is durable
}

// transact runs fn, and keeps what it did, or none of it.
func (m *model) transact(fn func(tx *modelTx) error) error {
	tx := &modelTx{
		m: m, index: m.index + 1, before: m.clone(),
		causes: map[string]oneOf{}, ends: map[*modelSession]error{}, locked: map[string]uint64{},
		shareEnds: map[lockd.Sequencer]error{}, waited: map[lockd.Sequencer]time.Duration{},
	}
	if err := fn(tx); err != nil {
		m.modelState = tx.before
		return err
	}
	for told := -1; told != len(tx.effects) || tx.promises; {
		told = len(tx.effects)
		tx.lookAtSemaphores()
		tx.serveFreed()
		if told == len(tx.effects) && tx.promises { // else the calls whose turn it is come first
			tx.promises = tx.servePasser()
		}
	}
	if tx.wrote {
		m.index++
		m.open.wrote, m.open.index = true, m.index
		m.open.events = append(m.open.events, tx.events()...)
	}
	m.open.effects = append(m.open.effects, tx.effects...)
	if !m.open.wrote {
		m.settleOpen()
	}
	return nil
}

// serveFreed looks at the queues of the keys that were freed, in the order of the keys: a served
// session may pass others, or write to the same key.
func (tx *modelTx) serveFreed() {
	slices.Sort(tx.freed)
	for len(tx.freed) > 0 {
		key := tx.freed[0]
		tx.freed = tx.freed[1:]
		tx.serve(key)
	}
}

// oneOf is a cause that may be any of several: if one transaction releases a lock and then deletes
// its key, both are why the lock is gone.
type oneOf []error

func (o oneOf) Error() string { return fmt.Sprintf("one of %q", []error(o)) }

// Unwrap makes errors.Is find each.
func (o oneOf) Unwrap() []error { return o }

func (tx *modelTx) tell(effect func()) { tx.effects = append(tx.effects, effect) }

// put is K1 to K3.
func (tx *modelTx) put(key string, value []byte, flags uint64) lockd.Entry {
	e, ok := tx.m.keys[key]
	if ok && bytes.Equal(e.Value, value) && e.Flags == flags {
		return e
	}
	if !ok {
		e = lockd.Entry{Key: key, CreateIndex: tx.index}
	}
	e.Value, e.Flags = value, flags
	return tx.write(e)
}

func (tx *modelTx) write(e lockd.Entry) lockd.Entry {
	e.ModifyIndex = tx.index
	tx.m.keys[e.Key] = e
	tx.wrote = true
	return e
}

// putIf is a put that depends on a sequencer.
func (tx *modelTx) putIf(
	key string, value []byte, flags uint64, proof lockd.Sequencer,
) (lockd.Entry, error) {
	if !tx.m.proves(proof) {
		return lockd.Entry{}, lockd.ErrNotHeld
	}
	return tx.put(key, value, flags), nil
}

// cas is K4 to K8.
func (tx *modelTx) cas(key string, index uint64, value []byte) (lockd.Entry, error) {
	if tx.m.keys[key].ModifyIndex != index {
		return lockd.Entry{}, lockd.ErrConflict
	}
	return tx.put(key, value, 0), nil
}

// remove is K26 and K37. A nil cause is the deletion itself.
func (tx *modelTx) remove(key string, cause error) bool {
	e, ok := tx.m.keys[key]
	if !ok {
		return false
	}
	delete(tx.m.keys, key)
	if e.Fence == tx.index {
		tx.locked[key] = e.LockIndex
	}
	tx.wrote = true
	if cause == nil {
		cause = lockd.ErrKeyDeleted
	}
	tx.endShares(key, lockd.SessionID{}, cause)
	tx.unhold(e, cause)
	return true
}

// compareAndDelete is K28 to K30.
func (tx *modelTx) compareAndDelete(key string, index uint64) (bool, error) {
	e, ok := tx.m.keys[key]
	if ok && e.ModifyIndex != index {
		return false, lockd.ErrConflict
	}
	return tx.remove(key, nil), nil
}

// removePrefix is K31, K32 and K40.
func (tx *modelTx) removePrefix(prefix string) int {
	n := 0
	for _, key := range sortedKeys(tx.m.keys) {
		if strings.HasPrefix(key, prefix) && tx.remove(key, nil) {
			n++
		}
	}
	return n
}

// release takes the lock off a key.
func (tx *modelTx) release(key string, cause error) lockd.Entry {
	e := tx.m.keys[key]
	freed := e
	freed.Session = lockd.SessionID{}
	freed = tx.write(freed)
	tx.unhold(e, cause)
	return freed
}

// unhold is what follows when the lock of e, as it was, is over.
func (tx *modelTx) unhold(e lockd.Entry, cause error) {
	tx.ended(e, cause)
	if lock := tx.m.handles[e.Key]; lock != nil {
		delete(tx.m.handles, e.Key)
		tx.tell(func() { lock.cause = cause })
	}
	tx.freed = append(tx.freed, e.Key)
}

// ended keeps why the lock of e, as it was, is over.
func (tx *modelTx) ended(e lockd.Entry, cause error) {
	if e.Fence == tx.before.keys[e.Key].Fence && tx.causes[e.Key] == nil {
		tx.causes[e.Key] = oneOf{cause}
	}
}

// lock is K13 to K20, in the order of K35.
func (tx *modelTx) lock(
	key string, id lockd.SessionID, opts *lockd.LockOptions,
) (lockd.Entry, error) {
	mode := modeOf(opts)
	if err := tx.m.delayed(key, mode); err != nil {
		return lockd.Entry{}, err
	}
	if id.IsZero() {
		return lockd.Entry{}, lockd.ErrInvalid
	}
	s := tx.m.session(id)
	if s == nil {
		return lockd.Entry{}, lockd.ErrNoSession
	}
	if e := tx.m.keys[key]; tx.m.holdsIn(key, id, mode) {
		if opts != nil && opts.Value != nil {
			e = tx.put(key, opts.Value, opts.Flags)
		}
		return e, nil
	}
	if err := tx.m.obstructed(id, key, mode); err != nil {
		return lockd.Entry{}, err
	}
	if mode == lockd.Shared {
		tx.grantShare(key, s, opts)
		tx.locked[key] = tx.m.keys[key].LockIndex // even if the key is deleted (K41)
		return tx.m.keys[key], nil
	}
	return tx.grant(key, s, opts), nil
}

func (tx *modelTx) grant(key string, s *modelSession, opts *lockd.LockOptions) lockd.Entry {
	tx.grantedTo(s)
	e, ok := tx.m.keys[key]
	if !ok {
		e = lockd.Entry{Key: key, CreateIndex: tx.index}
	}
	e.Session, e.Fence = s.info.ID, tx.index
	tx.m.granted[tx.index] = tx.m.now
	e.LockIndex = 1 + max(e.LockIndex, tx.locked[key])
	if opts != nil && opts.Value != nil {
		e.Value, e.Flags = opts.Value, opts.Flags
	}
	return tx.write(e)
}

// unlock is K21 to K25, and R7.
func (tx *modelTx) unlock(key string, id lockd.SessionID) (lockd.Entry, error) {
	if id.IsZero() {
		return lockd.Entry{}, lockd.ErrInvalid
	}
	if tx.m.keys[key].Session == id {
		return tx.release(key, lockd.ErrUnlocked), nil
	}
	if tx.endShares(key, id, lockd.ErrUnlocked) == 0 {
		return lockd.Entry{}, lockd.ErrNotHeld
	}
	return tx.m.keys[key], nil
}

// delayed is K18 and S33.
func (m *model) delayed(key string, mode lockd.LockMode) error {
	l := m.modes(key)
	if l.holders = nil; l.takeable(mode) {
		return nil
	}
	until := m.delays[key].until
	return &lockd.LockedError{
		Key: key, Mode: mode, Obstacle: lockd.ObstacleDelay, Waiters: m.waiters(key),
		Until: until, Remaining: until.Sub(m.now),
	}
}

// obstructed is K17, and the queue.
func (m *model) obstructed(asks lockd.SessionID, key string, mode lockd.LockMode) error {
	refusal := &lockd.LockedError{Key: key, Mode: mode, Waiters: m.waiters(key)}
	l := m.modes(key)
	l.delayed = nil
	switch {
	case !l.takeable(mode):
		refusal.Obstacle = lockd.ObstacleHolder
		holders := m.holders(key)
		first := holders[0]
		refusal.Holder, refusal.HolderName = first.Session.ID, first.Session.Name
		refusal.Fence = first.Grant.Fence
		if since := first.Since; !since.IsZero() { // else it was before the file was opened
			refusal.Since, refusal.Held = since, m.now.Sub(since)
		}
		for _, holder := range holders {
			refusal.Own = refusal.Own || holder.Session.ID == asks
		}
		if first.Grant.Mode == lockd.Shared {
			refusal.Holders = holders
		}
	case refusal.Waiters > 0 && !m.passes(&modelWaiter{session: m.session(asks)}, key):
		refusal.Obstacle = lockd.ObstacleQueue
	default:
		return nil
	}
	return refusal
}

func (m *model) waiters(key string) int {
	n := 0
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) {
			n++
		}
	}
	return n
}

// first is the oldest waiter of the key.
func (m *model) first(key string) *modelWaiter {
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) {
			return w
		}
	}
	return nil
}

// turn is the oldest waiter of the key that waits for no delay of its own.
func (m *model) turn(key string) *modelWaiter {
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) &&
			(!w.slot || m.delayed(contenderOf(key, w.session), lockd.Exclusive) == nil) {
			return w
		}
	}
	return nil
}

func (m *model) session(id lockd.SessionID) *modelSession {
	for _, s := range m.live {
		if s.info.ID == id {
			return s
		}
	}
	return nil
}

// adoptable reports whether the session holds the lock already, in the mode and without a handle.
func (m *model) adoptable(key string, s *modelSession, mode lockd.LockMode) bool {
	if mode == lockd.Shared {
		_, ok := m.loose(key, s)
		return ok
	}
	return m.keys[key].Session == s.info.ID && m.handles[key] == nil
}

// awaits reports whether a call with the session waits for the lock in the mode.
func (m *model) awaits(key string, s *modelSession, mode lockd.LockMode) bool {
	return m.firstFor(key, s, mode) != nil
}

// firstFor is the oldest call with the session that waits for the lock in the mode.
func (m *model) firstFor(key string, s *modelSession, mode lockd.LockMode) *modelWaiter {
	for _, w := range m.queue {
		if w.session == s && modeOf(w.opts) == mode && slices.Contains(w.keys, key) {
			return w
		}
	}
	return nil
}

// hold makes the handle of a lock that the session may take, or has without one.
func (tx *modelTx) hold(key string, s *modelSession, opts *lockd.LockOptions) *modelLock {
	if modeOf(opts) == lockd.Shared {
		return tx.holdShare(key, s, opts)
	}
	e, exists := tx.m.keys[key]
	policy := lockd.LeaveKey
	if opts != nil && !exists { // else this lock does not create it
		policy = opts.Key
	}
	had := e.Session == s.info.ID
	switch {
	case !had:
		e = tx.grant(key, s, opts)
	case opts != nil && opts.Value != nil:
		e = tx.put(key, opts.Value, opts.Flags)
	}
	lock := &modelLock{session: s, grant: e.Sequencer(), policy: policy, had: had}
	lock.limit(opts, tx.m.now)
	tx.m.handles[key] = lock
	return lock
}

func (tx *modelTx) tryLock(
	s *modelSession, key string, opts *lockd.LockOptions,
) (*modelLock, error) {
	if tx.m.session(s.info.ID) == nil {
		return nil, ended(s)
	}
	mode := modeOf(opts)
	if err := tx.m.delayed(key, mode); err != nil {
		return nil, err
	}
	if !tx.m.adoptable(key, s, mode) || tx.m.awaits(key, s, mode) {
		if err := tx.m.obstructed(s.info.ID, key, mode); err != nil {
			return nil, err
		}
	}
	return tx.hold(key, s, opts), nil
}

// ended is the error of a call on a session that has ended.
func ended(s *modelSession) error { return errors.Join(lockd.ErrNoSession, s.cause) }

// unlockHandle is Lock.Unlock.
func (tx *modelTx) unlockHandle(l *modelLock) {
	key := l.grant.Key
	if share, ok := tx.m.shareOf(l); ok {
		tx.releaseShare(l, share)
		return
	}
	if tx.m.handles[key] != l {
		return
	}
	e := tx.m.keys[key]
	untouched := e.CreateIndex == l.grant.Fence && e.ModifyIndex == l.grant.Fence
	switch {
	case l.givenUp && l.had:
		delete(tx.m.handles, key)
		tx.freed = append(tx.freed, key)
	case l.slot:
		tx.leaveSlot(e)
	case l.policy == lockd.RemoveAfter && untouched:
		tx.remove(key, lockd.ErrUnlocked)
	default:
		tx.release(key, lockd.ErrUnlocked)
	}
	tx.tell(func() { l.released = true })
}

func (tx *modelTx) forceUnlock(key string, fence uint64) error {
	found := false
	for _, holder := range tx.m.holders(key) {
		if holder.Grant.Fence != fence {
			continue
		}
		found = true
		if holder.Grant.Mode == lockd.Exclusive {
			tx.release(key, lockd.ErrForced)
		} else {
			tx.endGrant(holder.Grant, lockd.ErrForced)
		}
		tx.delay(key, holder.Session.LockDelay, holder.Grant.Mode)
	}
	if !found {
		return lockd.ErrNotHeld
	}
	return nil
}

// outstay is R11: the grant of the handle is over.
func (tx *modelTx) outstay(l *modelLock) {
	key, mode := l.grant.Key, lockd.Exclusive
	if share, ok := tx.m.shareOf(l); ok {
		mode = lockd.Shared
		tx.endShare(share, lockd.ErrHeldTooLong)
	} else {
		tx.release(key, lockd.ErrHeldTooLong)
	}
	tx.delay(key, l.session.info.LockDelay, mode)
	tx.count("held too long, " + mode.String())
}

// delay is S32 and R5: the loss of one sharing holder never cuts short the delay after the loss of
// another.
func (tx *modelTx) delay(key string, length time.Duration, mode lockd.LockMode) {
	until := tx.m.now.Add(length)
	if length <= 0 || mode == lockd.Shared && tx.m.now.Before(tx.m.delays[key].until) &&
		!until.After(tx.m.delays[key].until) {
		return
	}
	tx.count("delay after the loss of " + mode.String())
	tx.m.delays[key] = modelDelay{until, mode}
	tx.m.lost[key] = tx.m.losesSlot(key)
}

// newSession is S16 to S18 and S22.
func (tx *modelTx) newSession(info lockd.SessionInfo) (*modelSession, error) {
	if err := tx.m.catalog.bindable(info); err != nil {
		if err == catalog.ErrCheckCritical {
			tx.m.counts["session refused"]++
		}
		return nil, err
	}
	info.CreateIndex = tx.index
	s := &modelSession{info: info}
	s.renew(tx.m.now)
	tx.m.live = append(tx.m.live, s)
	tx.began, tx.wrote = s, true
	return s, nil
}

func (s *modelSession) renew(now time.Time) { s.deadline = now.Add(s.info.TTL + s.info.Grace) }

// due reports whether the session's time is up.
func (s *modelSession) due(now time.Time) bool {
	return s.info.TTL > 0 && !s.kept && !now.Before(s.deadline)
}

func (tx *modelTx) endByID(id lockd.SessionID) error {
	if id.IsZero() {
		return lockd.ErrInvalid
	}
	s := tx.m.session(id)
	if s == nil {
		return lockd.ErrNoSession
	}
	tx.end(s, lockd.ErrDestroyed)
	return nil
}

// end is S31 to S34.
func (tx *modelTx) end(s *modelSession, cause error) {
	tx.wrote = true
	tx.m.live = slices.DeleteFunc(tx.m.live, func(o *modelSession) bool { return o == s })
	tx.ends[s] = cause
	tx.tell(func() { s.cause = cause })
	var held []string
	for _, key := range sortedKeys(tx.m.keys) {
		if tx.m.keys[key].Session != s.info.ID {
			continue
		}
		held = append(held, key)
		if cause != lockd.ErrClosed {
			tx.delay(key, s.info.LockDelay, lockd.Exclusive)
		}
	}
	shared := sortedKeys(tx.m.shares)
	for _, key := range shared {
		if tx.m.holdsIn(key, s.info.ID, lockd.Shared) && cause != lockd.ErrClosed {
			tx.delay(key, s.info.LockDelay, lockd.Shared)
		}
	}
	for _, key := range held {
		if s.info.Behavior == lockd.DeleteKeys {
			tx.remove(key, cause)
		} else {
			tx.release(key, cause)
		}
	}
	for _, key := range shared {
		others := slices.ContainsFunc(tx.m.shares[key], func(share modelShare) bool {
			return share.grant.Session != s.info.ID
		})
		if tx.m.holdsIn(key, s.info.ID, lockd.Shared) && !others &&
			s.info.Behavior == lockd.DeleteKeys {
			tx.count("key deleted with the last session that shared it")
			tx.remove(key, cause)
		} else {
			tx.endShares(key, s.info.ID, cause)
		}
	}
	for _, w := range slices.Clone(tx.m.queue) {
		if w.session == s {
			tx.dismiss(w, errors.Join(lockd.ErrNoSession, cause))
		}
	}
}
