package engine

import (
	"time"

	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/internal/schema"
)

// Event is one change of one row, for watchers.
type Event = hub.Event[Record]

// Record is what an event keeps: pointers to rows, which are immutable.
type Record struct {
	Kind     RecordKind
	Time     time.Time // zero unless a grant or a session began or ended
	Cause    error     // of that end
	Old, New any
	Holder   *schema.Session // the session that the lock was granted to, or nil
	Waited   time.Duration   // how long Holder had waited for the lock
	Former   *schema.Session // the session whose grant has ended, or nil
	Delay    *schema.Delay   // that the lock is in since that end
}

// Deletes reports whether the row Old was deleted, so that there is no New.
func (r *Record) Deletes() bool { return r.Kind%2 == 0 }

// RecordKind says what changed. Each kind of a put is followed by the kind of the deletion.
type RecordKind uint8

// The kinds.
const (
	KeyPut            RecordKind = iota + 1 // a key was made, or changed
	KeyDeleted                              // a key was deleted
	ShareGranted                            // a session was granted a shared lock
	ShareEnded                              // a session no longer shares a lock
	SessionCreated                          // a session began
	SessionGone                             // a session ended
	NodePut                                 // a node was made, or changed
	NodeDeleted                             // a node was removed
	ServicePut                              // a service was made, or changed
	ServiceDeleted                          // a service was removed
	CheckPut                                // a check was made, or changed
	CheckDeleted                            // a check was removed
	AttachmentPut                           // an attachment was made, or changed
	AttachmentDeleted                       // an attachment was removed
)

// Spaces of names among the events.
const (
	SpaceKeys     = 1 << iota // the keys
	SpaceShares               // the keys, for the shares of their locks
	SpaceSessions             // the IDs of sessions
	SpaceCatalog              // the catalog, all under one empty name
)

// Kinds of tombstones.
const (
	GraveKey     = 'k' // of one key
	GravePrefix  = 'p' // of the keys with a prefix
	GraveSession = 's' // of one session
)

// Marks.
const (
	MarkSessions = "sessions" // the index of the last change of any session
	MarkCatalog  = "catalog"  // the index of the last change of the catalog
	markRestored = "restored" // the index of the last restore that carried an index over
)
