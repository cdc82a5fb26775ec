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

// roster knows the sessions that live and why the last of them ended, from a Watch of all sessions.
// A Snapshot would say who lives, but not while the function of an Update hangs, which is when a
// person looks. Its methods may be called by many goroutines.
type roster struct {
	mu sync.Mutex // guards what follows

	from    uint64 // the index of the snapshot that live comes from
	live    map[lockd.SessionID]member
	ended   []ending      // the newest last
	missed  bool          // changes were dropped before they were seen
	changed chan struct{} // closed with the next change
}

// member is a session that lives.
type member struct {
	Info lockd.SessionInfo
	Made time.Time // zero: before the events that are kept
}

// ending is the end of a session.
type ending struct {
	Info  lockd.SessionInfo
	Index uint64
	Cause string
	Lost  bool // otherwise than by its owner
	At    time.Time
}

func newRoster(db *lockd.DB) *roster {
	r := &roster{live: make(map[lockd.SessionID]member), changed: make(chan struct{})}
	r.load(db)
	return r
}

// load takes the sessions that live from a snapshot. Those that are known already stay.
func (r *roster) load(db *lockd.DB) {
	state := db.Snapshot()
	live := make(map[lockd.SessionID]member)
	r.mu.Lock()
	defer r.mu.Unlock()
	for info := range state.Sessions() {
		live[info.ID] = member{info, r.live[info.ID].Made}
	}
	r.live, r.from = live, state.Index()
}

// follow notes what happens to sessions, those events included that are kept from before, until the
// database is closed.
func (r *roster) follow(db *lockd.DB) {
	at := uint64(0) // what was noted last
	for {
		for event, err := range db.Watch(context.Background(), lockd.SessionsScope(), at) {
			switch {
			case err == nil:
				r.note(event)
				at = event.Index
			case !errors.Is(err, lockd.ErrCompacted):
				return
			case at == 0: // the oldest events are dropped
				at = r.begin()
			default:
				r.load(db)
				at = r.begin()
				r.miss()
			}
		}
	}
}

// begin returns the index of the snapshot, to go on from.
func (r *roster) begin() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

// miss notes that there were events that were not seen.
func (r *roster) miss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = true
}

// note takes one event.
func (r *roster) note(event lockd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event.Kind {
	case lockd.SessionCreated:
		// One that is in no newer snapshot has ended since.
		if _, lives := r.live[event.Session.ID]; lives || event.Index > r.from {
			r.live[event.Session.ID] = member{event.Session, event.Time}
		}
	case lockd.SessionEnded:
		delete(r.live, event.Session.ID)
		if len(r.ended) == endsKept {
			r.ended = slices.Delete(r.ended, 0, 1)
		}
		r.ended = append(r.ended, ending{
			Info: event.Session, Index: event.Index, Cause: printed(event.Cause.Error()),
			Lost: event.Lost, At: event.Time,
		})
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// news returns a channel that is closed when a session was made or has ended.
func (r *roster) news() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// members returns the sessions that live, in no order, and the ends that are kept, the newest
// first. Complete is false if there were ends in between that are not known.
func (r *roster) members() (live []member, ended []ending, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended = slices.Clone(r.ended)
	slices.Reverse(ended)
	return slices.Collect(maps.Values(r.live)), ended, !r.missed
}
