package lockd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Transition is one grant of a lock, or the end of one. The zero value is none.
type Transition struct {
	Index uint64 // of the transaction that did it
	Time  time.Time
	Key   string

	// Change is LockGranted, LockReleased, LockLost or LockDeleted. A lock that is handed on makes
	// two transitions at one index: the end of a grant, and the next grant.
	Change LockChange

	// Session was granted the lock, or held it until then. Name is its name, and empty if it has
	// none, or if the session ended and its end was dropped while History read.
	Session SessionID
	Name    string
	Fence   uint64 // of the grant
	Mode    LockMode
	Cause   error // why the grant has ended: see Event. Nil for a grant
}

// String returns the transition in words, on one line.
func (t Transition) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s index %d: ", t.Time.Format("15:04:05.000"), t.Index)
	if t.Change == LockGranted {
		granted := "granted to"
		if t.Mode == Shared {
			granted = "share granted to"
		}
		fmt.Fprintf(&text, "%s %s with fence %d", granted, who(t.Name, t.Session), t.Fence)
		return text.String()
	}
	if t.Mode == Shared {
		text.WriteString("share ")
	}
	fmt.Fprintf(&text, "%s by %s: %v", t.Change, who(t.Name, t.Session), t.Cause)
	return text.String()
}

// History returns the transitions of the key's lock that are among the kept events
// (Options.History), the oldest first; none is from before the database was opened. It reads all
// kept events, and stops writers only for a few of them at a time. It waits neither for the file
// nor for the function of an Update, and goes on answering after Close.
func (db *DB) History(key string) []Transition {
	var found []Transition
	names := make(map[SessionID]string) // of those whose end is met, and of all that are looked up
	for event := range db.hub.Backward() {
		switch {
		case event.Space == engine.SpaceKeys && event.Name == key:
			ended, granted := db.transitions(&event)
			for _, t := range []Transition{granted, ended} {
				if t.Change != LockUnchanged {
					found = append(found, t)
				}
			}
		case event.Body.Kind == engine.SessionGone:
			// The end of a session is newer than what the session did, so it is met first.
			row := event.Body.Old.(*schema.Session)
			names[SessionID(row.ID)] = row.Name
		}
	}
	for i := range found {
		if found[i].Change != LockGranted {
			found[i].Name = db.sessionName(found[i].Session, names)
		}
	}
	slices.Reverse(found)
	return found
}

// transitions returns what the event of a key did to its lock: a grant that ended, without the name
// of its session, and one that began, each with LockUnchanged if there is none.
func (db *DB) transitions(event *engine.Event) (ended, granted Transition) {
	r := &event.Body
	if r.Lock == engine.Unchanged {
		return ended, granted
	}
	both := Transition{
		Index: event.Index, Key: event.Name, Time: db.engine.Instant(r.Moment).Round(0),
	}
	switch r.Kind {
	case engine.ShareGranted:
		granted = both.of(engine.SequencerOfShare(r.New.(*schema.Share)))
		granted.Change, granted.Name = LockGranted, r.Holder.Name
		return ended, granted
	case engine.ShareEnded:
		ended = both.of(engine.SequencerOfShare(r.Old.(*schema.Share)))
		ended.Change, ended.Cause = LockChange(r.Lock), r.Cause
		return ended, granted
	}
	if r.Lock != engine.Granted {
		old := r.Old.(*schema.Key)
		ended = both.of(engine.SequencerOf(old))
		ended.Change, ended.Cause = LockChange(r.Lock), r.Cause
	}
	if r.Lock == engine.Granted || r.Lock == engine.HandedOn {
		new := r.New.(*schema.Key)
		granted = both.of(engine.SequencerOf(new))
		granted.Change, granted.Name = LockGranted, r.Holder.Name
	}
	if r.Lock == engine.HandedOn {
		ended.Change = LockChange(engine.EndOf(r.Cause))
	}
	return ended, granted
}

// of returns t as one of that grant.
func (t Transition) of(q engine.Sequencer) Transition {
	t.Session, t.Fence, t.Mode = SessionID(q.Session), q.Fence, LockMode(q.Mode)
	return t
}

// sessionName returns the name of a session that lives, or that ended since its event was met.
func (db *DB) sessionName(id SessionID, names map[SessionID]string) string {
	if name, ok := names[id]; ok {
		return name
	}
	if row := db.rows.Sessions.Get(string(id[:])); row != nil {
		names[id] = row.Name
		return row.Name
	}
	for event := range db.hub.Backward() {
		if event.Space == engine.SpaceSessions && event.Name == string(id[:]) {
			row, _ := event.Body.New.(*schema.Session)
			if row == nil {
				row = event.Body.Old.(*schema.Session)
			}
			names[id] = row.Name
			return row.Name
		}
	}
	return ""
}
