package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

var soakFor = flag.Duration("soak", 4*time.Second,
	"how long the soak lasts; from a minute on it has ten times as many of all")

// soak is a database on a file and the real clock, and what many callers have done to it.
type soak struct {
	t        *testing.T
	db       *lockd.DB
	path     string
	stop     context.Context // when the callers are to end
	counters []atomic.Int64  // acknowledged writes under each lock
	locks    []soakLocks     // holders of each lock
	holders  []soakSlots     // of each semaphore

	armed    atomic.Bool // commits may fail
	failed   atomic.Int64
	sessions atomic.Int64
	lapsed   atomic.Int64
	grants   atomic.Int64
	shares   atomic.Int64
	lowered  atomic.Int64 // locks that were downgraded
	died     atomic.Int64 // holders of a lock, with it
	gaveUp   atomic.Int64
	slots    atomic.Int64
	all      atomic.Int64 // LockAll that were granted
	events   atomic.Int64
	behind   atomic.Int64
	backups  atomic.Int64
}

// soakLocks are the grants of one lock that were returned to their holders.
type soakLocks struct {
	mu   sync.Mutex
	list []soakHeld
}

type soakHeld struct {
	*lockd.Lock
	mode lockd.LockMode
}

// soakSlots are the slots of one semaphore that were returned to their holders.
type soakSlots struct {
	mu   sync.Mutex
	list []*lockd.Slot
}

const (
	soakKeys  = 200
	soakSems  = 5
	soakLimit = 3
)

// Ensure that under a load of everything at once, on the real clock and with commits that fail, no
// write under a lock is lost, no session holds a lock beside its exclusive holder, nothing is
// written under a shared one, no semaphore is exceeded, no watch has a gap, nothing grows without
// bound, and in the end the file has what was acknowledged.
func TestSoak(t *testing.T) {
	scale := 1
	if *soakFor >= time.Minute {
		scale = 10
	}
	stop, cancel := context.WithTimeout(t.Context(), *soakFor)
	defer cancel()
	s := &soak{
		t: t, path: filepath.Join(t.TempDir(), "lockd.db"), stop: stop,
		counters: make([]atomic.Int64, soakKeys), locks: make([]soakLocks, soakKeys),
		holders: make([]soakSlots, soakSems),
	}
	s.open()
	s.armed.Store(true)
	var callers sync.WaitGroup
	crowd := func(n int, do func(chance *rand.Rand)) {
		for i := range n * scale {
			callers.Go(func() {
				chance := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				for s.stop.Err() == nil {
					do(chance)
				}
			})
		}
	}
	crowd(20, s.renewSome) // of 50 sessions each
	crowd(100, s.holdLock)
	crowd(100, s.follow)
	crowd(20, s.holdSlot)
	crowd(5, s.holdSeveral)
	callers.Go(s.backUp)
	peak := s.measure()
	callers.Wait()
	s.armed.Store(false)
	s.check()
	t.Logf("%v: %d sessions, %d lapsed; %d grants, %d of them shared, %d downgraded, %d holders "+
		"died, %d gave up; %d slots, %d of LockAll; %d events, %d watches fell behind; "+
		"%d backups, %d commits failed; %s", *soakFor, s.sessions.Load(), s.lapsed.Load(),
		s.grants.Load(), s.shares.Load(), s.lowered.Load(), s.died.Load(), s.gaveUp.Load(),
		s.slots.Load(), s.all.Load(), s.events.Load(), s.behind.Load(), s.backups.Load(),
		s.failed.Load(), peak)
	for what, n := range map[string]*atomic.Int64{
		"sessions": &s.sessions, "lapsed": &s.lapsed, "grants": &s.grants, "gave up": &s.gaveUp,
		"shares": &s.shares, "downgrades": &s.lowered, "holders died": &s.died,
		"slots": &s.slots, "LockAll": &s.all, "events": &s.events, "backups": &s.backups,
		"commits failed": &s.failed,
	} {
		if n.Load() == 0 {
			t.Errorf("never happened: %s", what)
		}
	}
}

func (s *soak) open() {
	var commits atomic.Int64
	clock := probe(nil, store.Hooks{BeforeCommit: func() error {
		// The first comes early, so that a slow machine has one too.
		if commits.Add(1)%211 == 50 && s.armed.Load() {
			s.failed.Add(1)
			return errors.New("the disk is full")
		}
		return nil
	}})
	db, err := lockd.Open(s.path, &lockd.Options{Clock: clock})
	if err != nil {
		s.t.Fatal(err)
	}
	s.db = db
}

// expected reports whether the error is one that a load like this brings about.
func (s *soak) expected(err error) bool {
	for _, ok := range []error{
		lockd.ErrCommit, lockd.ErrNoSession, lockd.ErrNotHeld, context.DeadlineExceeded,
		context.Canceled,
	} {
		if errors.Is(err, ok) {
			return true
		}
	}
	return false
}

// must reports whether the call has succeeded, and fails the test if the error is not expected.
func (s *soak) must(what string, err error) bool {
	if err != nil && !s.expected(err) {
		s.t.Errorf("%s: %v", what, err)
	}
	return err == nil
}

func (s *soak) session(ttl time.Duration) *lockd.Session {
	session, err := s.db.NewSession(&lockd.SessionOptions{
		TTL: ttl, LockDelay: 5 * time.Millisecond,
	})
	if !s.must("session", err) {
		return nil
	}
	s.sessions.Add(1)
	return session
}

// renewSome keeps 50 sessions alive for a while, and lets some of them lapse.
func (s *soak) renewSome(chance *rand.Rand) {
	const ttl = 2 * time.Second
	var list []*lockd.Session
	for range 50 {
		if session := s.session(ttl); session != nil {
			list = append(list, session)
		}
	}
	began := time.Now()
	for s.stop.Err() == nil && time.Since(began) < 3*ttl {
		for i, session := range list {
			if i%10 == 0 {
				continue // its owner hangs
			}
			// This machine may be too slow: then it lapses, and the commit of its end may fail.
			s.must("renew", session.Renew())
		}
		s.sleep(ttl/4 + time.Duration(chance.Int64N(int64(ttl/8))))
	}
	for _, session := range list {
		if err := session.Close(); errors.Is(err, lockd.ErrExpired) {
			s.lapsed.Add(1)
		} else {
			s.must("close", err)
		}
	}
}

func (s *soak) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.stop.Done():
	}
}

// holdLock waits for a lock in either mode, counts or reads under it, and unlocks or lets its
// session lapse.
func (s *soak) holdLock(chance *rand.Rand) {
	session := s.session(300 * time.Millisecond)
	if session == nil {
		return
	}
	for range 10 {
		n, mode := chance.IntN(soakKeys), lockd.LockMode(chance.IntN(2))
		key := fmt.Sprintf("lock/%03d", n)
		limit := time.Duration(1+chance.IntN(200)) * time.Millisecond
		ctx, cancel := context.WithTimeout(s.stop, limit)
		lock, err := session.Lock(ctx, key, &lockd.LockOptions{Mode: mode})
		cancel()
		if !s.must("lock", err) {
			s.gaveUp.Add(1)
			if errors.Is(err, lockd.ErrNoSession) {
				s.lapsed.Add(1)
				return
			}
			continue
		}
		s.granted(n, soakHeld{lock, mode})
		if mode == lockd.Exclusive {
			s.count(n, lock)
		}
		if mode == lockd.Shared || chance.IntN(10) == 0 && s.downgrade(n, lock) {
			s.readOnly(lock, chance)
		}
		if chance.IntN(30) == 0 {
			s.died.Add(1)
			return // its TTL frees the lock
		}
		s.must("unlock", lock.Unlock())
		s.must("renew", session.Renew())
	}
	s.must("close", session.Close())
}

// granted notes a grant. All other holders must know of their loss, unless both are shared.
func (s *soak) granted(n int, own soakHeld) {
	s.grants.Add(1)
	if own.mode == lockd.Shared {
		s.shares.Add(1)
	}
	h := &s.locks[n]
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []soakHeld{own}
	for _, other := range h.list {
		if other.Err() != nil {
			continue
		}
		list = append(list, other)
		alone := own.mode == lockd.Exclusive || other.mode == lockd.Exclusive
		if alone && own.Err() == nil {
			s.t.Errorf("%s is held by %v and %v", own.Key(), own.Sequencer(), other.Sequencer())
		}
	}
	h.list = list
}

// downgrade makes a lock a shared one. Others may be granted it before the call returns.
func (s *soak) downgrade(n int, lock *lockd.Lock) bool {
	h := &s.locks[n]
	h.mu.Lock()
	for i := range h.list {
		if h.list[i].Lock == lock {
			h.list[i].mode = lockd.Shared
		}
	}
	h.mu.Unlock()
	if !s.must("downgrade", lock.Downgrade()) {
		return false
	}
	s.lowered.Add(1)
	return true
}

// readOnly reads under a shared lock: nobody writes to the key meanwhile.
func (s *soak) readOnly(lock *lockd.Lock, chance *rand.Rand) {
	before, _ := s.db.Get(lock.Key())
	s.sleep(time.Duration(chance.IntN(5)) * time.Millisecond)
	after, _ := s.db.Get(lock.Key())
	if lock.Err() == nil && !bytes.Equal(before.Value, after.Value) {
		s.t.Errorf("%s was %s and is %s, while it is shared by %v", lock.Key(), before.Value,
			after.Value, lock.Sequencer())
	}
}

// count adds one to the number under the lock.
func (s *soak) count(n int, lock *lockd.Lock) {
	e, _ := s.db.Get(lock.Key())
	number, _ := strconv.Atoi(string(e.Value))
	value := strconv.AppendInt(nil, int64(number+1), 10)
	_, err := s.db.If(lock.Sequencer()).Put(lock.Key(), value, nil)
	if s.must("put", err) {
		s.counters[n].Add(1)
	}
}

// holdSlot waits for a slot, and releases it or dies with it.
func (s *soak) holdSlot(chance *rand.Rand) {
	session := s.session(300 * time.Millisecond)
	if session == nil {
		return
	}
	n := chance.IntN(soakSems)
	ctx, cancel := context.WithTimeout(s.stop, time.Second)
	defer cancel()
	slot, err := session.Acquire(ctx, fmt.Sprintf("sem/%d", n), soakLimit)
	if s.must("acquire", err) {
		s.slots.Add(1)
		s.holders[n].add(s.t, slot)
		s.sleep(time.Duration(chance.IntN(5)) * time.Millisecond)
		if chance.IntN(10) == 0 {
			return
		}
		s.must("release", slot.Release())
	}
	s.must("close", session.Close())
}

// add notes a slot. No more than the limit may be held by callers that know of no loss.
func (h *soakSlots) add(t *testing.T, slot *lockd.Slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []*lockd.Slot{slot}
	for _, other := range h.list {
		if other.Err() == nil {
			list = append(list, other)
		}
	}
	if h.list = list; len(list) > soakLimit && slot.Err() == nil {
		t.Errorf("%d slots are held, and the limit is %d", len(list), soakLimit)
	}
}

// holdSeveral takes three locks at once.
func (s *soak) holdSeveral(chance *rand.Rand) {
	session := s.session(500 * time.Millisecond)
	if session == nil {
		return
	}
	var keys []string
	from := chance.IntN(soakKeys - 2)
	for i := range 3 {
		keys = append(keys, fmt.Sprintf("lock/%03d", from+i))
	}
	ctx, cancel := context.WithTimeout(s.stop, 400*time.Millisecond)
	defer cancel()
	locks, err := session.LockAll(ctx, keys, nil)
	if s.must("lock all", err) {
		s.all.Add(1)
		for i, lock := range locks {
			s.granted(from+i, soakHeld{lock, lockd.Exclusive})
			s.count(from+i, lock)
		}
		if chance.IntN(10) == 0 {
			s.must("end", s.db.EndSession(session.ID()))
			return
		}
	}
	s.must("close", session.Close())
}

// follow watches some keys for a while: each event begins where the one before it ended.
func (s *soak) follow(chance *rand.Rand) {
	prefix := fmt.Sprintf("lock/%02d", chance.IntN(soakKeys/10))
	ctx, cancel := context.WithTimeout(s.stop, time.Duration(1+chance.IntN(20))*time.Second)
	defer cancel()
	last, shares := map[string]uint64{}, map[lockd.Sequencer]bool{}
	state := s.db.Snapshot()
	for key, e := range state.Prefix(prefix) {
		last[key] = e.ModifyIndex
		for holder := range state.Holders(key) {
			shares[holder.Grant] = true // an exclusive one is in no event of shares
		}
	}
	for e, err := range s.db.Watch(ctx, lockd.PrefixScope(prefix), state.Index()) {
		switch {
		case errors.Is(err, lockd.ErrCompacted):
			s.behind.Add(1)
			return
		case err != nil:
			s.must("watch", err)
			return
		}
		s.events.Add(1)
		if began := e.Kind == lockd.ShareGranted; began || e.Kind == lockd.ShareEnded {
			if shares[e.Share] == began {
				s.t.Errorf("watch of %s: %v, and it was so before", e.Key, e)
			}
			if shares[e.Share] = began; !began {
				delete(shares, e.Share)
			}
			continue
		}
		if last[e.Key] != e.Previous.ModifyIndex {
			s.t.Errorf("watch of %s: index %d follows on %d, and %d was seen", e.Key, e.Index,
				e.Previous.ModifyIndex, last[e.Key])
			return
		}
		last[e.Key] = e.Entry.ModifyIndex
	}
}

// backUp writes backups, and restores each into a new file.
func (s *soak) backUp() {
	for n := 0; s.stop.Err() == nil; n++ {
		var backup bytes.Buffer
		if err := s.db.Backup(&backup); err != nil {
			s.t.Errorf("backup: %v", err)
			return
		}
		path := filepath.Join(filepath.Dir(s.path), fmt.Sprintf("restored-%d.db", n))
		if err := lockd.Restore(path, &backup, 0, nil); err != nil {
			s.t.Errorf("restore: %v", err)
		}
		if err := errors.Join(lockd.Verify(path, nil), os.Remove(path)); err != nil {
			s.t.Errorf("verify what was restored: %v", err)
		}
		s.backups.Add(1)
		s.sleep(*soakFor / 20)
	}
}

// usage is what the process and the file take.
type usage struct {
	heap       uint64
	goroutines int
	file       int64
}

func (u usage) String() string {
	return fmt.Sprintf("heap %d MiB, %d goroutines, file %d MiB", u.heap>>20, u.goroutines,
		u.file>>20)
}

func (u usage) max(o usage) usage {
	return usage{max(u.heap, o.heap), max(u.goroutines, o.goroutines), max(u.file, o.file)}
}

// measure looks at what is used until the callers end. In the second half it may be little more
// than it was at any time in the first.
func (s *soak) measure() usage {
	var halves [2]usage
	began := time.Now()
	for s.stop.Err() == nil {
		info, err := os.Stat(s.path)
		if err != nil {
			s.t.Errorf("file: %v", err)
			break
		}
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		half := 0
		if time.Since(began) > *soakFor/2 {
			half = 1
		}
		now := usage{memory.HeapAlloc, runtime.NumGoroutine(), info.Size()}
		halves[half] = halves[half].max(now)
		s.sleep(*soakFor / 40)
	}
	first, second := halves[0], halves[1]
	if second.heap > first.heap*3/2+32<<20 || second.goroutines > first.goroutines*3/2+100 ||
		second.file > first.file*3/2+16<<20 {
		s.t.Errorf("it grows: first %v, then %v", first, second)
	}
	return first.max(second)
}

// check looks at the whole state when all callers have ended.
func (s *soak) check() {
	for info := range s.db.Snapshot().Sessions() {
		if err := s.db.EndSession(info.ID); err != nil && !errors.Is(err, lockd.ErrNoSession) {
			s.t.Errorf("end: %v", err)
		}
	}
	now := s.db.Snapshot()
	for info := range now.Sessions() {
		s.t.Errorf("session %s is left", info.ID)
	}
	for key := range now.Prefix("") {
		for holder := range now.Holders(key) {
			s.t.Errorf("%s is held by %v, whose session has ended", key, holder.Grant)
		}
	}
	if stats := s.db.Stats(); stats.Waiters != 0 || stats.Watchers != 0 || stats.Locks != 0 ||
		stats.Shares != 0 {
		s.t.Errorf("somebody is left: %+v", stats)
	}
	for i := range s.counters {
		e, _ := now.Get(fmt.Sprintf("lock/%03d", i))
		number, _ := strconv.ParseInt(string(e.Value), 10, 64)
		if want := s.counters[i].Load(); number != want {
			s.t.Errorf("lock %d: %d writes were told of, and it has %d", i, want, number)
		}
	}
	if err := s.db.Close(); err != nil {
		s.t.Error(err)
	}
	if err := lockd.Verify(s.path, nil); err != nil {
		s.t.Error(err)
	}
	s.open()
	defer func() {
		if err := s.db.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	again := s.db.Snapshot()
	n := 0
	for key, e := range again.Prefix("") {
		n++
		if was, _ := now.Get(key); !sameEntry(was, e) {
			s.t.Errorf("%s: the file has %+v, and it was %+v", key, e, was)
		}
	}
	for range now.Prefix("") {
		n--
	}
	if n != 0 {
		s.t.Errorf("the file has %d keys more", n)
	}
	if err := s.db.Backup(io.Discard); err != nil {
		s.t.Error(err)
	}
}
