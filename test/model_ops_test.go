package lockd_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lockd/lockd"
)

// modelKeys are few, so that operations meet; some are prefixes of others.
var modelKeys = []string{"a", "a/1", "a/2", "b", "b/1", "b/.lock"}

// op is an operation as it was drawn: what its numbers mean depends on the kind.
type op struct {
	kind       string
	a, b, c, d int
	e          int  // only TestModel_Engine has it
	of         []op // of a transaction
}

func (o op) String() string {
	text := fmt.Sprintf("%s %d %d %d %d %d", o.kind, o.a, o.b, o.c, o.d, o.e)
	for _, part := range o.of {
		text += "; (" + part.String() + ")"
	}
	return text
}

var (
	// A kind that stands here more often is drawn more often, and so are the first ones.
	anyKinds = []string{
		"lock", "clock", "unlock", "tryLock", "cancel", "lockAll", "transaction", "probe",
		"lock", "clock", "unlock", "put", "endSession", "closeSession", "forceUnlock", "delete",
		"lock", "clock", "unlock", "renew", "newSession", "compareAndSwap", "compareAndDelete",
		"deletePrefix", "catalog", "putIf", "clock", "probe", "lock", "lockAll", "replay",
		"transaction", "acquire", "acquire", "tryAcquire", "unlock", "acquire", "acquire", "clock",
		"acquire", "setLimit", "names", "contend", "contender", "acquire", "endSession",
		"downgrade", "downgrade", "downgrade", "keep", "keep", "keepClose", "putCheck", "beat",
		"beat",
		"catalog", "beat", "catalog",
	}
	fileKinds = append([]string{"fail", "crowd"}, append(anyKinds, "fail", "crowd", "clock",
		"reopen", "crowd", "crash", "clock", "crowd")...)
	// The operations that are decided while a commit is held, and those whose commit it is.
	crowdKinds = []string{
		"lock", "transaction", "cancel", "lockAll", "cancel", "acquire", "acquire",
	}
	heldKinds = []string{
		"unlock", "downgrade", "endSession", "closeSession", "tryLock", "delete", "forceUnlock",
		"put",
		"catalog", "tryAcquire", "names", "contender", "setLimit", "putCheck", "beat",
	}
	txKinds = []string{
		"txLock", "txUnlock", "put", "delete", "txEndSession", "compareAndSwap", "compareAndDelete",
		"deletePrefix", "txGet", "checkSequencer", "putCheck", "beat", "catalog",
	}

	drawAny    = rapid.SampledFrom(anyKinds)
	drawFile   = rapid.SampledFrom(fileKinds)
	drawTx     = rapid.SampledFrom(txKinds)
	drawCrowd  = rapid.SampledFrom(crowdKinds)
	drawHeld   = rapid.SampledFrom(heldKinds)
	drawNumber = rapid.IntRange(0, 15)
	drawKey    = rapid.IntRange(0, len(modelKeys)-1)
	drawParts  = rapid.IntRange(1, 5)
)

func (w *twin) draw(t *rapid.T) op {
	kinds := drawAny
	switch {
	case w.disk != nil:
		kinds = drawPower
	case w.path != "":
		kinds = drawFile
	}
	return w.drawOf(t, kinds)
}

// drawOf draws an operation of these kinds, with its parts.
func (w *twin) drawOf(t *rapid.T, kinds *rapid.Generator[string]) op {
	o := drawOp(t, kinds)
	if len(w.m.live) < 3 && o.d%2 == 0 {
		o.kind = "newSession" // most rules want several
	}
	w.drawParts(t, &o)
	if part, ok := powerParts[o.kind]; ok {
		for range drawParts.Draw(t, "meanwhile") {
			o.of = append(o.of, w.drawOf(t, part))
		}
	}
	if o.kind == "crowd" {
		o.of = append(o.of, drawOp(t, drawHeld))
		for range drawParts.Draw(t, "crowd") {
			part := drawOp(t, drawCrowd)
			w.drawParts(t, &part)
			o.of = append(o.of, part)
		}
	}
	return o
}

// drawParts draws the operations of a transaction.
func (w *twin) drawParts(t *rapid.T, o *op) {
	if o.kind == "transaction" {
		for range drawParts.Draw(t, "parts") {
			o.of = append(o.of, drawOp(t, drawTx))
		}
	}
}

func drawOp(t *rapid.T, kinds *rapid.Generator[string]) op {
	return op{
		kind: kinds.Draw(t, "kind"), a: drawNumber.Draw(t, "a"), b: drawKey.Draw(t, "b"),
		c: drawNumber.Draw(t, "c"), d: drawNumber.Draw(t, "d"),
	}
}

// What the numbers of an operation mean.

func (o op) key() string { return modelKeys[o.b] }

func (o op) value() []byte { return [][]byte{[]byte("x"), []byte("y"), nil}[o.c%3] }

func (o op) flags() uint64 { return uint64(o.d % 2) }

// inMode adds a mode to the options, which may be nil.
func (o op) inMode(opts *lockd.LockOptions) *lockd.LockOptions {
	if o.d%4 == 0 || o.d%4 == 3 {
		return opts
	}
	if opts == nil {
		opts = new(lockd.LockOptions)
	}
	opts.Mode = lockd.Shared
	return opts
}

// lockOptions are nil now and then.
func (o op) lockOptions() *lockd.LockOptions {
	if o.c%2 == 0 {
		return o.inMode(nil)
	}
	opts := &lockd.LockOptions{}
	if o.c%4 == 1 {
		opts.Key = lockd.RemoveAfter
	}
	if o.c >= 8 {
		opts.Value, opts.Flags = []byte(strconv.Itoa(o.c)), o.flags()
	}
	if o.c%8 == 3 || o.c%8 == 5 {
		opts.MaxHold = time.Duration(1+o.d%8) * time.Second
	}
	return o.inMode(opts)
}

func (o op) prefix() string {
	key := o.key()
	return key[:1+o.c%len(key)]
}

// index is one for a compare: that of the entry, of no entry, or of an earlier one.
func (w *twin) index(o op) uint64 {
	e := w.m.keys[o.key()]
	return []uint64{e.ModifyIndex, e.ModifyIndex, 0, e.CreateIndex}[o.c%4]
}

// session picks a session, the newest first; those that ended come last.
func (w *twin) session(o op) (twinSession, bool) {
	var live, ended []twinSession
	for _, s := range slices.Backward(w.sessions) {
		if s.model.cause == nil {
			live = append(live, s)
		} else {
			ended = append(ended, s)
		}
	}
	all := append(live, ended[:min(1, len(ended))]...)
	if len(all) == 0 {
		return twinSession{}, false
	}
	return all[o.a%len(all)], true
}

func (w *twin) id(o op) lockd.SessionID {
	s, ok := w.session(o)
	if !ok {
		return lockd.SessionID{}
	}
	return s.model.info.ID
}

// lock picks a lock, the newest first; some have been lost.
func (w *twin) lock(o op) (twinLock, bool) {
	if len(w.locks) == 0 {
		return twinLock{}, false
	}
	return w.locks[len(w.locks)-1-o.a%len(w.locks)], true
}

func (w *twin) proof(o op) lockd.Sequencer {
	l, ok := w.lock(o)
	if !ok {
		return lockd.Sequencer{}
	}
	proof := l.model.grant
	if o.d == 15 { // made up
		proof.Mode = lockd.Shared - proof.Mode
	}
	return proof
}

// do does the operation to both, and returns how their results differ.
func (w *twin) do(o op) error {
	switch o.kind {
	case "lock", "lockAll", "acquire":
		return w.doLock(o)
	case "cancel":
		return w.doCancel(o)
	case "clock":
		w.doClock(o)
		return nil
	case "newSession":
		return w.doNewSession(o)
	case "keep":
		return w.doKeep(o)
	case "keepClose":
		return w.doKeepClose()
	case "transaction":
		return w.doTransaction(o)
	case "crowd":
		return w.doCrowd(o)
	case "replay":
		return w.doReplay(o)
	case "probe":
		return w.probe()
	case "fail":
		w.m.failures = 1 + o.c%3
		w.failures.Store(int64(w.m.failures))
		return nil
	case "reopen":
		return w.doReopen()
	case "crash":
		return w.doCrash()
	case "cut":
		return w.doCut(o)
	case "late":
		return w.doLate(o)
	}
	return w.doCall(o)
}

// deed is what an operation is on both sides.
type deed struct {
	call func() (any, error)
	rule func(tx *modelTx) (any, error) // nil: it neither writes nor tries to
	then func() error                   // the result of a call whose write succeeded; nil: nil
}

// doCall does an operation that is one call, which does not wait for others.
func (w *twin) doCall(o op) error {
	d := w.deed(o)
	if d.call == nil {
		return nil // there is nothing to do it to
	}
	got, err := d.call()
	synctest.Wait()
	var want any
	var failed error
	if d.rule != nil {
		failed = w.m.write(func(tx *modelTx) (err error) {
			want, err = d.rule(tx)
			return err
		})
	}
	if failed == nil && d.then != nil {
		failed = d.then()
	}
	return w.same(got, err, want, failed)
}

// same compares what was returned.
func (w *twin) same(got any, err error, want any, failed error) error {
	if err := sameError(err, failed); err != nil || failed != nil {
		return err
	}
	switch want := want.(type) {
	case *modelLock:
		return errors.Join(w.take(got.(twinHandle), want), overtakes(want, w.standing))
	case lockd.Entry:
		if !sameEntry(got.(lockd.Entry), want) {
			return fmt.Errorf("entry: got  %+v\nwant %+v", got, want)
		}
	default:
		if got != want {
			return fmt.Errorf("result: got %v, want %v", got, want)
		}
	}
	return nil
}

func (w *twin) deed(o op) deed {
	key := o.key()
	switch o.kind {
	case "put":
		opts := &lockd.PutOptions{Flags: o.flags()}
		return deed{
			call: func() (any, error) { return w.db.Put(key, o.value(), opts) },
			rule: func(tx *modelTx) (any, error) { return tx.put(key, o.value(), opts.Flags), nil },
		}
	case "putIf":
		opts, proof := &lockd.PutOptions{Flags: o.flags()}, w.proof(o)
		return deed{
			call: func() (any, error) { return w.db.If(proof).Put(key, o.value(), opts) },
			rule: func(tx *modelTx) (any, error) {
				return tx.putIf(key, o.value(), opts.Flags, proof)
			},
		}
	case "compareAndSwap":
		index := w.index(o)
		return deed{
			call: func() (any, error) { return w.db.CompareAndSwap(key, index, o.value(), nil) },
			rule: func(tx *modelTx) (any, error) { return tx.cas(key, index, o.value()) },
		}
	case "delete":
		return deed{
			call: func() (any, error) { return w.db.Delete(key) },
			rule: func(tx *modelTx) (any, error) { return tx.remove(key, nil), nil },
		}
	case "compareAndDelete":
		index := w.index(o)
		return deed{
			call: func() (any, error) { return w.db.CompareAndDelete(key, index) },
			rule: func(tx *modelTx) (any, error) { return tx.compareAndDelete(key, index) },
		}
	case "deletePrefix":
		prefix := o.prefix()
		return deed{
			call: func() (any, error) { return w.db.DeletePrefix(prefix) },
			rule: func(tx *modelTx) (any, error) { return tx.removePrefix(prefix), nil },
		}
	case "forceUnlock":
		fence := w.m.keys[key].Fence - uint64(o.c/12)
		if holders := w.m.holders(key); len(holders) > 0 && o.c < 12 {
			fence = holders[o.c%len(holders)].Grant.Fence
		}
		return deed{
			call: func() (any, error) { return nil, w.db.ForceUnlock(key, fence, "in a test") },
			rule: func(tx *modelTx) (any, error) { return nil, tx.forceUnlock(key, fence) },
		}
	case "catalog", "putCheck", "beat":
		return w.catalogDeed(o)
	case "unlock":
		return w.unlockDeed(o)
	case "downgrade":
		return w.downgradeDeed(o)
	case "setLimit", "names", "contend", "contender":
		return w.semaphoreDeed(o)
	}
	return w.sessionDeed(o)
}

func (w *twin) unlockDeed(o op) deed {
	l, ok := w.lock(o)
	if !ok {
		return deed{}
	}
	d := deed{
		call: func() (any, error) {
			if slot, ok := l.real.(*lockd.Slot); ok {
				return nil, slot.Release()
			}
			return nil, l.real.(*lockd.Lock).Unlock()
		},
		then: func() error {
			if l.model.released {
				return nil
			}
			return errors.Join(lockd.ErrNotHeld, l.model.cause)
		},
	}
	if l.model.cause == nil {
		d.rule = func(tx *modelTx) (any, error) {
			tx.unlockHandle(l.model)
			return nil, nil
		}
	}
	return d
}

func (w *twin) downgradeDeed(o op) deed {
	l, ok := w.lock(o)
	if !ok || l.model.slot {
		return deed{}
	}
	lock := l.real.(*lockd.Lock)
	before, gone := lock.Sequencer(), l.model.cause != nil
	d := deed{
		call: func() (any, error) { return nil, lock.Downgrade() },
		then: func() error {
			if gone {
				return errors.Join(lockd.ErrNotHeld, l.model.cause)
			}
			if now := lock.Sequencer(); now != before {
				w.referee.downgrades = append(w.referee.downgrades,
					[2]lockd.Sequencer{before, now})
			}
			return nil
		},
	}
	if !gone {
		d.rule = func(tx *modelTx) (any, error) { return nil, tx.downgrade(l.model) }
	}
	return d
}

func (w *twin) sessionDeed(o op) deed {
	s, ok := w.session(o)
	if !ok {
		return deed{}
	}
	key, opts, id := o.key(), o.lockOptions(), s.model.info.ID
	switch o.kind {
	case "tryLock":
		return deed{
			call: func() (any, error) { return s.real.TryLock(key, opts) },
			rule: func(tx *modelTx) (any, error) { return tx.tryLock(s.model, key, opts) },
		}
	case "tryAcquire":
		return deed{
			call: func() (any, error) { return s.real.TryAcquire(o.semaphore(), o.limit()) },
			rule: func(tx *modelTx) (any, error) {
				return tx.tryAcquire(s.model, o.semaphore()+"/.lock", o.limit())
			},
		}
	case "endSession":
		return deed{
			call: func() (any, error) { return nil, w.db.EndSession(id) },
			rule: func(tx *modelTx) (any, error) { return nil, tx.endByID(id) },
		}
	case "renew":
		return w.renewDeed(s)
	case "closeSession":
		d := deed{
			call: func() (any, error) { return nil, s.real.Close() },
			then: func() error {
				if s.model.cause == lockd.ErrClosed {
					return nil
				}
				return ended(s.model)
			},
		}
		if s.model.cause == nil {
			d.rule = func(tx *modelTx) (any, error) {
				if w.m.session(id) != nil {
					tx.end(s.model, lockd.ErrClosed)
				}
				return nil, nil
			}
		}
		return d
	}
	panic("no such operation: " + o.kind)
}

// renewDeed is a renewal, which is no write if it is in time, and else finds out that it is late.
func (w *twin) renewDeed(s twinSession) deed {
	if s.model.kept {
		return deed{} // when its keeper renewed it last is no rule
	}
	d := deed{call: func() (any, error) { return nil, s.real.Renew() }}
	if w.m.session(s.model.info.ID) != nil && !s.model.due(w.m.now) {
		s.model.renew(w.m.now)
		return d
	}
	d.rule = func(tx *modelTx) (any, error) { return nil, nil }
	d.then = func() error { return ended(s.model) }
	return d
}
