package histories_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// caller has the fields of all kinds of clients.
type caller struct {
	w      *world
	number int
	chance *rand.Rand
	since  int64 // a stamp from before it looked up the era
	era    *era
	s      *session
}

func newCaller(w *world, number int) caller {
	return caller{
		w: w, number: number, chance: rand.New(rand.NewPCG(w.seed, uint64(number))),
	}
}

func (c *caller) key() string { return c.w.keys[c.chance.IntN(len(c.w.keys))] }

func (c *caller) value() string { return string(rune('p' + c.chance.IntN(4))) }

// record returns a record with the fields that all operations have.
func (c *caller) record(in input, call int64) *record {
	return &record{input: in, call: call, client: c.number, era: c.era}
}

// lost reports whether answers that have come before this call may be missing from the file.
func (c *caller) lost() bool { return c.era.lost.Load() }

// wait waits for the next era if the answer says that the current one is over.
func (c *caller) wait(err error) {
	if errors.Is(err, lockd.ErrClosed) || errors.Is(err, lockd.ErrFailed) || c.lost() {
		<-c.era.over
	}
}

// keep keeps an operation: as it was answered, or with an unknown outcome if the process was killed
// before the answer.
func (c *caller) keep(r *record, outcome outcome) {
	r.back = c.w.stamp()
	r.output.outcome, r.until = outcome, r.back
	if c.lost() {
		if r.kind == get || r.kind == read || outcome == refused {
			return // it leaves nothing that can be seen
		}
		r.output, r.back = output{outcome: unknown}, 0
	}
	c.w.add(r)
}

// library is a client of the library.
type library struct {
	caller
	real  *lockd.Session
	locks []*lockd.Lock
	opts  map[*lockd.Lock]lockd.KeyPolicy
}

func (c *library) run(operations int) {
	for range operations {
		c.since = c.w.stamp()
		if e := c.w.current.Load(); e != c.era {
			c.begin(e)
		}
		c.w.asked.Add(1)
		if c.real == nil || c.real.Err() != nil {
			c.newSession()
			continue
		}
		c.step()
	}
}

// begin goes on in another era: with the same session, if it still lives.
func (c *library) begin(e *era) {
	c.era, c.locks, c.real = e, nil, nil
	c.opts = map[*lockd.Lock]lockd.KeyPolicy{}
	if c.s == nil || !e.alive[c.s.id] {
		return
	}
	id, err := lockd.ParseSessionID(c.s.id)
	if err != nil {
		c.w.violation("session: %v", err)
	}
	if real, err := e.db.Session(id); err == nil {
		c.real = real
	}
}

func (c *library) newSession() {
	opts := &lockd.SessionOptions{
		TTL:       []time.Duration{0, 0, 10, 30}[c.chance.IntN(4)] * time.Millisecond,
		LockDelay: []time.Duration{lockd.NoLockDelay, 1e6, 3e6}[c.chance.IntN(3)],
		Behavior:  lockd.Behavior(c.chance.IntN(4) / 3),
		Lifetime:  lockd.Lifetime(c.chance.IntN(2)),
	}
	call := c.w.stamp()
	real, err := c.era.db.NewSession(opts)
	if err != nil {
		c.failed("new session", err)
		return
	}
	c.real, c.locks = real, nil
	c.s = &session{
		id: real.ID().String(), ttl: opts.TTL, delay: max(opts.LockDelay, 0),
		deletes: opts.Behavior == lockd.DeleteKeys,
		bound:   opts.Lifetime == lockd.BoundToProcess, made: call, era: c.era.number,
	}
	c.w.mu.Lock()
	c.w.sessions = append(c.w.sessions, c.s)
	c.w.mu.Unlock()
}

// step does one operation.
func (c *library) step() {
	switch n := c.chance.IntN(100); {
	case n < 16:
		c.get()
	case n < 26:
		c.put()
	case n < 32:
		c.swap()
	case n < 36:
		c.remove()
	case n < 50:
		c.tryLock()
	case n < 68:
		c.lock()
	case n < 72:
		c.lockAll()
	case n < 90:
		c.unlock()
	case n < 92:
		c.force()
	case n < 94:
		c.end()
	case n < 97:
		c.renew()
	case n < 99:
		time.Sleep(time.Duration(c.chance.IntN(3000)) * time.Microsecond)
	default: // the client hangs, and loses a session with a TTL
		time.Sleep(15 * time.Millisecond)
	}
}

func shown(e lockd.Entry, exists bool) entry {
	if !exists {
		return entry{}
	}
	return entry{
		exists: true, value: string(e.Value), session: e.Session.String(), create: e.CreateIndex,
		mod: e.ModifyIndex, lockIndex: e.LockIndex, fence: e.Fence,
	}
}

func (c *library) get() {
	r := c.record(input{kind: get, key: c.key()}, c.since) // a closed database goes on answering
	r.entry = shown(c.era.db.Get(r.key))
	c.keep(r, done)
}

// wrote keeps a write, unless its commit has failed: then nothing of it may be seen.
func (c *caller) wrote(r *record, err error) {
	switch {
	case err == nil:
		c.keep(r, done)
	case errors.Is(err, lockd.ErrConflict), errors.Is(err, lockd.ErrNotHeld):
		c.keep(r, refused)
	case c.lost():
		c.keep(r, unknown)
	case errors.Is(err, lockd.ErrCommit), errors.Is(err, lockd.ErrClosed),
		errors.Is(err, lockd.ErrNoSession):
	default:
		c.w.violation("%+v: %v", r.input, err)
	}
	c.wait(err)
}

func (c *library) put() {
	r := c.record(input{kind: put, key: c.key(), value: c.value()}, c.w.stamp())
	e, err := c.era.db.Put(r.key, []byte(r.value), nil)
	r.entry = shown(e, err == nil)
	c.wrote(r, err)
}

func (c *library) swap() {
	key := c.key()
	now, _ := c.era.db.Get(key) // not recorded: another index may be as good
	in := input{kind: swap, key: key, value: c.value(), index: now.ModifyIndex}
	r := c.record(in, c.w.stamp())
	e, err := c.era.db.CompareAndSwap(key, in.index, []byte(in.value), nil)
	r.entry = shown(e, err == nil)
	c.wrote(r, err)
}

func (c *library) remove() {
	key := c.key()
	if now, there := c.era.db.Get(key); there && c.chance.IntN(2) == 0 {
		r := c.record(input{kind: removeIf, key: key, index: now.ModifyIndex}, c.w.stamp())
		was, err := c.era.db.CompareAndDelete(key, now.ModifyIndex)
		r.entry.exists = was
		c.wrote(r, err)
		return
	}
	r := c.record(input{kind: remove, key: key}, c.w.stamp())
	was, err := c.era.db.Delete(key)
	r.entry.exists = was
	c.wrote(r, err)
}

// lockOptions returns the options of a call, and sets what it asks for.
func (c *library) lockOptions(in *input) *lockd.LockOptions {
	opts := &lockd.LockOptions{}
	in.session, in.keeps = c.s.id, true
	if c.chance.IntN(4) == 0 {
		in.value, in.keeps = c.value(), false
		opts.Value = []byte(in.value)
	}
	if c.chance.IntN(3) == 0 {
		opts.Key, in.removes = lockd.RemoveAfter, true
	}
	if c.chance.IntN(2) == 0 {
		opts.Mode, in.shared = lockd.Shared, true
	}
	return opts
}

func (c *library) tryLock() {
	in := input{kind: try, key: c.key()}
	opts := c.lockOptions(&in)
	r := c.record(in, c.w.stamp())
	l, err := c.real.TryLock(in.key, opts)
	var locked *lockd.LockedError
	switch {
	case err == nil:
		c.took(r, l, opts.Key)
	case errors.As(err, &locked):
		r.why = map[lockd.Obstacle]obstacle{
			lockd.ObstacleHolder: held, lockd.ObstacleDelay: delayed, lockd.ObstacleQueue: queued,
		}[locked.Obstacle]
		r.entry = entry{session: locked.Holder.String(), fence: locked.Fence}
		c.keep(r, refused)
	default:
		c.wrote(r, err)
	}
}

// took keeps a grant that the call was told of.
func (c *library) took(r *record, l *lockd.Lock, policy lockd.KeyPolicy) {
	q := l.Sequencer()
	c.w.told(c.era, q, l.Done())
	r.own = true
	r.entry = entry{lockIndex: q.LockIndex, fence: q.Fence}
	c.keep(r, done)
	c.locks = append(c.locks, l)
	c.opts[l] = policy
}

// patience returns a context that ends soon, or has ended. A call that waits for longer than the
// history lasts would wait for a lock whose holder waits too.
func (c *library) patience() (context.Context, context.CancelFunc) {
	limits := []time.Duration{1e5, 3e5, 1e6, 2e6, 4e6}
	limit := limits[c.chance.IntN(len(limits))]
	return context.WithTimeout(context.Background(), limit)
}

func (c *library) lock() {
	in := input{kind: grant, key: c.key()}
	opts := c.lockOptions(&in)
	ctx, cancel := c.patience()
	defer cancel()
	r := c.record(in, c.w.stamp())
	l, err := c.real.Lock(ctx, in.key, opts)
	if err == nil {
		c.took(r, l, opts.Key)
		return
	}
	c.gaveUp(err, opts.Key, r)
}

func (c *library) lockAll() {
	in := input{kind: grant}
	opts := c.lockOptions(&in)
	first := c.chance.IntN(len(c.w.keys))
	ctx, cancel := c.patience()
	defer cancel()
	call := c.w.stamp()
	var records []*record
	var keys []string
	for i := range 2 {
		in.key = c.w.keys[(first+i)%len(c.w.keys)]
		keys = append(keys, in.key)
		r := c.record(in, call)
		r.several = true
		records = append(records, r)
	}
	locks, err := c.real.LockAll(ctx, keys, opts)
	if err != nil {
		c.gaveUp(err, opts.Key, records...)
		return
	}
	for i, l := range locks {
		c.took(records[i], l, opts.Key)
	}
}

// gaveUp keeps a call that waited in vain. It may have been granted the lock, and have released it.
func (c *library) gaveUp(err error, policy lockd.KeyPolicy, records ...*record) {
	defer c.wait(err)
	var all []*record
	back := int64(0)
	switch {
	case errors.Is(err, lockd.ErrCommit) && !c.lost():
		return
	case c.lost(), errors.Is(err, lockd.ErrClosed):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, lockd.ErrNoSession):
		back = c.settle()
	default:
		c.w.violation("%+v: %v", records[0].input, err)
	}
	for _, r := range records {
		r.output, r.back = output{outcome: unknown}, back
		all = append(all, r)
		if errors.Is(err, context.DeadlineExceeded) {
			r.input.call = int(c.w.stamp())
			release := *r
			release.input = input{
				kind: giveUp, key: r.key, call: r.input.call, keeps: back == 0,
				removes: policy == lockd.RemoveAfter, opened: c.era.floor,
			}
			all = append(all, &release)
		}
	}
	for _, r := range all {
		c.w.add(r)
	}
}

// settle returns the time by which everything decided before is durable: an answer waits for that
// (G3). It returns 0 if the time is not known.
func (c *library) settle() int64 {
	for i := range 3 {
		_, err := c.era.db.Put("other", fmt.Append(nil, c.number, c.w.stamp(), i), nil)
		if c.lost() || err != nil && !errors.Is(err, lockd.ErrCommit) {
			return 0
		}
		if err == nil {
			return c.w.stamp()
		}
	}
	return 0
}

func (c *library) unlock() {
	if len(c.locks) == 0 {
		c.get()
		return
	}
	i := c.chance.IntN(len(c.locks))
	l := c.locks[i]
	q := l.Sequencer()
	r := c.record(input{
		kind: unlock, key: q.Key, session: q.Session.String(), fence: q.Fence,
		removes: c.opts[l] == lockd.RemoveAfter && q.Fence > c.era.floor, // else it was taken over
		opened:  c.era.floor,
		shared:  q.Mode == lockd.Shared,
	}, c.w.stamp())
	if !r.shared && c.chance.IntN(4) == 0 {
		c.downgrade(r, l)
		return
	}
	err := l.Unlock()
	c.wrote(r, err)
	if !errors.Is(err, lockd.ErrCommit) {
		c.locks = append(c.locks[:i:i], c.locks[i+1:]...)
	}
}

func (c *library) downgrade(r *record, l *lockd.Lock) {
	r.kind = downgrade
	c.w.downgrading(r.key, l.Done())
	err := l.Downgrade()
	q := l.Sequencer()
	r.entry = entry{lockIndex: q.LockIndex, fence: q.Fence}
	if err != nil {
		r.entry = entry{}
	}
	c.wrote(r, err)
}

func (c *library) force() {
	key := c.key()
	now, _ := c.era.db.Get(key) // the entry of a shared lock has its first holder's fence
	if now.Fence == 0 {
		return
	}
	in := input{kind: force, key: key, fence: now.Fence}
	r := c.record(in, c.w.stamp())
	r.from = r.call
	c.wrote(r, c.era.db.ForceUnlock(key, now.Fence, "it has to be free"))
}

// end ends the client's session, or another client's session.
func (c *library) end() {
	s, owner := c.s, c.chance.IntN(2) == 0
	if !owner && c.chance.IntN(2) == 0 {
		c.w.mu.Lock()
		s = c.w.sessions[len(c.w.sessions)-1-c.chance.IntN(min(6, len(c.w.sessions)))]
		c.w.mu.Unlock()
	}
	id, err := lockd.ParseSessionID(s.id)
	if err != nil {
		c.w.violation("session: %v", err)
	}
	call := c.w.stamp()
	if owner {
		err = c.real.Close()
	} else {
		err = c.era.db.EndSession(id)
	}
	c.closed(s, closing{call: call, owner: owner}, err)
	c.failed("end of a session", err)
}

// failed keeps an error that nothing explains, and waits for the next era if this one is over.
func (c *library) failed(what string, err error) {
	explains := func(why error) bool { return errors.Is(err, why) }
	if !c.lost() && !slices.ContainsFunc([]error{
		nil, lockd.ErrCommit, lockd.ErrClosed, lockd.ErrNoSession,
	}, explains) {
		c.w.violation("%s: %v", what, err)
	}
	c.wait(err)
}

// closed keeps a call that ends a session.
func (c *caller) closed(s *session, end closing, err error) {
	back := c.w.stamp()
	switch {
	case c.lost():
	case err == nil, errors.Is(err, lockd.ErrNoSession):
		end.back = back
	case errors.Is(err, lockd.ErrCommit), errors.Is(err, lockd.ErrClosed):
		return
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	s.closings = append(s.closings, end)
}

func (c *library) renew() {
	call := c.w.stamp()
	err := c.real.Renew()
	if err == nil {
		c.w.mu.Lock()
		c.s.renewals = append(c.s.renewals, call)
		c.w.mu.Unlock()
	}
	c.failed("renew", err)
}
