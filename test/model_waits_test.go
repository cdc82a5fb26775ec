package lockd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// The operations of the model test that are more than one call, and what both sides are compared
// by.

// maxCalls is how many may wait at once.
const maxCalls = 12

// doLock begins to wait for one lock or several, or gets them at once.
func (w *twin) doLock(o op) error {
	call := w.startCall(o, func(call *twinCall) context.Context {
		ctx := context.Background()
		if o.d != 15 {
			ctx, call.cancel = context.WithCancel(ctx)
		}
		if o.d == 14 {
			call.cancel()
		}
		return ctx
	})
	if call == nil {
		return nil
	}
	synctest.Wait()
	if o.d == 14 { // it takes no lock, free or not
		call.model.told, call.model.err = true, context.Canceled
		return nil
	}
	queued := false
	err := w.m.write(func(tx *modelTx) (err error) {
		queued, err = tx.acquire(call.model)
		return err
	})
	switch {
	case err == nil:
	case queued: // what was due could not be committed; the place in line stays
		w.m.queue = append(w.m.queue, call.model)
	default:
		call.model.told, call.model.err = true, err
	}
	return nil
}

// startCall starts a call of Lock or LockAll with the context, unless there is no session, or too
// many wait already.
func (w *twin) startCall(o op, context func(call *twinCall) context.Context) *twinCall {
	s, ok := w.session(o)
	if !ok || len(w.calls) >= maxCalls {
		return nil
	}
	keys := []string{o.key()}
	if o.kind == "lockAll" {
		for i := range 1 + o.c%2 {
			keys = append(keys, modelKeys[(o.b+(1+i)*(1+o.d%2))%len(modelKeys)])
		}
	}
	model := &modelWaiter{session: s.model, keys: keys, opts: o.lockOptions()}
	if o.kind == "acquire" {
		model.slot, model.limit = true, o.limit()
		model.keys, model.opts = []string{o.semaphore() + "/.lock"}, nil
	}
	call := &twinCall{model: model, done: make(chan struct{})}
	ctx := context(call)
	if call.cancel != nil {
		w.t.Cleanup(call.cancel)
	}
	go func() {
		defer close(call.done)
		call.locks, call.err = o.lock(ctx, s.real, model)
	}()
	w.calls = append(w.calls, call)
	return call
}

// lock makes the call.
func (o op) lock(
	ctx context.Context, s *lockd.Session, want *modelWaiter,
) (handles []twinHandle, err error) {
	switch o.kind {
	case "acquire":
		slot, err := s.Acquire(ctx, o.semaphore(), want.limit)
		return []twinHandle{slot}, err
	case "lock":
		lock, err := s.Lock(ctx, want.keys[0], want.opts)
		return []twinHandle{lock}, err
	}
	locks, err := s.LockAll(ctx, want.keys, want.opts)
	for _, lock := range locks {
		handles = append(handles, lock)
	}
	return handles, err
}

// doCancel ends the context of a call that waits.
func (w *twin) doCancel(o op) error {
	call := w.cancelled(o)
	if call == nil {
		return nil
	}
	call.cancel()
	synctest.Wait()
	// Whatever becomes of the commit, the call has left.
	_ = w.m.write(func(tx *modelTx) error {
		tx.withdraw(call.model)
		return nil
	})
	w.m.gone(call.model)
	return nil
}

// cancelled picks a call that is to be cancelled, or none.
func (w *twin) cancelled(o op) *twinCall {
	var can []*twinCall
	for _, call := range w.calls {
		if call.cancel != nil && !call.model.told {
			can = append(can, call)
		}
	}
	if len(can) == 0 {
		return nil
	}
	return can[o.a%len(can)]
}

// doClock moves the clock, with a liking for the instant at which something is due next.
func (w *twin) doClock(o op) {
	step := time.Second
	if at, ok := w.m.upcoming(); ok {
		left := at.Sub(w.m.now)
		step = []time.Duration{
			left, left, left - 1, left + 1, left / 2, 0, time.Second, 100 * time.Second,
		}[o.c%8]
	}
	w.clock.Add(step)
	synctest.Wait()
	w.m.advance(w.m.now.Add(step))
}

// upcoming is the next instant that is not over, at which something is due or tried again.
func (m *model) upcoming() (time.Time, bool) {
	var all []time.Time
	for _, d := range m.pending() {
		all = append(all, d.at)
	}
	all = append(all, m.retry)
	all = slices.DeleteFunc(all, func(at time.Time) bool { return !at.After(m.now) })
	if len(all) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(all, time.Time.Compare), true
}

// sessionOptions are round numbers, so that deadlines meet.
func (w *twin) sessionOptions(o op) *lockd.SessionOptions {
	w.named++
	opts := &lockd.SessionOptions{
		Name: fmt.Sprintf("s%d", w.named),
		TTL:  []time.Duration{0, 10, 15, 20, 5}[o.a%5] * time.Second,
		LockDelay: []time.Duration{
			0, 5 * time.Second, lockd.NoLockDelay, lockd.MaxLockDelay,
		}[o.b%4],
		Behavior: lockd.Behavior(o.c % 2),
		Lifetime: lockd.Lifetime(o.c / 2 % 2),
	}
	if opts.TTL > 0 && o.a >= 10 {
		opts.Grace = 5 * time.Second
	}
	opts.Node, opts.Checks = w.binding(o)
	return opts
}

func (w *twin) doNewSession(o op) error {
	opts := w.sessionOptions(o)
	real, err := w.db.NewSession(opts)
	synctest.Wait()
	info := infoOf(opts)
	if real != nil {
		info.ID = real.ID()
	}
	var s *modelSession
	failed := w.m.write(func(tx *modelTx) (err error) {
		s, err = tx.newSession(info)
		return err
	})
	if err := sameError(err, failed); err != nil || failed != nil {
		return err
	}
	w.know(real, s)
	return nil
}

// know keeps a session, and forgets one that ended, if there are many.
func (w *twin) know(real *lockd.Session, model *modelSession) {
	w.names[model.info.ID] = model.info.Name
	w.sessions = append(w.sessions, twinSession{real, model})
	if gone := slices.IndexFunc(w.sessions, func(s twinSession) bool {
		return s.model.cause != nil
	}); gone >= 0 && len(w.sessions) > 8 {
		w.sessions = slices.Delete(w.sessions, gone, gone+1)
	}
}

var errAbort = errors.New("the function failed")

// twinTx is a transaction of several operations on both sides.
type twinTx struct {
	op         op
	reals      []func(tx *lockd.Txn) (any, error)
	rules      []func(tx *modelTx) (any, error)
	got, want  []outcome
	index      uint64 // the index that the real one was told
	modelIndex uint64
}

type outcome struct {
	value any
	err   error
}

func (w *twin) newTx(o op) *twinTx {
	x := &twinTx{op: o}
	for _, part := range o.of {
		real, rule := w.part(part)
		x.reals, x.rules = append(x.reals, real), append(x.rules, rule)
	}
	return x
}

func (x *twinTx) real(tx *lockd.Txn) error {
	x.index = tx.Index()
	for _, real := range x.reals {
		value, err := real(tx)
		x.got = append(x.got, outcome{value, err})
		if x.stops(err) {
			return err
		}
	}
	return x.last()
}

func (x *twinTx) rule(tx *modelTx) error {
	x.modelIndex = tx.index
	for _, rule := range x.rules {
		value, err := rule(tx)
		x.want = append(x.want, outcome{value, err})
		if x.stops(err) {
			return err
		}
	}
	return recovered(x.last)
}

// stops reports whether the function gives up at the first operation that is refused.
func (x *twinTx) stops(err error) bool { return err != nil && x.op.c%4 == 1 }

// last is how the function ends.
func (x *twinTx) last() error {
	if x.panics() {
		panic(errAbort)
	}
	if x.op.c%8 == 2 {
		return errAbort
	}
	return nil
}

func (x *twinTx) panics() bool { return x.op.c%8 == 6 }

// same compares what the function saw.
func (x *twinTx) same(w *twin) error {
	if x.index != x.modelIndex || len(x.got) != len(x.want) {
		return fmt.Errorf("transaction: got index %d and %d results, want %d and %d",
			x.index, len(x.got), x.modelIndex, len(x.want))
	}
	for i, got := range x.got {
		if err := w.same(got.value, got.err, x.want[i].value, x.want[i].err); err != nil {
			return fmt.Errorf("operation %d of the transaction: %w", i, err)
		}
	}
	return nil
}

// doTransaction does several operations in one, which may fail in the middle.
func (w *twin) doTransaction(o op) error {
	x := w.newTx(o)
	err := recovered(func() error { return w.db.Update(x.real) })
	synctest.Wait()
	failed := w.m.write(x.rule)
	if x.panics() && failed == lockd.ErrCommit {
		failed = errAbort // a panic goes on, whatever becomes of the commit
	}
	if err := sameError(err, failed); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	return x.same(w)
}

// recovered returns what fn panics with.
func recovered(fn func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = reason.(error)
		}
	}()
	return fn()
}

// part is an operation within a transaction.
func (w *twin) part(o op) (func(tx *lockd.Txn) (any, error), func(tx *modelTx) (any, error)) {
	key := o.key()
	var real func(tx *lockd.Txn) (any, error)
	switch o.kind {
	case "put":
		real = func(tx *lockd.Txn) (any, error) {
			return tx.Put(key, o.value(), &lockd.PutOptions{Flags: o.flags()})
		}
	case "compareAndSwap":
		index := w.index(o)
		real = func(tx *lockd.Txn) (any, error) {
			return tx.CompareAndSwap(key, index, o.value(), nil)
		}
	case "delete":
		real = func(tx *lockd.Txn) (any, error) { return tx.Delete(key) }
	case "compareAndDelete":
		index := w.index(o)
		real = func(tx *lockd.Txn) (any, error) { return tx.CompareAndDelete(key, index) }
	case "deletePrefix":
		real = func(tx *lockd.Txn) (any, error) { return tx.DeletePrefix(o.prefix()) }
	case "catalog", "putCheck", "beat":
		return w.catalogPart(o)
	default:
		return w.txPart(o)
	}
	return real, w.deed(o).rule
}

// txPart is an operation that there is in transactions only.
func (w *twin) txPart(o op) (func(tx *lockd.Txn) (any, error), func(tx *modelTx) (any, error)) {
	key, id, proof := o.key(), w.id(o), w.proof(o)
	var opts *lockd.LockOptions
	if o.c%2 == 1 {
		opts = &lockd.LockOptions{Value: []byte{'0' + byte(o.c)}, Flags: o.flags()}
	}
	opts = o.inMode(opts)
	switch o.kind {
	case "txLock":
		return func(tx *lockd.Txn) (any, error) { return tx.Lock(key, id, opts) },
			func(tx *modelTx) (any, error) { return tx.lock(key, id, opts) }
	case "txUnlock":
		if holders := w.m.holders(key); o.c < 12 && len(holders) > 0 {
			id = holders[o.c%len(holders)].Session.ID // mostly one that holds it
		}
		return func(tx *lockd.Txn) (any, error) { return tx.Unlock(key, id) },
			func(tx *modelTx) (any, error) { return tx.unlock(key, id) }
	case "txEndSession":
		return func(tx *lockd.Txn) (any, error) { return nil, tx.EndSession(id) },
			func(tx *modelTx) (any, error) { return nil, tx.endByID(id) }
	case "txGet":
		return func(tx *lockd.Txn) (any, error) {
				e, _ := tx.Get(key)
				return e, nil
			},
			func(tx *modelTx) (any, error) { return tx.m.keys[key], nil }
	case "checkSequencer":
		return func(tx *lockd.Txn) (any, error) { return nil, tx.CheckSequencer(proof) },
			func(tx *modelTx) (any, error) {
				if !tx.m.proves(proof) {
					return nil, lockd.ErrNotHeld
				}
				return nil, nil
			}
	}
	panic("no such operation: " + o.kind)
}

// doReplay watches from an index that has passed: nothing may be missing.
func (w *twin) doReplay(o op) error {
	from := w.m.floor + (w.m.published-w.m.floor)*uint64(o.a)/15
	scope, in := lockd.PrefixScope(o.prefix()), func(e lockd.Event) bool {
		return strings.HasPrefix(e.Key, o.prefix())
	}
	if o.d%4 == 0 {
		scope, in = lockd.KeyScope(o.key()), func(e lockd.Event) bool {
			return e.Key == o.key()
		}
	}
	var want []lockd.Event
	for _, e := range w.m.history {
		if e.Index > from && in(e) {
			want = append(want, e)
		}
	}
	if len(want) == 0 {
		return nil
	}
	var got []lockd.Event
	for e, err := range w.db.Watch(context.Background(), scope, from) {
		if err != nil {
			return err
		}
		if got = append(got, e); len(got) == len(want) {
			break
		}
	}
	slices.SortFunc(got, compareEvents)
	for i := range want {
		if !sameEvent(got[i], want[i]) {
			return fmt.Errorf("replay from %d: got  %+v\nwant %+v", from, got, want)
		}
	}
	return nil
}

// doReopen closes the database, and opens it again.
func (w *twin) doReopen() error {
	err := w.db.Close()
	synctest.Wait()
	failed := w.m.close()
	if err := sameError(err, failed); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	for _, err := range w.ends {
		if !errors.Is(err, lockd.ErrClosed) {
			return fmt.Errorf("watch: got %w, want that it is closed", err)
		}
	}
	w.ends = nil
	if err := errors.Join(w.compareState(), w.compareEvents(), w.compareSessions(),
		w.compareLocks(), w.compareCalls()); err != nil {
		return fmt.Errorf("after close: %w", err)
	}
	return w.openAgain()
}

// doCrash opens a copy of the file as it is while the database is open.
func (w *twin) doCrash() error {
	w.files++
	old := w.path
	w.path = filepath.Join(filepath.Dir(old), fmt.Sprintf("%d.db", w.files))
	if err := copyFile(w.path, old); err != nil {
		return err
	}
	if w.disk != nil {
		w.disk = w.disk.next(w.path, nil)
	}
	return w.replace(old)
}

// replace closes the database, removes old, its file, and opens the file at w.path instead.
func (w *twin) replace(old string) error {
	w.stop()
	w.failures.Store(0)
	if err := w.db.Close(); err != nil {
		return err
	}
	synctest.Wait()
	w.calls = nil
	if err := os.Remove(old); err != nil {
		return err
	}
	return w.openAgain()
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// openAgain opens the file on both sides. The old handles are of no use then.
func (w *twin) openAgain() error {
	w.stop()
	synctest.Wait()
	w.failures.Store(0)
	if err := w.keeperEnded(); err != nil {
		return err
	}
	w.sessions, w.locks, w.calls, w.standing = nil, nil, nil, nil
	w.m.reopen()
	w.open()
	for _, s := range w.m.live {
		real, err := w.db.Session(s.info.ID)
		if err != nil {
			return err
		}
		w.know(real, s)
	}
	return nil
}

func sameEntry(a, b lockd.Entry) bool {
	return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Flags == b.Flags &&
		a.Session == b.Session && a.CreateIndex == b.CreateIndex &&
		a.ModifyIndex == b.ModifyIndex && a.LockIndex == b.LockIndex && a.Fence == b.Fence
}

func sameInfo(a, b lockd.SessionInfo) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Node == b.Node && a.TTL == b.TTL &&
		a.Grace == b.Grace && a.LockDelay == b.LockDelay && a.Behavior == b.Behavior &&
		a.Lifetime == b.Lifetime && slices.Equal(a.Checks, b.Checks) &&
		a.CreateIndex == b.CreateIndex
}

// sameEvent compares an event with the model's.
func sameEvent(got, want lockd.Event) bool {
	causes, ok := want.Cause.(oneOf)
	if !ok {
		causes = oneOf{want.Cause}
	}
	is := func(c error) bool { return errors.Is(got.Cause, c) }
	clean := got.Cause == nil || is(lockd.ErrUnlocked) || is(lockd.ErrClosed)
	return slices.ContainsFunc(causes, is) && got.Lost != clean &&
		compareEvents(got, want) == 0 && got.Share == want.Share &&
		sameEntry(got.Entry, want.Entry) && sameEntry(got.Previous, want.Previous) &&
		got.Granted.ID == want.Granted.ID && got.Ended.ID == want.Ended.ID &&
		got.Waited == want.Waited &&
		sameInfo(got.Session, want.Session)
}

// compareEvents orders events: those of one index come in no order that is promised.
func compareEvents(a, b lockd.Event) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Kind, b.Kind),
		strings.Compare(a.Key, b.Key), slices.Compare(a.Session.ID[:], b.Session.ID[:]),
		cmp.Compare(a.Share.Fence, b.Share.Fence),
		slices.Compare(a.Share.Session[:], b.Share.Session[:]),
		cmp.Compare(a.Catalog.Kind, b.Catalog.Kind),
		strings.Compare(a.Catalog.Node, b.Catalog.Node),
		strings.Compare(a.Catalog.ID, b.Catalog.ID))
}

// sameError compares what a call returned with what it should have.
func sameError(got, want error) error {
	var locked, refusal *lockd.LockedError
	switch {
	case got == nil && want == nil:
		return nil
	case got == nil || want == nil:
		return fmt.Errorf("error: got %v, want %v", got, want)
	case errors.As(want, &refusal):
		if !errors.As(got, &locked) || !locked.Until.Equal(refusal.Until) ||
			!locked.Since.Equal(refusal.Since) ||
			!sameHolders(locked.Holders, refusal.Holders) {
			return fmt.Errorf("error: got %v, want %v", got, want)
		}
		same := *locked
		same.Until, same.Since, same.Holders = refusal.Until, refusal.Since, refusal.Holders
		if !reflect.DeepEqual(same, *refusal) {
			return fmt.Errorf("error: got %+v, want %+v", same, *refusal)
		}
		return nil
	}
	parts := []error{want}
	if joined, ok := want.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	for _, part := range parts {
		if !errors.Is(got, part) {
			return fmt.Errorf("error: got %v, want %v", got, part)
		}
	}
	for _, refusal := range refusals {
		if errors.Is(got, refusal) && !errors.Is(want, refusal) {
			return fmt.Errorf("error: got %v, want %v, which is no %q", got, want, refusal)
		}
	}
	return nil
}

// refusals are the errors of calls that were refused or given up. The causes of an end are not
// among them: an error may have the cause where the model does not.
var refusals = []error{
	lockd.ErrCommit, lockd.ErrFailed, lockd.ErrInvalid, lockd.ErrConflict, lockd.ErrNotHeld,
	lockd.ErrNoSession, catalog.ErrNoNode, catalog.ErrNoService, catalog.ErrNoCheck,
	context.Canceled, context.DeadlineExceeded,
}
