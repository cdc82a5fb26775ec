package hub

import (
	"errors"
	"math"
	"slices"
	"sync"
)

// ErrCompacted is returned when events after the cursor have been dropped from the ring, or were
// never in it.
var ErrCompacted = errors.New("hub: events compacted")

// stride is the number of events that a reader looks at before it lets others have the mutex.
const stride = 256

// Hub distributes events. It comes from [New]; the zero value is not usable. Its methods may be
// called by several goroutines at once, and wait for nothing but the hub's mutex.
type Hub[T any] struct {
	// mu may be taken under any other mutex, for nothing is called, sent or waited for under it.
	mu sync.Mutex // protects what follows

	// +checklocks:mu
	ring ring[T]
	// index is the newest index that was published.
	// +checklocks:mu
	index uint64
	// spaces are few, and none is without topics.
	// +checklocks:mu
	spaces []*space
	// watchers is how many subscriptions have neither fired nor been given back.
	// +checklocks:mu
	watchers int
	// +checklocks:mu
	closed bool
}

// New returns a hub that keeps the newest events, and that knows nothing of events at or below the
// index floor. The events of a publication are kept until history newer ones have come, or until
// all would be over [MaxBytes]; those of the last publication always are. New panics if history is
// below 1. Memory is taken as events come.
func New[T any](history int, floor uint64) *Hub[T] {
	if history < 1 {
		panic("hub: history below 1")
	}
	return &Hub[T]{
		ring:  ring[T]{history: history, floor: floor},
		index: floor,
	}
}

// Publish adds the events, in their order, and fires the topics that they concern. The index is the
// newest that is now published: the index of the last event, or a later one without events. Publish
// waits for no watcher, keeps no reference to the slice, and allocates nothing once the ring is
// full, unless the ring grows or shrinks for a publication of another size.
//
// Publish panics, and publishes nothing, if the index is below the one of the call before, or if
// the indexes of the events do not lie between the two, in order: a watcher that was told that it
// had seen everything up to an index would miss what came later.
func (h *Hub[T]) Publish(events []Event[T], index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.checkLocked(events, index)
	h.ring.push(events)
	for i := range events {
		if len(h.spaces) == 0 {
			break
		}
		if s := h.spaceLocked(events[i].Space); s != nil {
			h.watchers -= s.fire(events[i].Name, events[i].Index)
			h.tidyLocked(s)
		}
	}
	h.index = index
}

// checkLocked panics if the events cannot be published at index.
func (h *Hub[T]) checkLocked(events []Event[T], index uint64) {
	if index < h.index {
		panic("hub: index moves back")
	}
	lowest := h.index + 1
	for i := range events {
		if events[i].Index < lowest || events[i].Index > index {
			panic("hub: event out of order")
		}
		lowest = events[i].Index
	}
}

// spaceLocked returns the space of that name, or nil if it has no topics.
func (h *Hub[T]) spaceLocked(name byte) *space {
	for _, s := range h.spaces {
		if s.name == name {
			return s
		}
	}
	return nil
}

// tidyLocked forgets a space without topics.
func (h *Hub[T]) tidyLocked(s *space) {
	if s.size() == 0 {
		h.spaces = slices.DeleteFunc(h.spaces, func(other *space) bool { return other == s })
	}
}

// Subscribe returns the topic of the scope, which fires at the first event from now on. All
// subscribers of one scope share one topic until it fires. After Close the topic has fired already.
// A caller that no longer waits for the topic gives it back with Unsubscribe.
func (h *Hub[T]) Subscribe(scope Scope) *Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subscribeLocked(scope)
}

func (h *Hub[T]) subscribeLocked(scope Scope) *Topic {
	if h.closed {
		t := newTopic(scope)
		t.fire(0)
		return t
	}
	s := h.spaceLocked(scope.Space)
	if s == nil {
		s = newSpace(scope.Space)
		h.spaces = append(h.spaces, s)
	}
	t := s.find(scope)
	if t == nil {
		t = newTopic(scope)
		s.add(t)
	}
	t.watchers++
	h.watchers++
	return t
}

// Unsubscribe gives the topic back, once for each time that it was subscribed to; the last one
// removes it. It does nothing to a topic that has fired, or to nil.
func (h *Hub[T]) Unsubscribe(t *Topic) {
	if t == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()

	s := h.spaceLocked(t.scope.Space)
	if s == nil || s.find(t.scope) != t {
		return // it has fired
	}
	h.watchers--
	if t.watchers--; t.watchers > 0 {
		return
	}
	s.remove(t)
	h.tidyLocked(s)
}

// Follow returns events in scope after the cursor, in order, appended to into[:0], and the cursor
// after them: some of them if there are many, and none only if there are none. In the moment in
// which Follow has read all there is, it subscribes like Subscribe: the topic fires at the first
// event in scope after the cursor returned. If there may be more to read, the topic is nil. If
// there are no events and no error, the topic is not nil.
//
// It returns ErrCompacted and no events if events that it had to look at have been dropped, in
// scope or not; the cursor then says how far it came. It unlocks the mutex on the way.
func (h *Hub[T]) Follow(
	scope Scope, from Cursor, into []Event[T],
) (events []Event[T], upto Cursor, topic *Topic, err error) {
	events, upto = into[:0], from
	for more := true; more && len(events) == 0 && err == nil; {
		h.mu.Lock()
		events, upto, more, err = h.scanLocked(scope, upto, events)
		if err == nil && !more {
			topic = h.subscribeLocked(scope)
		}
		h.mu.Unlock()
	}
	return events, upto, topic, err
}

// scanLocked looks at one stride of events, appends those in scope, and reports whether there are
// more to look at.
func (h *Hub[T]) scanLocked(
	scope Scope, from Cursor, into []Event[T],
) (events []Event[T], upto Cursor, more bool, err error) {
	start, ok := h.ring.seek(from)
	if !ok {
		return into, from, false, ErrCompacted
	}
	stop := min(start+stride, h.ring.next)
	for sequence := start; sequence < stop; sequence++ {
		event := h.ring.at(sequence)
		if scope.covers(event.Space, event.Name) {
			into = append(into, *event)
		}
	}
	if stop < h.ring.next {
		return into, Cursor{index: h.ring.at(stop).Index - 1, sequence: stop}, true, nil
	}
	return into, from.Advance(h.index), false, nil
}

// Kept returns the events in scope that are kept, the oldest first. It reads them from the newest
// back, and unlocks the mutex on the way. Events that are published meanwhile are not among them,
// nor events that are dropped before they are read; between two that it returns, none is missing.
func (h *Hub[T]) Kept(scope Scope) []Event[T] {
	var events []Event[T]
	for before, more := uint64(math.MaxUint64), true; more; {
		h.mu.Lock()
		before = min(before, h.ring.next)
		oldest := h.ring.oldest()
		for n := 0; n < stride && before > oldest; n++ {
			before--
			if event := h.ring.at(before); scope.covers(event.Space, event.Name) {
				events = append(events, *event)
			}
		}
		more = before > oldest
		h.mu.Unlock()
	}
	slices.Reverse(events)
	return events
}

// Close fires all topics, and those of later calls of Subscribe. It may be repeated. Events can
// still be published and read.
func (h *Hub[T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.closed = true
	for _, s := range h.spaces {
		for t := range s.all() {
			t.fire(0)
		}
	}
	h.spaces, h.watchers = nil, 0
}

// Watchers returns the number of subscriptions that have neither fired nor been given back.
func (h *Hub[T]) Watchers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watchers
}

// Topics returns the number of topics that are watched.
func (h *Hub[T]) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()

	n := 0
	for _, s := range h.spaces {
		n += s.size()
	}
	return n
}
