package lockdui

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// stepsShown is how many grants and ends of a key's history are shown.
const stepsShown = 60

// keyView is the content of the page of one key.
type keyView struct {
	Lock  lock
	Entry lockd.Entry // zero: there is no such key
	Size  int         // of the value, in bytes

	History []step
	Dropped int // the number of steps before History that are not shown

	// Second is the present second while a hold, delay or wait lasts, so that its bar grows.
	Second int64
}

func (keyView) template() string { return "key" }

// step is the beginning of a grant, or its end.
type step struct {
	grant
	party
	Index  uint64
	At     time.Time
	What   string // "granted", or how the grant ended
	Waited time.Duration
	Ended  bool
	Lost   bool // the grant ended otherwise than by its owner
	Cause  string
	Delay  time.Duration // the length of the lock-delay that began with the loss
}

// stepsOf returns what the event says of grants: the end of one, the beginning of one, or both when
// the lock was handed on.
func stepsOf(e lockd.Event) []step {
	var steps []step
	one := step{grant: grant{Mode: e.Share.Mode}, Index: e.Index, At: e.Time}
	if ended := e.Ended; !ended.ID.IsZero() {
		s := one
		s.party, s.Fence = partyOf(ended), max(e.Previous.Fence, e.Share.Fence)
		s.What, s.Ended, s.Lost, s.Cause = "released", true, e.Lost, printed(e.Cause.Error())
		switch {
		case e.Kind == lockd.KeyDeleted || errors.Is(e.Cause, lockd.ErrKeyDeleted):
			s.What = "deleted"
		case e.Lost:
			s.What = "lost"
		}
		if !e.DelayedUntil.IsZero() {
			s.Delay = e.DelayedUntil.Sub(e.Time)
		}
		steps = append(steps, s)
	}
	if granted := e.Granted; !granted.ID.IsZero() {
		s := one
		s.party, s.Fence = partyOf(granted), max(e.Entry.Fence, e.Share.Fence)
		s.What, s.Waited = "granted", e.Waited
		steps = append(steps, s)
	}
	return steps
}

// key makes the page of one key.
func (h *handler) key(r *http.Request, now time.Time) (content, error) {
	key := r.URL.Query().Get("k")
	v := keyView{Lock: lockAt(h.db, key)}
	if entry, ok := h.db.Get(key); ok {
		v.Entry, v.Size = entry, len(entry.Value)
		v.Entry.Value = nil
	}
	for _, event := range h.db.History(key) {
		v.History = append(v.History, stepsOf(event)...)
	}
	v.Dropped = max(0, len(v.History)-stepsShown)
	v.History = v.History[v.Dropped:]
	if len(v.Lock.Holders)+len(v.Lock.Delays)+len(v.Lock.Queue) > 0 {
		v.Second = now.Unix()
	}
	return v, nil
}

// Began is when the call that was granted the lock began to wait, if the step is a grant.
func (s step) Began() time.Time { return s.At.Add(-s.Waited) }

// Newest has the steps with the newest first.
func (v keyView) Newest() []step {
	steps := slices.Clone(v.History)
	slices.Reverse(steps)
	return steps
}
