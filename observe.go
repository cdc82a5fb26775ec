package lockd

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Leadership is the state of an election: the leader, or a vacancy.
type Leadership struct {
	// Fence is the leader's fence. In a vacancy it is the fence of the last leader, or of a session
	// that has shared the lock since; 0 if there was none, or if the key was deleted before
	// Observe began.
	Fence uint64

	// Leader is the proof of the leadership; its Session leads. It is zero in a vacancy.
	Leader Sequencer
	Name   string // of the leader's session
	Value  []byte // that the leader wrote

	// Until is the end of the last leader's lock-delay, by the database's clock, or zero.
	Until time.Time
	// Cause is why the last leader's grant ended; nil if Observe has not seen it end.
	Cause error
}

// Vacant reports whether no session leads.
func (l Leadership) Vacant() bool { return l.Leader == Sequencer{} }

// newsTo reports whether a caller that was told of before has to be told of l.
func (l Leadership) newsTo(before Leadership) bool {
	return l.Leader != before.Leader || l.Fence != before.Fence ||
		!bytes.Equal(l.Value, before.Value) ||
		!l.Until.IsZero() && !l.Until.Equal(before.Until)
}

// Observe yields the state of the election that the key names: the present state, and then each
// leader, each value that a leader proclaims, and each vacancy, in the order of their fences. A
// leader that hands over to the next makes no vacancy. Sessions that share the lock do not lead.
// The end of a lock-delay is not yielded: see Leadership.Until. If events were dropped
// (Options.History), Observe goes on with the present state. The Leadership that comes with the
// error is zero, which looks like a vacancy.
func (db *DB) Observe(ctx context.Context, key string) iter.Seq2[Leadership, error] {
	mustHave(ctx != nil, "context")
	db.writer.MustNotBeFunction()
	return func(yield func(Leadership, error) bool) {
		err := db.orClosed(checkKey(key))
		if err == nil {
			o := observer{db: db, key: key, yield: yield}
			load := func(s *Snapshot, _ error) bool { return o.show(o.present(s)) }
			err = db.track(ctx, KeyScope(key), load, o.take)
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
	last  *Leadership // the last one yielded
}

// show yields l, unless the loop knows it already.
func (o *observer) show(l Leadership) bool {
	if o.last != nil {
		l.Fence = max(l.Fence, o.last.Fence) // a vacancy's fence is deleted with the key
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
	row := s.rows.Delays.Get(o.key)
	if row != nil && engine.Mode(row.Mode) == engine.Exclusive {
		o.db.writer.LockBeside()
		if o.db.engine.DelayLasts(row, o.db.writer.Time()) {
			l.Until = row.Until
		}
		o.db.writer.Unlock()
	}
	return l
}

// take yields what an event of the key changed in the leadership, if anything.
func (o *observer) take(e *engine.Event) bool {
	r := &e.Body
	if r.Kind == engine.ShareGranted || r.Kind == engine.ShareEnded {
		return true // if the key has changed too, it has an event of its own
	}
	old, _ := r.Old.(*schema.Key)
	row, _ := r.New.(*schema.Key)
	switch {
	case r.Holder != nil:
		return o.show(Leadership{
			Fence: row.Fence, Leader: entryOf(row).Sequencer(), Name: r.Holder.Name,
			Value: row.Value,
		})
	case r.Former != nil:
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
