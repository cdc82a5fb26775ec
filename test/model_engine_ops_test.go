package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// The operations of the model test of the rules, and what they return as users know it.

var (
	coreKinds = []string{
		"lock", "clock", "unlock", "tryLock", "cancel", "lockAll", "transaction", "downgrade",
		"lock", "clock", "unlock", "put", "endSession", "closeSession", "forceUnlock", "delete",
		"lock", "unlock", "renew", "newSession", "compareAndSwap", "deletePrefix", "txLock",
		"txUnlock", "lock", "lockAll", "unlock", "downgrade", "transaction", "tryLock", "acquire",
		"acquire", "setLimit", "checkSequencer", "probe", "tryLock",
	}
	coreTxKinds = []string{
		"txLock", "txUnlock", "put", "delete", "endSession", "compareAndSwap", "deletePrefix",
		"txLock", "checkSequencer", "forceUnlock",
	}
)

func (c *core) draw() op {
	o := c.drawOf(coreKinds)
	switch {
	case len(c.m.live) < 4 && o.d%2 == 0:
		o.kind = "newSession" // most rules want several
	case c.rows.Durable() && c.random.IntN(16) == 0:
		o.kind = "fail"
	case c.rows.Durable() && c.random.IntN(50) == 0:
		o.kind = "reopen"
	case o.kind == "transaction":
		for range 1 + c.random.IntN(5) {
			o.of = append(o.of, c.drawOf(coreTxKinds))
		}
	}
	return o
}

func (c *core) drawOf(kinds []string) op {
	bits := c.random.Uint64()
	return op{
		kind: kinds[bits>>32%uint64(len(kinds))], a: int(bits % 16),
		b: int(bits >> 4 % 4), c: int(bits >> 8 % 16), d: int(bits >> 12 % 16),
		e: int(bits >> 16 % 64),
	}
}

// do does the operation to both, and returns how their results differ.
func (c *core) do(o op) error {
	switch o.kind {
	case "lock", "lockAll", "acquire":
		return c.wait(o)
	case "cancel":
		return c.cancel(o)
	case "clock":
		c.move(o)
		return nil
	case "newSession":
		return c.newSession(o)
	case "renew":
		return c.renew(o)
	case "fail":
		c.failures, c.m.failures = 1+o.c%3, 1+o.c%3
		return nil
	case "reopen":
		return c.reopen()
	case "transaction":
		return c.transaction(o)
	}
	return c.deed(o)
}

// deed does an operation that is one transaction.
func (c *core) deed(o op) error {
	real, rule := c.part(o)
	if real == nil {
		return nil
	}
	var got, want any
	err := c.write(func(tx *engine.Txn) (err error) {
		got, err = real(tx)
		return err
	})
	failed := c.m.write(func(tx *modelTx) (err error) {
		want, err = rule(tx)
		return err
	})
	return c.same(got, err, want, failed)
}

func (c *core) same(got any, err error, want any, failed error) error {
	if err := sameRefusal(err, failed); err != nil || failed != nil {
		return err
	}
	switch want := want.(type) {
	case *modelLock:
		return c.take(got.(*coreHold), want, c.calls)
	case lockd.Entry:
		if got := coreEntry(got.(*schema.Key)); !sameEntry(got, want) {
			return fmt.Errorf("entry: got  %+v\nwant %+v", got, want)
		}
	default:
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("result: got %v, want %v", got, want)
		}
	}
	return nil
}

// sameRefusal compares errors, without the cause of a session's end, which its handle adds.
func sameRefusal(got, want error) error {
	if errors.Is(want, lockd.ErrNoSession) {
		want = lockd.ErrNoSession
	}
	return sameError(coreError(got), want)
}

// transaction does several operations in one. A half of them give up at the first refusal.
func (c *core) transaction(o op) error {
	var got, want []outcome
	var reals []func(tx *engine.Txn) (any, error)
	var rules []func(tx *modelTx) (any, error)
	for _, part := range o.of {
		if real, rule := c.part(part); real != nil {
			reals, rules = append(reals, real), append(rules, rule)
		}
	}
	ends := func(list []outcome) error {
		if last := list[len(list)-1].err; last != nil && o.c%2 == 0 {
			return errAbort
		}
		return nil
	}
	err := c.write(func(tx *engine.Txn) error {
		for _, real := range reals {
			value, err := real(tx)
			got = append(got, outcome{value, err})
			if err := ends(got); err != nil {
				return err
			}
		}
		return nil
	})
	failed := c.m.write(func(tx *modelTx) error {
		for _, rule := range rules {
			value, err := rule(tx)
			want = append(want, outcome{value, err})
			if err := ends(want); err != nil {
				return err
			}
		}
		return nil
	})
	if err := sameError(err, failed); err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("transaction: got %d results, want %d", len(got), len(want))
	}
	for i := range got {
		if err := c.same(got[i].value, got[i].err, want[i].value, want[i].err); err != nil {
			return fmt.Errorf("operation %d of the transaction: %w", i, err)
		}
	}
	return nil
}

// part is an operation on both sides.
func (c *core) part(
	o op,
) (func(tx *engine.Txn) (any, error), func(tx *modelTx) (any, error)) {
	key := o.key()
	switch o.kind {
	case "put":
		return func(tx *engine.Txn) (any, error) { return tx.Put(key, o.value(), o.flags()), nil },
			func(tx *modelTx) (any, error) { return tx.put(key, o.value(), o.flags()), nil }
	case "compareAndSwap":
		index := []uint64{c.m.keys[key].ModifyIndex, 0}[o.c%2]
		return func(tx *engine.Txn) (any, error) {
				if err := tx.CheckIndex(key, index); err != nil {
					return nil, err
				}
				return tx.Put(key, o.value(), 0), nil
			},
			func(tx *modelTx) (any, error) { return tx.cas(key, index, o.value()) }
	case "delete":
		return func(tx *engine.Txn) (any, error) { return tx.Delete(key), nil },
			func(tx *modelTx) (any, error) { return tx.remove(key, nil), nil }
	case "deletePrefix":
		return func(tx *engine.Txn) (any, error) { return tx.DeletePrefix(o.prefix()), nil },
			func(tx *modelTx) (any, error) { return tx.removePrefix(o.prefix()), nil }
	case "forceUnlock":
		fence := c.m.keys[key].Fence
		if holders := c.m.holders(key); len(holders) > 0 && o.c < 12 {
			fence = holders[o.c%len(holders)].Grant.Fence
		}
		return func(tx *engine.Txn) (any, error) { return nil, tx.ForceUnlock(key, fence, "") },
			func(tx *modelTx) (any, error) { return nil, tx.forceUnlock(key, fence) }
	case "setLimit":
		return func(tx *engine.Txn) (any, error) { return nil, tx.SetLimit("sem", 1+o.c%3) },
			func(tx *modelTx) (any, error) { return nil, tx.setLimit("sem/.lock", 1+o.c%3) }
	case "unlock", "downgrade", "checkSequencer":
		return c.holdPart(o)
	case "probe":
		return c.probe()
	}
	return c.sessionPart(o)
}

// holdPart is an operation on a lock that is or was held.
func (c *core) holdPart(
	o op,
) (func(tx *engine.Txn) (any, error), func(tx *modelTx) (any, error)) {
	if len(c.locks) == 0 {
		return nil, nil
	}
	l := c.locks[len(c.locks)-1-o.a%len(c.locks)]
	switch {
	case o.kind == "checkSequencer":
		proof := l.model.grant
		if o.d == 15 { // made up
			proof.Mode = lockd.Shared - proof.Mode
		}
		return func(tx *engine.Txn) (any, error) {
				return nil, tx.Proves(engine.Sequencer{
					Key: proof.Key, Session: schema.ID(proof.Session), Fence: proof.Fence,
					LockIndex: proof.LockIndex, Mode: engine.Mode(proof.Mode),
				})
			}, func(tx *modelTx) (any, error) {
				if !tx.m.proves(proof) {
					return nil, lockd.ErrNotHeld
				}
				return nil, nil
			}
	case l.model.cause != nil || o.kind == "downgrade" && l.model.slot:
		return nil, nil
	case l.real.pending && c.engine.Undecided() != nil: // a handle waits until that is told
		return nil, nil
	case o.kind == "unlock":
		return func(tx *engine.Txn) (any, error) {
				tx.Release(l.real.current())
				return nil, nil
			}, func(tx *modelTx) (any, error) {
				tx.unlockHandle(l.model)
				return nil, nil
			}
	}
	before := l.model.grant
	return func(tx *engine.Txn) (any, error) {
			err := tx.Downgrade(l.real.current(), &engine.Hold{Owner: l.real})
			l.real.pending = err == nil
			return nil, err
		}, func(tx *modelTx) (any, error) {
			tx.tell(func() {
				if now := l.real.grant(); now != before {
					c.referee.downgrades = append(c.referee.downgrades,
						[2]lockd.Sequencer{before, now})
				}
			})
			return nil, tx.downgrade(l.model)
		}
}

// sessionPart is an operation with a session.
func (c *core) sessionPart(
	o op,
) (func(tx *engine.Txn) (any, error), func(tx *modelTx) (any, error)) {
	s, ok := c.session(o)
	if !ok {
		return nil, nil
	}
	key, id := o.key(), s.model.info.ID
	opts := o.inMode(nil)
	switch o.kind {
	case "tryLock":
		opts := o.lockOptions()
		h := newCoreHold(opts)
		return func(tx *engine.Txn) (any, error) {
				return h, tx.TryLock(&h.hold, s.real.state, key, coreOptions(opts))
			},
			func(tx *modelTx) (any, error) { return tx.tryLock(s.model, key, opts) }
	case "txLock":
		return func(tx *engine.Txn) (any, error) {
				return tx.Lock(key, schema.ID(id), coreOptions(opts))
			},
			func(tx *modelTx) (any, error) { return tx.lock(key, id, opts) }
	case "txUnlock":
		if holders := c.m.holders(key); o.c < 12 && len(holders) > 0 {
			id = holders[o.c%len(holders)].Session.ID
		}
		return func(tx *engine.Txn) (any, error) { return tx.Unlock(key, schema.ID(id)) },
			func(tx *modelTx) (any, error) { return tx.unlock(key, id) }
	case "endSession", "closeSession":
		cause := lockd.ErrDestroyed
		if o.kind == "closeSession" {
			cause = lockd.ErrClosed
		}
		return func(tx *engine.Txn) (any, error) {
				state, err := tx.Session(schema.ID(id))
				if err == nil {
					tx.EndSession(state, cause)
				}
				return nil, err
			}, func(tx *modelTx) (any, error) {
				if tx.m.session(id) == nil {
					return nil, lockd.ErrNoSession
				}
				tx.end(tx.m.session(id), cause)
				return nil, nil
			}
	}
	panic("no such operation: " + o.kind)
}

// probe asks for every lock in both modes on behalf of no session: see twin.probe.
func (c *core) probe() (func(tx *engine.Txn) (any, error), func(tx *modelTx) (any, error)) {
	toShare := &lockd.LockOptions{Mode: lockd.Shared}
	var got []error
	return func(tx *engine.Txn) (any, error) {
			for _, key := range modelKeys[:4] {
				for _, opts := range []*lockd.LockOptions{nil, toShare} {
					_, err := tx.Lock(key, schema.ID{}, coreOptions(opts))
					got = append(got, coreError(err))
				}
			}
			return nil, nil
		}, func(tx *modelTx) (any, error) {
			for i, got := range got {
				_, want := tx.lock(modelKeys[i/2], lockd.SessionID{},
					[]*lockd.LockOptions{nil, toShare}[i%2])
				if err := sameError(got, want); err != nil {
					return fmt.Errorf("probe: %w", err), nil // is no nil, which it has to be
				}
			}
			return nil, nil
		}
}

// wait begins to wait for a lock, several or a slot, or gets them at once.
func (c *core) wait(o op) error {
	s, ok := c.session(o)
	if !ok || len(c.calls) >= maxCalls {
		return nil
	}
	keys, opts := []string{o.key()}, o.lockOptions()
	if o.kind == "lockAll" {
		keys = append(keys, modelKeys[(o.b+1+o.d%3)%4])
	}
	call := &coreCall{model: &modelWaiter{session: s.model, keys: keys, opts: opts}}
	call.Owner, call.Session, call.Options = call, s.real.state, coreOptions(opts)
	if o.kind == "acquire" {
		call.model.slot, call.model.limit = true, o.limit()
		call.model.keys, call.model.opts = []string{"sem/.lock"}, nil
		call.Slot, call.Limit, call.Options = true, int32(o.limit()), engine.LockOptions{}
	}
	c.carry(call, o.e)
	for range keys {
		call.holds = append(call.holds, newCoreHold(call.model.opts))
	}
	c.calls = append(c.calls, call)
	waits := false
	err := c.write(func(tx *engine.Txn) (err error) {
		waits, err = call.begin(tx)
		c.refused(call, err)
		return err
	})
	queued := false
	failed := c.m.write(func(tx *modelTx) (err error) {
		queued, err = tx.acquire(call.model)
		return err
	})
	if waits != queued {
		return fmt.Errorf("wait for %q: got %t, want %t", keys, waits, queued)
	}
	if found, ok := errors.AsType[*engine.Deadlock](err); ok {
		if err := c.circle(found); err != nil {
			return err
		}
	}
	switch {
	case failed == nil:
		call.told = call.told || !waits
	case queued: // what was due could not be committed; the place in line stays
		c.m.queue = append(c.m.queue, call.model)
		return sameError(err, failed)
	default:
		call.model.told, call.model.err = true, failed
		call.told, call.err = true, coreError(err)
	}
	return sameRefusal(err, failed)
}

// carry has the call's context carry no lock, one or two, which may be lost or released by now.
func (c *core) carry(call *coreCall, n int) {
	for ; n < 2*len(c.locks) && n > 0 && len(call.model.carried) < 2; n /= 2 {
		l := c.locks[n%len(c.locks)]
		call.Carried = &engine.Carried{Owner: l.real, Outer: call.Carried}
		call.model.carried = append(call.model.carried, l.model)
	}
}

// refused tells the model whether the call is refused by R14.
func (c *core) refused(call *coreCall, err error) {
	call.model.deadlock = nil
	if _, ok := errors.AsType[*engine.Deadlock](err); ok {
		call.model.deadlock = err
		c.m.counts["deadlock"]++
	}
}

// circle finds a step of the circle that is not one: each call waits for a lock that the next call
// carries, and whose grant lasts.
func (c *core) circle(found *engine.Deadlock) error {
	for i, step := range found.Steps {
		w := step.Waiter.Owner.(*coreCall).model
		held := coreSequencer(step.Holds.Grant)
		next := found.Steps[(i+1)%len(found.Steps)].Holds.Grant.Key
		waits := slices.Contains(w.keys, step.Key) &&
			(next == step.Key || w.slot && semaphoreOf(next) == step.Key)
		carries := slices.ContainsFunc(w.carried, func(l *modelLock) bool {
			return l.grant == held
		})
		if !waits || !carries || !c.m.proves(held) {
			return fmt.Errorf("step %d of %v: waits %t, carries %t", i, found, waits, carries)
		}
	}
	return nil
}

// begin does what the call wants at once, or queues.
func (call *coreCall) begin(tx *engine.Txn) (waits bool, err error) {
	keys, s := call.model.keys, call.Session
	if call.Slot {
		blocked, err := tx.Acquire(&call.holds[0].hold, s, engine.PrefixOf(keys[0]),
			int(call.Limit))
		if err != nil || blocked == nil {
			return false, err
		}
	} else {
		free, err := tx.Free(s, keys, call.Options.Mode, call.Carried)
		if err != nil {
			return false, err
		}
		if free {
			for i, h := range call.holds {
				tx.Hold(&h.hold, s, keys[i], call.Options)
			}
			return false, nil
		}
	}
	if err := tx.Wait(&call.Waiter, keys); err != nil {
		return false, err
	}
	for i, h := range call.holds {
		call.SetHold(i, &h.hold)
	}
	return true, nil
}

// cancel has a call that waits give up.
func (c *core) cancel(o op) error {
	if len(c.calls) == 0 {
		return nil
	}
	call := c.calls[o.a%len(c.calls)]
	_ = c.write(func(tx *engine.Txn) error {
		if !call.Settled() {
			tx.Withdraw(&call.Waiter)
		}
		return nil
	})
	_ = c.m.write(func(tx *modelTx) error {
		tx.withdraw(call.model)
		return nil
	})
	c.m.gone(call.model)
	call.told, call.err = true, context.Canceled
	return nil
}

// move moves the clock, and does what happens by itself on the way, at the instants of the model.
func (c *core) move(o op) {
	step := time.Second
	if at, ok := c.m.upcoming(); ok {
		left := at.Sub(c.m.now)
		step = []time.Duration{
			left, left, left - 1, left + 1, left / 2, 0, time.Second, 100 * time.Second,
		}[o.c%8]
	}
	to := c.now.Add(step)
	for {
		at, ok := c.m.next()
		if !ok || at.After(to) {
			break
		}
		if at.After(c.now) {
			c.now, c.m.now = at, at
		}
		c.tryDue()
		c.m.tryDue()
	}
	c.now, c.m.now = to, to
}

func (c *core) newSession(o op) error {
	id := c.newID()
	row := schema.Session{
		ID: id, Name: fmt.Sprintf("s%d", c.named), Node: ownNode,
		TTL:       []time.Duration{0, 10, 15, 20, 5}[o.a%5] * time.Second,
		LockDelay: []time.Duration{15, 5, 0, 60}[o.b] * time.Second,
		Behavior:  uint8(o.c % 2), Lifetime: uint8(o.c / 2 % 2),
	}
	owner := new(coreOwner)
	err := c.write(func(tx *engine.Txn) (err error) {
		owner.state, err = tx.NewSession(row)
		return err
	})
	var s *modelSession
	failed := c.m.write(func(tx *modelTx) (err error) {
		s, err = tx.newSession(coreInfo(&row))
		return err
	})
	if err := sameError(err, failed); err != nil || failed != nil {
		return err
	}
	c.sessions = append(c.sessions, coreSession{real: owner, model: s})
	if gone := slices.IndexFunc(c.sessions, func(s coreSession) bool {
		return s.model.cause != nil
	}); gone >= 0 && len(c.sessions) > 8 {
		c.sessions = slices.Delete(c.sessions, gone, gone+1)
	}
	return nil
}

// renew renews a session, which is no write if it is in time.
func (c *core) renew(o op) error {
	s, ok := c.session(o)
	if !ok {
		return nil
	}
	lives := c.m.session(s.model.info.ID) != nil && !s.model.due(c.m.now)
	if got := s.real.state.Extend(c.now); got != lives {
		return fmt.Errorf("renew %s: got %t, want %t", s.model.info.Name, got, lives)
	}
	if lives {
		s.model.renew(c.m.now)
	}
	return nil
}

// session picks a session, the newest first; one that has ended comes last.
func (c *core) session(o op) (coreSession, bool) {
	if len(c.sessions) == 0 {
		return coreSession{}, false
	}
	n := len(c.sessions)
	for try := range n {
		s := c.sessions[n-1-(o.a+try)%n]
		if s.model.cause == nil || o.a == 15 {
			return s, true
		}
	}
	return c.sessions[n-1], true
}

func coreOptions(o *lockd.LockOptions) engine.LockOptions {
	if o == nil {
		return engine.LockOptions{}
	}
	return engine.LockOptions{
		Value: o.Value, Flags: o.Flags, Policy: engine.KeyPolicy(o.Key), Mode: engine.Mode(o.Mode),
	}
}

func coreEntry(row *schema.Key) lockd.Entry {
	if row == nil {
		return lockd.Entry{}
	}
	return lockd.Entry{
		Key: row.Key, Value: row.Value, Flags: row.Flags, Session: lockd.SessionID(row.Session),
		CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex, LockIndex: row.LockIndex,
		Fence: row.Fence,
	}
}

func coreInfo(row *schema.Session) lockd.SessionInfo {
	return lockd.SessionInfo{
		ID: lockd.SessionID(row.ID), Name: row.Name, Node: row.Node, TTL: row.TTL,
		Grace: row.Grace, LockDelay: row.LockDelay, Behavior: lockd.Behavior(row.Behavior),
		Lifetime: lockd.Lifetime(row.Lifetime), CreateIndex: row.CreateIndex,
	}
}

func coreSequencer(q engine.Sequencer) lockd.Sequencer {
	return lockd.Sequencer{
		Key: q.Key, Session: lockd.SessionID(q.Session), LockIndex: q.LockIndex, Fence: q.Fence,
		Mode: lockd.LockMode(q.Mode),
	}
}

func coreHolders(holders []engine.Holder) (list []lockd.Holder) {
	for _, h := range holders {
		list = append(list, lockd.Holder{
			Session: coreInfo(h.Session), Grant: coreSequencer(h.Grant), Since: h.Since,
		})
	}
	return list
}

// coreError is err as package lockd returns it.
func coreError(err error) error {
	b, _ := errors.AsType[*engine.Blocked](err)
	if b == nil {
		return err
	}
	return &lockd.LockedError{
		Key: b.Key, Mode: lockd.LockMode(b.Mode), Obstacle: lockd.Obstacle(b.Obstacle),
		Holders: coreHolders(b.Holders), Holder: lockd.SessionID(b.Holder),
		HolderName: b.HolderName, Own: b.Own, Fence: b.Fence, Since: b.Since, Held: b.Held,
		Waiters: b.Waiters, Until: b.Until, Remaining: b.Remaining, Limit: b.Limit,
	}
}

// coreEvent is an event as package lockd yields it.
func coreEvent(event *engine.Event) lockd.Event {
	r := &event.Body
	e := lockd.Event{
		Index: event.Index, Kind: lockd.EventKind(r.Kind), Cause: r.Cause,
		Lost: r.Cause != nil && !engine.Clean(r.Cause),
	}
	if r.Holder != nil {
		e.Granted, e.Waited = coreInfo(r.Holder), r.Waited
	}
	if r.Former != nil {
		e.Ended = coreInfo(r.Former)
	}
	if r.Kind > engine.SessionGone {
		e.Kind = lockd.CatalogChanged
		e.Catalog.Kind = catalog.ChangeKind(r.Kind - engine.SessionGone)
	}
	row := r.New
	if r.Deletes() {
		row = r.Old
	}
	switch row := row.(type) {
	case *schema.Key:
		old, _ := r.Old.(*schema.Key)
		new, _ := r.New.(*schema.Key)
		e.Key, e.Entry, e.Previous = row.Key, coreEntry(new), coreEntry(old)
	case *schema.Share:
		e.Key, e.Share = row.Key(), coreSequencer(engine.SequencerOfShare(row))
	case *schema.Session:
		e.Session = coreInfo(row)
	case *schema.Node:
		e.Catalog.Node = row.Name
	}
	return e
}
