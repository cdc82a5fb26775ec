package lockd

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Leadership is who leads, or that nobody does: what Observe yields. The zero value is a vacancy
// in which nobody has led.
type Leadership struct {
	// Fence is that of the leader's grant. In a vacancy it is that of the last leader, as far as it
	// is known: 0 if there was none, or the key has been deleted since.
	Fence uint64

	// Leader proves the leadership; its Session leads. In a vacancy it is the zero value, which
	// proves nothing: DB.If refuses every write with it.
	Leader Sequencer
	Name   string // of the leader's session
	Value  []byte // that the leader campaigned with, or proclaimed; shared: do not change it

	// Until is when the lock-delay of the last leader ends, by the database's clock: nobody leads
	// before. The zero Time if there is none.
	Until time.Time
	// Cause is why the last leader does not lead any more; nil if Observe has not seen it go.
	// errors.Is finds the cause in it.
	Cause error
}

// Vacant reports whether nobody leads.
func (l Leadership) Vacant() bool { return l.Leader == Sequencer{} }

// newsTo reports whether who knows of the one before has to be told of l.
func (l Leadership) newsTo(before Leadership) bool {
	return l.Leader != before.Leader || l.Fence != before.Fence ||
		!bytes.Equal(l.Value, before.Value) ||
		!l.Until.IsZero() && !l.Until.Equal(before.Until)
}

// Observe yields who leads in the election that the key names: first the present state, and then
// each leader, each value that one proclaims, and each vacancy. They come in the order of their
// fences, as they become durable; none that is older than one before. Where one leader hands over
// to the next there is no vacancy between. The end of a lock-delay is no change of its own, for
// Leadership.Until told of it. It blocks between changes.
//
// Who looks so late that Options.History does not reach far enough back gets the state that is
// present then, and misses what was between. No leader ever waits for an observer.
//
// It ends with an error: ctx's, ErrClosed at the end of the database, or ErrInvalid for an empty
// key or one over MaxKeySize. The Leadership that comes with it is the zero value, which looks like
// a vacancy: look at the error first. It is a single-use iterator. A nil ctx panics.
func (db *DB) Observe(ctx context.Context, key string) iter.Seq2[Leadership, error] {
	checkContext(ctx)
	db.writer.MustNotBeFunction()
	return func(yield func(Leadership, error) bool) {
		err := db.orClosed(checkKey(key))
		if err == nil {
			o := observer{db: db, key: key, yield: yield}
			err = o.run(ctx)
		}
		if err != nil {
			yield(Leadership{}, wrap("observe", key, err))
		}
	}
}

// observer is one run of Observe.
type observer struct {
	db    *DB
	key   string
	yield func(Leadership, error) bool
	last  *Leadership // that it yielded
}

// run returns nil if the loop was left.
func (o *observer) run(ctx context.Context) error {
	load := func(s *Snapshot, _ error) bool { return o.show(o.present(s)) }
	return o.db.track(ctx, KeyScope(o.key), load, o.take)
}

// show yields what is not known yet.
func (o *observer) show(l Leadership) bool {
	if o.last != nil {
		l.Fence = max(l.Fence, o.last.Fence) // that of a vacancy went with the key
		if !l.newsTo(*o.last) {
			return true
		}
	}
	o.last = &l
	return o.yield(l, nil)
}

// present is the state that the snapshot shows.
func (o *observer) present(s *Snapshot) Leadership {
	e, _ := s.Get(o.key)
	l := Leadership{Fence: e.Fence}
	if !e.Session.IsZero() {
		info, _ := s.Session(e.Session)
		l.Leader, l.Name, l.Value = e.Sequencer(), info.Name, e.Value
		return l
	}
	if row := s.rows.Delays.Get(o.key); row != nil {
		// The row stays until a later write, and after a restart no delay is longer than it was.
		now := o.db.writer.Time()
		if left := min(row.Until.Sub(now.Round(0)), row.Length); left > 0 {
			l.Until = now.Round(0).Add(left)
		}
	}
	return l
}

// take makes of an event of the key what there is to tell.
func (o *observer) take(e *engine.Event) bool {
	r := &e.Body
	old, _ := r.Old.(*schema.Key)
	row, _ := r.New.(*schema.Key)
	switch LockChange(r.Lock) {
	case LockGranted, LockHandedOn:
		return o.show(Leadership{
			Fence: row.Fence, Leader: entryOf(row).Sequencer(), Name: r.Holder.Name,
			Value: row.Value,
		})
	case LockReleased, LockLost, LockDeleted:
		l := Leadership{Fence: old.Fence, Cause: r.Cause}
		if r.Delay != nil {
			l.Until = r.Delay.Until
		}
		return o.show(l)
	}
	if o.last.Vacant() {
		return true
	}
	l := *o.last
	l.Value = row.Value
	return o.show(l)
}
