package lockd

import (
	"context"
	"iter"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/internal/schema"
)

// watch is what tells of the database: the hub, the deadlines of Wait, and the logger.
type watch struct {
	hub       *hub.Hub[engine.Record]
	deadlines deadlines
	published func()  // of a test, or nil: see hook.Probe
	logger    *logger // nil: everything is discarded
}

// init makes what the writer may tell before the database is started.
func (w *watch) init(db *DB, opts *Options) {
	w.deadlines.init(db.writer.Time, db.clock)
	w.logger = newLogger(opts)
}

// start begins the history at the index that the store has.
func (w *watch) start(db *DB, opts *Options) {
	w.hub = hub.New[engine.Record](opts.history(), db.rows.Index())
	w.logger.start(db)
}

// Scope is what a watcher watches: one key, the keys with a prefix, the sessions, one session, or
// the catalog. It is comparable. The zero value covers nothing: its index is always 1, so that Wait
// from index 0 returns at once, as for any scope, and from 1 when its limit has passed.
type Scope struct{ scope hub.Scope }

// KeyScope is the scope of one key, whether it exists or not.
func KeyScope(key string) Scope {
	return Scope{hub.Scope{Space: engine.SpaceKeys, Match: hub.Exact, Name: key}}
}

// PrefixScope is the scope of every key that begins with the prefix; the empty one covers all keys.
func PrefixScope(prefix string) Scope {
	return Scope{hub.Scope{Space: engine.SpaceKeys, Match: hub.Prefix, Name: prefix}}
}

// SessionsScope is the scope of all sessions: their creation and end.
func SessionsScope() Scope {
	return Scope{hub.Scope{Space: engine.SpaceSessions, Match: hub.Prefix}}
}

// SessionScope is the scope of one session: its creation and end.
func SessionScope(id SessionID) Scope {
	return Scope{hub.Scope{Space: engine.SpaceSessions, Match: hub.Exact, Name: string(id[:])}}
}

// CatalogScope is the scope of all nodes, services, checks and attachments.
func CatalogScope() Scope {
	return Scope{hub.Scope{Space: engine.SpaceCatalog, Match: hub.Prefix}}
}

// name is what errors call the scope.
func (s Scope) name() string {
	if s.scope.Space == engine.SpaceSessions && s.scope.Match == hub.Exact {
		return SessionID([]byte(s.scope.Name)).String()
	}
	return s.scope.Name
}

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
	StateLoaded                            // StateLoaded: no change; DB.Follow begins with it.
)

// String returns the kind in words.
func (k EventKind) String() string {
	return name(k, "none", "key put", "key deleted", "session created", "session ended",
		"node put", "node deleted", "service put", "service deleted", "check put", "check deleted",
		"attachment put", "attachment deleted", "state loaded")
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

	// Lock says how the key's lock changed. Cause is why a holder lost or released it, why a
	// session ended, or why the state is repeated. errors.Is finds the cause in it.
	Lock  LockChange
	Cause error

	// State is the whole state at Index if the kind is StateLoaded, and nil otherwise.
	State *Snapshot

	// Session is the session that was created or ended, or the owner of an attachment.
	Session SessionInfo

	// Node, and ID within it, name what changed in the catalog. ID is the name of an attachment.
	Node, ID string
}

// Watch yields every change in the scope after the index, in order, as it becomes durable: one
// event for each key and index. It blocks between events; no writer waits for it. The index of a
// Snapshot, an Entry or an Event leaves no gap to it.
//
// It ends with an error: ctx's; ErrClosed; ErrInvalid for an index that the database has not
// reached; or ErrCompacted when events that it should yield were dropped (Options.History). Then
// DB.Follow would yield the state anew. Index 0 yields every event since the database was made, as
// long as all are kept. Events are not in the file: after an Open the oldest index to watch from is
// the last one that the file had.
//
// It is a single-use iterator.
func (db *DB) Watch(ctx context.Context, scope Scope, index uint64) iter.Seq2[Event, error] {
	checkContext(ctx)
	db.writer.MustNotBeFunction()
	return func(yield func(Event, error) bool) {
		err := db.follow(ctx, scope, index, func(e *engine.Event) bool {
			return yield(eventOf(e), nil)
		})
		if err != nil {
			yield(Event{}, wrap("watch", scope.name(), err))
		}
	}
}

// follow yields every event in the scope after the index. It returns nil if yield reports false.
func (db *DB) follow(
	ctx context.Context, scope Scope, index uint64, yield func(*engine.Event) bool,
) error {
	db.writer.MustNotBeFunction() // the loop may have been begun in the function of an Update
	if newest := db.rows.Published(); index > newest {
		return db.orClosed(invalid("index %d is ahead of the database, which is at %d", index,
			newest))
	}
	at := hub.After(max(index, schema.FirstIndex)) // before the first change, as all below it
	var events []engine.Event
	var topic *hub.Topic
	defer func() { db.watch.hub.Unsubscribe(topic) }() // also when the loop panics
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		events, at, topic, err = db.watch.hub.Follow(scope.scope, at, events)
		if err != nil {
			return db.orClosed(ErrCompacted)
		}
		for i := range events {
			if !yield(&events[i]) {
				return nil
			}
		}
		if topic == nil {
			continue
		}
		if at, err = db.waitFor(ctx, topic, at); err != nil {
			return err
		}
	}
}

// waitFor waits for the topic, and returns the cursor from which there is something to read.
func (db *DB) waitFor(ctx context.Context, topic *hub.Topic, at hub.Cursor) (hub.Cursor, error) {
	over := db.writer.Wait(hook.Change, nil)
	select {
	case <-topic.Changed():
		over()
		if first := topic.First(); first > 0 {
			// What fell out of the history before it was not in scope.
			return at.Advance(first - 1), nil
		}
		return at, errDatabaseClosed
	case <-ctx.Done():
		over()
		return at, ctx.Err()
	}
}

// Wait blocks until the index of the scope is above the given one, as Snapshot.IndexOf has it, and
// returns the state that shows that, with the index of the scope in it, from which to wait next. It
// returns at once if that is so already, and for an index that the database has not reached, for
// that is not of this database. A rise without a change in the scope, as IndexOf describes it, ends
// no call that waits, only the next one (B8).
//
// If limit is above 0, Wait blocks no longer than that, by the database's clock. When the limit has
// passed it returns the state at that time, without an error; the index may not be above then.
//
// Wait returns ctx's error if ctx ends while it blocks, and ErrClosed at the end of the database.
// Before it returns it takes a Snapshot, and so waits for the function of an Update that runs. No
// writer ever waits for it. A nil ctx panics.
func (db *DB) Wait(
	ctx context.Context, scope Scope, index uint64, limit time.Duration,
) (state *Snapshot, at uint64, err error) {
	checkContext(ctx)
	db.writer.MustNotBeFunction()
	state, at, err = db.wait(ctx, scope, index, limit)
	return state, at, wrap("wait", scope.name(), err)
}

func (db *DB) wait(
	ctx context.Context, scope Scope, index uint64, limit time.Duration,
) (state *Snapshot, at uint64, err error) {
	var d deadline
	var topic *hub.Topic
	defer func() {
		db.watch.deadlines.remove(&d)
		db.watch.hub.Unsubscribe(topic)
	}()
	for {
		topic = db.watch.hub.Subscribe(scope.scope)
		if !db.keyStandsAt(scope, index) {
			state = db.Snapshot()
			at = state.IndexOf(scope)
			if at > index || index > state.Index() {
				return state, at, nil
			}
		}
		if limit > 0 && d.passed == nil {
			db.watch.deadlines.add(&d, limit)
		}
		why := hook.Change
		if limit > 0 {
			why = hook.Limit
		}
		over := db.writer.Wait(why, nil)
		select {
		case <-topic.Changed():
			over()
			first := topic.First()
			if first == 0 {
				return nil, 0, errDatabaseClosed
			}
			if first <= index {
				continue // the caller has seen it: Get shows it a moment before the hub does
			}
		case <-d.passed:
			over()
		case <-ctx.Done():
			over()
			return nil, 0, ctx.Err()
		}
		state = db.Snapshot()
		return state, state.IndexOf(scope), nil
	}
}

// keyStandsAt reports whether the scope is one key that is there and has not changed after the
// index. Most calls wait for such a key, and begin to wait without a Snapshot.
func (db *DB) keyStandsAt(scope Scope, index uint64) bool {
	if scope.scope.Space != engine.SpaceKeys || scope.scope.Match != hub.Exact {
		return false
	}
	row := db.rows.Keys.Get(scope.scope.Name)
	return row != nil && row.ModifyIndex <= index && index <= db.rows.Published()
}

// eventOf makes of an event what Watch yields.
func eventOf(event *engine.Event) Event {
	r := &event.Body
	e := Event{
		Index: event.Index, Kind: EventKind(r.Kind), Lock: LockChange(r.Lock), Cause: r.Cause,
	}
	row := r.New
	switch e.Kind {
	case SessionEnded, NodeDeleted, ServiceDeleted, CheckDeleted, AttachmentDeleted:
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
