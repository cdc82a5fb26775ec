package lockdui

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockd/lockd"
)

// endsKept is how many ends of sessions are kept.
const endsKept = 100

// roster knows when the live sessions were made and why the last sessions ended, from a Watch of
// all sessions. Its methods may be called by many goroutines.
type roster struct {
	mu sync.Mutex // guards what follows

	made    map[lockd.SessionID]time.Time // live sessions whose beginnings were noted
	ended   []ending                      // the newest last
	missed  bool                          // events were dropped before they were noted
	changed chan struct{}                 // closed when the next event is noted or missed
}

// ending is the end of a session.
type ending struct {
	Info  lockd.SessionInfo
	Index uint64
	Cause string
	Lost  bool // its owner did not close it
	At    time.Time
}

func newRoster() *roster {
	return &roster{made: make(map[lockd.SessionID]time.Time), changed: make(chan struct{})}
}

// follow notes the events of sessions until the database is closed. It begins with the
// database's first event, or after the index if the first events are no longer kept.
func (r *roster) follow(db *lockd.DB, index uint64) {
	at := uint64(0) // the index of the last event noted
	for {
		for event, err := range db.Watch(context.Background(), lockd.SessionsScope(), at) {
			switch {
			case err == nil:
				r.note(event)
				at = event.Index
			case !errors.Is(err, lockd.ErrCompacted):
				return
			case at == 0: // the oldest events are dropped
				at = index
			default:
				at = db.Stats().Index
				r.miss(db)
			}
		}
	}
}

// miss notes that events, perhaps of ends, were dropped before they were noted.
func (r *roster) miss(db *lockd.DB) {
	live := make(map[lockd.SessionID]bool)
	for s := range db.Sessions() {
		live[s.ID()] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = true
	maps.DeleteFunc(r.made, func(id lockd.SessionID, _ time.Time) bool { return !live[id] })
	r.tellLocked()
}

// note takes one event.
func (r *roster) note(event lockd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event.Kind {
	case lockd.SessionCreated:
		r.made[event.Session.ID] = event.Time
	case lockd.SessionEnded:
		delete(r.made, event.Session.ID)
		if len(r.ended) == endsKept {
			r.ended = slices.Delete(r.ended, 0, 1)
		}
		r.ended = append(r.ended, ending{
			Info: event.Session, Index: event.Index, Cause: printed(event.Cause.Error()),
			Lost: event.Lost, At: event.Time,
		})
	}
	r.tellLocked()
}

// tellLocked wakes the streams that wait for news.
func (r *roster) tellLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// news returns a channel that is closed when a session was made or has ended, or may have.
func (r *roster) news() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// all returns when the sessions were made that lived at the last event noted, and the ends that are
// kept, the newest first. complete is false if ends between these may be missing.
func (r *roster) all() (made map[lockd.SessionID]time.Time, ended []ending, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended = slices.Clone(r.ended)
	slices.Reverse(ended)
	return maps.Clone(r.made), ended, !r.missed
}
