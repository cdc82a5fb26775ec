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

// Hub distributes events. New makes one; the zero value is not usable. Several goroutines may call
// its methods at once, and the methods wait only for the hub's mutex.
type Hub[T any] struct {
	// mu may be locked under any other mutex: a goroutine that holds mu calls no function of a
	// caller, sends nothing and does not wait.
	mu sync.Mutex // protects what follows

	// +checklocks:mu
	ring ring[T]
	// index is the newest index that was published.
	// +checklocks:mu
	index uint64
	// +checklocks:mu
	topics topics
	// watchers is how many subscriptions have neither fired nor been given back.
	// +checklocks:mu
	watchers int
	// +checklocks:mu
	closed bool
}

// New returns a hub that keeps the newest events, all above the index floor. The events of a
// publication are kept until history newer ones have come, or until all kept events would have more
// than [MaxBytes]; those of the last publication are always kept. New panics if history is below 1.
// The hub allocates memory as events come.
func New[T any](history int, floor uint64) *Hub[T] {
	if history < 1 {
		panic("hub: history below 1")
	}
	return &Hub[T]{
		ring:   ring[T]{history: history, floor: floor},
		index:  floor,
		topics: topics{of: make(map[Scope]*Topic)},
	}
}

// Publish adds the events, in their order, and fires the topics that they concern. The index is the
// newest that is now published: the index of the last event, or a later one without events. Publish
// waits for no watcher, keeps no reference to the slice, and allocates nothing once the ring is
// full, unless the ring grows or shrinks for a publication of another size.
//
// Publish panics, and publishes nothing, if the index is below that of the previous call, or if the
// indexes of the events are not above that and up to the index, in order: a watcher that was told
// that it had seen everything up to an index would miss the events that came later.
func (h *Hub[T]) Publish(events []Event[T], index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.checkLocked(events, index)
	h.ring.push(events)
	for i := range events {
		if len(h.topics.of) == 0 {
			break
		}
		h.watchers -= h.topics.fire(events[i].Space, events[i].Name, events[i].Index)
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
	t := h.topics.of[scope]
	if t == nil {
		t = newTopic(scope)
		h.topics.add(t)
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

	if h.topics.of[t.scope] != t {
		return // it has fired
	}
	h.watchers--
	if t.watchers--; t.watchers > 0 {
		return
	}
	h.topics.remove(t)
}

// Follow returns events in scope after the cursor, in order, appended to into[:0], and the cursor
// after them. If there are many events, it returns some of them; it returns none only if there are
// none. When Follow has read all events, it subscribes as Subscribe does, under the same lock of
// the mutex: the topic fires at the first event in scope after the returned cursor. If there may be
// more to read, the topic is nil. If there are no events and no error, the topic is not nil.
//
// It returns ErrCompacted and no events if events after the cursor, in scope or not, have been
// dropped before it looked at them; the returned cursor then says how far Follow came. It unlocks
// the mutex between strides.
func (h *Hub[T]) Follow(
	scope Scope, from Cursor, into []Event[T],
) (events []Event[T], upto Cursor, topic *Topic, err error) {
	events, upto = into[:0], from
	for more := true; more && len(events) == 0; {
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
// more to look at; with an error there are none.
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
// back, and unlocks the mutex between strides. It leaves out events that are published meanwhile,
// and events that are dropped before they are read; between two events that it returns, none is
// missing.
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

// Close fires all topics; topics of later calls of Subscribe have fired already. It may be
// repeated. Events can still be published and read.
func (h *Hub[T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.closed = true
	for _, t := range h.topics.of {
		t.fire(0)
	}
	h.topics, h.watchers = topics{}, 0
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

	return len(h.topics.of)
}
