package lockdui

import (
	"net/http"
	"time"

	"github.com/lockd/lockd"
)

// transitionsShown is how many transitions of a key are shown.
const transitionsShown = 60

// keyView is the content of the page of one key.
type keyView struct {
	Lock  lock
	Entry lockd.Entry // zero: there is no such key
	Size  int         // of the value, in bytes

	History []step
	Dropped int // transitions before these

	// Second is the present one while something lasts, so that its bar grows.
	Second int64
}

func (keyView) template() string { return "key" }

// step is a transition of the lock.
type step struct {
	party
	Index  uint64
	At     time.Time
	Change lockd.LockChange
	Fence  uint64
	Cause  string
	Delay  time.Duration // of a loss, if it is known
}

// Lost reports whether the step is the loss of the lock.
func (s step) Lost() bool { return s.Change == lockd.LockLost }

// Ended reports whether the step is the end of a grant.
func (s step) Ended() bool { return s.Change != lockd.LockGranted }

// key makes the page of one key.
func (h *handler) key(r *http.Request, now time.Time) (content, error) {
	key := r.URL.Query().Get("k")
	v := keyView{Lock: lockAt(h.db, key)}
	if entry, ok := h.db.Get(key); ok {
		v.Entry, v.Size = entry, len(entry.Value)
		v.Entry.Value = nil
	}
	transitions := h.db.History(key)
	if v.Dropped = max(0, len(transitions)-transitionsShown); v.Dropped > 0 {
		transitions = transitions[v.Dropped:]
	}
	for _, t := range transitions {
		s := step{
			party: party{ID: t.Session, Name: t.Name}, Index: t.Index, At: t.Time,
			Change: t.Change, Fence: t.Fence,
		}
		if t.Cause != nil {
			s.Cause = printed(t.Cause.Error())
		}
		if s.Lost() {
			s.Delay, _ = h.roster.lockDelay(t.Session)
		}
		v.History = append(v.History, s)
	}
	if len(v.Lock.Holders)+len(v.Lock.Delays)+len(v.Lock.Queue) > 0 {
		v.Second = now.Unix()
	}
	return v, nil
}

// Newest has the steps with the newest first.
func (v keyView) Newest() []step {
	steps := make([]step, 0, len(v.History))
	for i := len(v.History) - 1; i >= 0; i-- {
		steps = append(steps, v.History[i])
	}
	return steps
}
