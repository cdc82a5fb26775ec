package lockd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// EventKind says what changed.
type EventKind uint8

// The kinds.
const (
	KeyPut         EventKind = iota + 1 // a key was made, or changed
	KeyDeleted                          // a key was deleted
	ShareGranted                        // a session was granted a shared lock
	ShareEnded                          // a session no longer shares a lock
	SessionCreated                      // a session began
	SessionEnded                        // a session ended
	CatalogChanged                      // see Event.Catalog
	StateLoaded                         // no change; DB.Follow begins with it
)

// String returns the kind in words.
func (k EventKind) String() string {
	return name(k, "none", "key put", "key deleted", "share granted", "share ended",
		"session created", "session ended",
		"catalog changed", "state loaded")
}

// Event is one change of one key, session or part of the catalog by one transaction, or the state
// that DB.Follow yields.
type Event struct {
	Index uint64
	Kind  EventKind

	// Key is the key that changed, if one did. Entry is its entry after the change, and Previous
	// before it, or zero.
	Key             string
	Entry, Previous Entry

	// Granted is the session that the change granted the key's lock; the fence is Entry's. Ended is
	// the session whose grant the change ended; the fence is Previous's. A change may have both.
	Granted, Ended SessionInfo

	// Waited is how long Granted waited in the queue for the lock, until Time. A wait that ended
	// without the lock has no event, but counts in Stats.GaveUp.
	Waited time.Duration

	// DelayedUntil is the end of the lock-delay that the end of Ended's grant began, or zero.
	DelayedUntil time.Time

	// Share is the grant of a shared lock that began or ended. The key is as it was, and Entry and
	// Previous are zero.
	Share Sequencer

	// Session is the session that was created or ended, or, with only its ID, the owner of an
	// attachment.
	Session SessionInfo

	// Cause is why a grant or a session ended, or why the state is repeated. Lost reports whether
	// the grant or session ended otherwise than by its owner.
	Cause error
	Lost  bool

	// Time is zero unless a grant or a session began or ended.
	Time time.Time

	// Catalog says what changed in the catalog.
	Catalog catalog.Change

	// State is the whole state at Index if the kind is StateLoaded.
	State *Snapshot
}

// String returns the event on one line, with at most 100 characters of the key.
func (e Event) String() string {
	at := ""
	if !e.Time.IsZero() {
		at = e.Time.Format("15:04:05.000 ")
	}
	return fmt.Sprintf("%sindex %d: %s", at, e.Index, e.change())
}

// change says what changed.
func (e Event) change() string {
	if !e.Ended.ID.IsZero() || !e.Granted.ID.IsZero() {
		return fmt.Sprintf("%.100q %s", e.Key, e.transition())
	}
	what := e.Kind.String()
	switch e.Kind {
	case KeyPut, KeyDeleted:
		what = fmt.Sprintf("%s %.100q", what, e.Key)
	case SessionCreated, SessionEnded:
		what = fmt.Sprintf("%s %.100q (%s)", what, e.Session.Name, e.Session.ID)
	case CatalogChanged:
		what = e.Catalog.String()
	}
	if e.Cause != nil {
		what = fmt.Sprintf("%s: %v", what, e.Cause)
	}
	return what
}

// transition says which grant of a lock has ended, which one has begun, or both.
func (e Event) transition() string {
	var text strings.Builder
	if ended := e.Ended; !ended.ID.IsZero() {
		what := "released"
		switch {
		case e.Kind == KeyDeleted && !errors.Is(e.Cause, ErrKeyDeleted):
			what = "deleted" // by the end of the session, or by the unlock
		case e.Lost: // also if any call has deleted the key
			what = "lost"
		}
		fmt.Fprintf(&text, "%s%s by %s: %v", e.share(), what, who(ended.Name, ended.ID), e.Cause)
		if e.Granted.ID.IsZero() {
			return text.String()
		}
		text.WriteString("; ")
	}
	granted := e.Granted
	fmt.Fprintf(&text, "%sgranted to %s with fence %d", e.share(),
		who(granted.Name, granted.ID), max(e.Entry.Fence, e.Share.Fence))
	if e.Waited > 0 {
		fmt.Fprintf(&text, " after a wait of %v", e.Waited)
	}
	return text.String()
}

// share returns the word that marks an event of a shared lock, or no word.
func (e Event) share() string {
	if e.Share.Mode == Shared {
		return "share "
	}
	return ""
}

// eventOf converts an event to the type that users know.
func eventOf(event *engine.Event) Event {
	r := &event.Body
	e := Event{
		Index: event.Index, Kind: EventKind(r.Kind), Cause: r.Cause,
		Lost: r.Cause != nil && !engine.Clean(r.Cause),
		Time: r.Time,
	}
	if r.Holder != nil {
		e.Granted, e.Waited = sessionInfo(r.Holder), r.Waited
	}
	if r.Former != nil {
		e.Ended = sessionInfo(r.Former)
	}
	if r.Delay != nil {
		e.DelayedUntil = r.Delay.Until
	}
	if r.Kind > engine.SessionGone {
		e.Kind = CatalogChanged
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
		e.Key, e.Entry, e.Previous = row.Key, entryOf(new), entryOf(old)
	case *schema.Share:
		e.Key, e.Share = row.Key(), sequencerOf(engine.SequencerOfShare(row))
	case *schema.Session:
		e.Session = sessionInfo(row)
	case *schema.Node:
		e.Catalog.Node = row.Name
	case *schema.Service:
		e.Catalog.Node, e.Catalog.ID = row.Node, row.ID
	case *schema.Check:
		e.Catalog.Node, e.Catalog.ID = row.Node, row.ID
	case *schema.Attachment:
		e.Session.ID, e.Catalog.ID = SessionID(row.Session), row.Name
	}
	return e
}

// History returns the kept events (Options.History) that changed the key's lock, the oldest first;
// none is from before the database was opened. It reads all kept events.
func (db *DB) History(key string) []Event {
	var found []Event
	for _, event := range db.hub.Kept(KeyScope(key).events()) {
		if event.Body.Former != nil || event.Body.Holder != nil {
			found = append(found, eventOf(&event))
		}
	}
	return found
}
