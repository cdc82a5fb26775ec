package writer

import (
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hook"
)

// Host is what the writer tells: the database that it writes to. All methods are called under the
// mutex and must not block, but for StepFailed, which is called without it.
type Host interface {
	// Tell tells what has become durable, in the order of G10.
	Tell(o engine.Outcome)

	// Committed is told of each commit: for how many calls it was made, how long it took, and the
	// error, if it failed.
	Committed(writers int64, took time.Duration, err error)

	// Failed is told that nothing will be written any more, because it is not known what the file
	// has.
	Failed(err error)

	// StepFailed is told that a step of a checkpoint has failed. What was committed is durable.
	StepFailed(err error)

	// UpdateBegins and UpdateEnds are called around the function of an Update.
	UpdateBegins(now time.Time)
	UpdateEnds()
}

// Config is what a writer is made of.
type Config struct {
	Clock   clock.Clock
	Engine  *engine.Engine
	Host    Host
	Commit  error // what a commit that failed is, such as lockd.ErrCommit
	Failure error // and one of which it is not known whether it is in the file
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
	over      atomic.Pointer[error] // refusal, for calls that take no lock

	// The mutex orders all writes and all that is decided. It is taken before the hub's mutex and
	// before that of a handle's ending.
	mutex                 // protects what follows
	refusal error         // why nothing is written any more; set by Refuse
	open    *batch        // what is joined now
	flying  *batch        // what is being committed, or nil
	instant time.Time     // of the write that runs
	retry   retry         // after a commit that failed
	commits Commits       // since the writer was made
	alarm   *expiry.Alarm // the one timer, for what is due next
	told    chan struct{} // the first to be closed when the mutex is free
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
	w.alarm = expiry.NewAlarm(config.Clock, w.Rouse)
	return w
}

// Time reads the clock. Nothing else does.
func (w *Writer) Time() time.Time { return w.Clock.Now() }

// Refused returns why nothing is written any more, and nil while something is. It takes no lock.
func (w *Writer) Refused() error {
	if refusal := w.over.Load(); refusal != nil {
		return *refusal
	}
	return nil
}

// Refuse ends all writing, and says why. The caller holds the mutex.
func (w *Writer) Refuse(why error) {
	w.refusal = why
	w.over.Store(&why)
}

// Lock is that of the mutex, for a call of a user's.
func (w *Writer) Lock() {
	w.begin()
	w.mutex.Lock()
}

// LockBeside is that of the mutex, for a call of a user's.
func (w *Writer) LockBeside() {
	w.begin()
	w.mutex.LockBeside()
}

// Wake has the channel be closed when the mutex is unlocked after this write. The caller holds the
// mutex.
func (w *Writer) Wake(c chan struct{}) {
	if w.told == nil {
		w.told = c
		return
	}
	w.more = append(w.more, c)
}

// unlock frees the mutex after a write, and wakes the calls whose waits it ended.
func (w *Writer) unlock() {
	if w.Engine.Pending() && !w.open.led {
		w.Rouse() // rows that no caller waits for have to be committed too
	}
	told, more := w.told, w.more
	w.told, w.more = nil, nil
	w.Unlock()
	if told != nil {
		close(told)
	}
	for _, c := range more {
		close(c)
	}
}

// Do does fn as one write. It returns when what fn wrote is durable; if it wrote nothing, or
// returned an error, when what it saw is. After an error nothing of fn remains.
func (w *Writer) Do(fn func(tx *engine.Txn) error) error {
	w.Lock()
	return w.write(func() error { return w.Apply(fn) }, nil)
}

// DoAll is Do for several transactions, which body makes by Apply, each at an index of its own
// (G5). What was applied before an error stays.
func (w *Writer) DoAll(body func() error) error {
	w.Lock()
	return w.write(body, nil)
}

// write does body as a write for a caller that holds the mutex, which it frees. It calls over,
// unless that is nil, when body has returned, or was not called.
func (w *Writer) write(body func() error, over func()) error {
	returned := false
	defer func() {
		if !returned { // body panicked, or ended its goroutine
			w.takeBack()
			w.unlock()
		}
	}()
	err := w.run(body)
	returned = true
	if over != nil {
		over()
	}
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
	if w.refusal != nil {
		return w.refusal
	}
	w.instant = w.Time()
	due := w.endDue(maxDue - w.open.due)
	if w.Engine.Durable() { // else there are no batches: each write is one
		w.open.due += due
	}
	err := body()
	w.arm()
	return err
}

// Apply is the one way to change anything: it runs fn in a transaction, and keeps what it did, or
// none of it. It is called by the body of DoAll, or of Close.
func (w *Writer) Apply(fn func(tx *engine.Txn) error) error {
	tx := w.Engine.Begin(w.instant)
	if err := fn(tx); err != nil {
		tx.Undo()
		return err
	}
	if told := tx.Seal(); len(told.Effects)+len(told.Events) > 0 {
		w.Host.Tell(told)
	}
	tx.Done()
	return nil
}

// takeBack does what is left to do of a write whose body did not return.
func (w *Writer) takeBack() {
	w.Engine.Running().Undo()
	w.arm()
}

// settle waits for the batch, and returns the outcome: err, if it was decided on a state that has
// become durable.
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
		over := w.Wait(hook.Commit, nil)
		<-b.done
		b.leave()
		over()
	}
	if b.err != nil {
		return b.err
	}
	return err
}

// EndAll calls end under the mutex, which ends all waits after the last write, and wakes the calls.
func (w *Writer) EndAll(end func()) {
	w.mutex.Lock()
	defer w.unlock()
	end()
}

// Arm sets the timer for what is due next. The caller holds the mutex.
func (w *Writer) Arm(now time.Time) {
	w.instant = now
	w.arm()
}
