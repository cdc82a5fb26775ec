package lockd

import (
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// EventKind says what changed. The zero value is no event.
type EventKind uint8

// The kinds.
const (
	KeyPut            EventKind = iota + 1 // KeyPut: a key was made, or changed.
	KeyDeleted                             // KeyDeleted: a key was deleted.
	SessionCreated                         // SessionCreated: a session began.
	SessionEnded                           // SessionEnded: a session ended.
	NodePut                                // NodePut: a node was made, or changed.
	NodeDeleted                            // NodeDeleted: a node was removed.
	ServicePut                             // ServicePut: a service was made, or changed.
	ServiceDeleted                         // ServiceDeleted: a service was removed.
	CheckPut                               // CheckPut: a check was made, or changed.
	CheckDeleted                           // CheckDeleted: a check was removed.
	AttachmentPut                          // AttachmentPut: an attachment was made, or changed.
	AttachmentDeleted                      // AttachmentDeleted: an attachment was removed.
	ShareGranted                           // ShareGranted: a session was granted a shared lock.
	ShareEnded                             // ShareEnded: a session no longer shares a lock.
	StateLoaded                            // StateLoaded: no change; DB.Follow begins with it.
)

// String returns the kind in words.
func (k EventKind) String() string {
	return name(k, "none", "key put", "key deleted", "session created", "session ended",
		"node put", "node deleted", "service put", "service deleted", "check put", "check deleted",
		"attachment put", "attachment deleted", "share granted", "share ended", "state loaded")
}

// LockChange says what a change of a key did to its lock.
type LockChange uint8

// The changes.
const (
	LockUnchanged LockChange = iota // LockUnchanged: it is as it was
	LockGranted                     // it was free, and is held
	LockHandedOn                    // it went from one grant to the next
	LockReleased                    // its holder released it
	LockLost                        // its holder's session ended, or ForceUnlock took it
	LockDeleted                     // its key was deleted
)

// String returns the change in words.
func (c LockChange) String() string {
	return name(c, "unchanged", "granted", "handed on", "released", "lost", "deleted")
}

// Event is one change of one key, session or part of the catalog by one transaction, or the state
// that DB.Follow yields. The zero value is none.
type Event struct {
	Index uint64
	Kind  EventKind

	// Key is the key that changed, if one did. Entry is its entry after the change, and Previous
	// before it; the zero Entry if there was none.
	Key             string
	Entry, Previous Entry

	// Lock says how the key's lock changed: one grant of it, if it is shared. Cause is why a holder
	// lost or released it, why a session ended, or why the state is repeated. errors.Is finds the
	// cause in it.
	Lock  LockChange
	Cause error

	// State is the whole state at Index if the kind is StateLoaded, and nil otherwise.
	State *Snapshot

	// Session is the session that was created or ended, or the owner of an attachment, of which
	// only the ID is known.
	Session SessionInfo

	// Share is the grant of a shared lock that began or ended, with Lock and Cause. Its key is as
	// it was, and Entry and Previous are zero.
	Share Sequencer

	// Node, and ID within it, name what changed in the catalog. ID is the name of an attachment.
	Node, ID string
}

// eventOf makes of an event what Watch yields.
func eventOf(event *engine.Event) Event {
	r := &event.Body
	e := Event{
		Index: event.Index, Kind: EventKind(r.Kind), Lock: LockChange(r.Lock), Cause: r.Cause,
	}
	row := r.New
	switch e.Kind {
	case SessionEnded, NodeDeleted, ServiceDeleted, CheckDeleted, AttachmentDeleted, ShareEnded:
		row = r.Old
	}
	switch row := row.(type) {
	case *schema.Key:
		old, _ := r.Old.(*schema.Key)
		e.Entry, e.Previous = entryOf(row), entryOf(old)
		e.Key = e.Entry.Key
		if e.Kind == KeyDeleted {
			e.Key = e.Previous.Key
		}
	case *schema.Share:
		e.Key, e.Share = row.Key, sequencerOf(engine.SequencerOfShare(row))
	case *schema.Session:
		e.Session = sessionInfo(row)
	case *schema.Node:
		e.Node = row.Name
	case *schema.Service:
		e.Node, e.ID = row.Node, row.ID
	case *schema.Check:
		e.Node, e.ID = row.Node, row.ID
	case *schema.Attachment:
		e.Session.ID, e.ID = SessionID(row.Session), row.Name
	}
	return e
}
