package writer

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hook"
)

// Host is the database that the writer writes to, and that it tells what happens. All methods are
// called under the mutex and must not block, except StepFailed, which is called without the mutex.
type Host interface {
	// Notify tells what has become durable, in the order of G10.
	Notify(o engine.Outcome)

	// Committed is told of each commit: for how many calls it was made, how long it took, and the
	// error, if it failed.
	Committed(writers int64, took time.Duration, err error)

	// Failed is told that the database takes no further writes, because it is not known what the
	// file has.
	Failed(err error)

	// StepFailed is told that a step of a checkpoint has failed. What was committed is durable.
	StepFailed(err error)
}

// Config configures a writer.
type Config struct {
	Clock   clock.Clock
	Engine  *engine.Engine
	Host    Host
	Commit  error // is wrapped by the error of a commit that failed, such as lockd.ErrCommit
	Failure error // is wrapped by the error after which it is not known what the file has
	Unpaced bool  // a commit waits for no other call to join it: see package hook
	Checked bool  // a call by the function of an Update that would wait for itself panics

	Turns hook.Turns // of a test, or nil
}

// Writer writes to one database. New gives one; the zero value is not usable. Its methods may be
// called by many goroutines.
type Writer struct {
	Config
	loop      loop
	committer committer
	refusal   atomic.Pointer[error] // why nothing is written any more; stored under the mutex

	// The mutex orders all writes and all decisions. A goroutine that holds it may lock the hub's
	// mutex, or the mutex of a handle's ending; one that holds one of these does not lock it.
	mutex                 // protects what follows
	open    *batch        // the batch that calls join now
	flying  *batch        // the batch that is being committed, or nil
	instant time.Time     // of the write that runs
	retry   retry         // after a commit that failed
	commits Commits       // since the writer was made
	alarm   *expiry.Alarm // the one timer, for what is due next
	wakes   chan struct{} // the first channel to close when the mutex is unlocked
	more    []chan struct{}
}

// New returns a writer. It begins nothing yet.
func New(config Config) *Writer {
	w := &Writer{Config: config, open: newBatch()}
	w.loop = loop{
		wake: make(chan struct{}, 1), closing: make(chan struct{}), finished: make(chan struct{}),
	}
	w.committer.token = make(chan struct{}, 1)
	w.committer.pace.off = config.Unpaced
	w.turn = make(chan struct{}, 1)
	w.function.checked = config.Checked || checking
	w.alarm = expiry.NewAlarm(config.Clock, w.rouse)
	return w
}

// Time reads the clock. Apart from Time, only alarms read it.
func (w *Writer) Time() time.Time { return w.Clock.Now() }

// Refused returns why nothing is written any more, or nil while writing goes on. It takes no lock.
func (w *Writer) Refused() error {
	if refusal := w.refusal.Load(); refusal != nil {
		return *refusal
	}
	return nil
}

// Lock locks the mutex for a call by the user.
func (w *Writer) Lock() {
	w.begin()
	w.mutex.Lock()
}

// LockBeside locks the mutex for a call by the user, also while the function of an Update runs.
func (w *Writer) LockBeside() {
	w.begin()
	w.mutex.LockBeside()
}

// Wake closes the channel when the mutex is unlocked after this write. The caller holds the mutex.
func (w *Writer) Wake(c chan struct{}) {
	if w.wakes == nil {
		w.wakes = c
		return
	}
	w.more = append(w.more, c)
}

// unlock unlocks the mutex after a write, and wakes the calls whose waits the write ended.
func (w *Writer) unlock() {
	if w.Engine.Pending() && !w.open.led {
		w.rouse() // rows that no caller waits for have to be committed too
	}
	wakes, more := w.wakes, w.more
	w.wakes, w.more = nil, nil
	w.Unlock()
	if wakes != nil {
		close(wakes)
	}
	for _, c := range more {
		close(c)
	}
}

// Do does fn as one write, and returns when what fn wrote is durable; if fn wrote nothing, or
// returned an error, when the state that fn saw is durable. After an error nothing that fn wrote
// remains.
func (w *Writer) Do(fn func(tx *engine.Txn) error) error {
	return w.DoAll(func() error { return w.Apply(fn) })
}

// DoAll is Do for several transactions, which body makes by Apply, each at an index of its own
// (G5). What was applied before an error stays.
func (w *Writer) DoAll(body func() error) error {
	w.Lock()
	return w.write(body)
}

// write does body as a write, and unlocks the mutex, which the caller holds.
func (w *Writer) write(body func() error) error {
	returned := false
	defer func() {
		if !returned { // body panicked, or ended its goroutine
			w.Engine.Running().Undo()
			w.arm()
			w.unlock()
		}
	}()
	err := w.run(body)
	returned = true
	// Before the outcome is told, what body saw has to be durable.
	b, lead := w.join()
	w.unlock()
	return w.settle(b, lead, err)
}

// DoSoon does fn as a write that its caller does not wait for: the writer's goroutine commits it.
// It reports false, and does nothing, if nothing is written any more.
func (w *Writer) DoSoon(fn func(tx *engine.Txn)) bool {
	w.mutex.Lock()
	defer w.unlock()
	return w.run(func() error { return w.Apply(certain(fn)) }) == nil
}

// certain is fn as a write that cannot be refused.
func certain(fn func(tx *engine.Txn)) func(tx *engine.Txn) error {
	return func(tx *engine.Txn) error {
		fn(tx)
		return nil
	}
}

// run ends what is due first, and then does body.
func (w *Writer) run(body func() error) error {
	if refusal := w.Refused(); refusal != nil {
		return refusal
	}
	w.instant = w.Time()
	due := w.endDue(maxDue - w.open.due)
	if w.Engine.Durable() { // else each write is a batch of its own
		w.open.due += due
	}
	err := body()
	w.endRefused()
	w.arm()
	return err
}

// Apply is the one way to change anything: it runs fn in a transaction, and keeps all that fn did,
// or none of it. It is called by the body of DoAll, or of Close.
func (w *Writer) Apply(fn func(tx *engine.Txn) error) error {
	tx := w.Engine.Begin(w.instant)
	if err := fn(tx); err != nil {
		tx.Undo()
		return err
	}
	if outcome := tx.Seal(); len(outcome.Effects)+len(outcome.Events) > 0 {
		w.Host.Notify(outcome)
	}
	tx.Done()
	return nil
}

// settle waits for the batch, and returns the error of its commit; or err, if the state on which
// err was decided has become durable.
func (w *Writer) settle(b *batch, lead bool, err error) error {
	if b == nil {
		return err
	}
	if lead {
		w.commit(b)
		if w.Turns != nil {
			w.Turns.Return()
		}
	} else {
		end := w.Wait(hook.Commit, nil)
		<-b.done
		b.leave()
		end()
	}
	return cmp.Or(b.err, err)
}

// EndAll calls end under the mutex, and then wakes the calls whose waits end has ended. It is
// called after the last write.
func (w *Writer) EndAll(end func()) {
	w.mutex.Lock()
	defer w.unlock()
	end()
}

// Arm sets the timer for what is due next. The caller holds the mutex.
func (w *Writer) Arm() {
	w.instant = w.Time()
	w.arm()
}

// begin is called by every call of the user before it locks the mutex. Calls by the function of an
// Update are part of the Update's turn.
func (w *Writer) begin() {
	// running is read without the mutex: one goroutine runs at a time.
	if w.Turns != nil && !w.function.running {
		w.Turns.Begin()
	}
}

// Wait tells a test that the caller is about to wait, and why. keys are the keys whose locks the
// caller waits for, if any. The caller calls end when it has waited.
func (w *Writer) Wait(why hook.Reason, keys []string) (end func()) {
	if w.Turns == nil {
		return func() {}
	}
	return w.Turns.Wait(why, keys)
}

// hold is Wait for a caller that then owns something that other callers need.
func (w *Writer) hold() (end func()) {
	if w.Turns == nil {
		return func() {}
	}
	return w.Turns.Hold()
}

// joinTurns is called by the writer's goroutine, which calls leave when it ends.
func (w *Writer) joinTurns() (leave func()) {
	if w.Turns == nil {
		return func() {}
	}
	return w.Turns.Join()
}
