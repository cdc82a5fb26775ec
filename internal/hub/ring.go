package hub

import "sort"

// ring holds the newest events. Events are numbered as they come, from 0 on, and the slot of an
// event is its number modulo the capacity.
type ring[T any] struct {
	capacity int
	slots    []Event[T] // grows up to capacity
	next     uint64     // the number of the next event
	floor    uint64     // events with this index or a lower one may be missing
}

// oldest returns the number of the oldest event that is kept.
func (r *ring[T]) oldest() uint64 { return r.next - uint64(len(r.slots)) }

// at returns the event of that number, which must be one that is kept. The event stays the ring's.
func (r *ring[T]) at(sequence uint64) *Event[T] {
	return &r.slots[sequence%uint64(r.capacity)]
}

// push adds the event, in place of the oldest one if the ring is full.
func (r *ring[T]) push(event *Event[T]) {
	switch {
	case r.capacity == 0:
		r.floor = event.Index
	case len(r.slots) < r.capacity:
		if len(r.slots) == cap(r.slots) {
			r.grow()
		}
		r.slots = append(r.slots, *event)
	default:
		slot := r.at(r.next)
		r.floor = slot.Index
		*slot = *event
	}
	r.next++
}

// grow makes room for one event at least, but never for more than the capacity, as append would.
func (r *ring[T]) grow() {
	grown := make([]Event[T], len(r.slots), min(max(2*cap(r.slots), 16), r.capacity))
	copy(grown, r.slots)
	r.slots = grown
}

// seek returns the number of the first event that the cursor has not passed. It reports false if
// that event may be missing.
func (r *ring[T]) seek(from Cursor) (uint64, bool) {
	oldest := r.oldest()
	if from.sequence != 0 && from.sequence >= oldest {
		// The index may be incomplete by now; but the missing part of it has been read.
		return from.sequence, true
	}
	if from.index < r.floor {
		return 0, false
	}
	passed := sort.Search(len(r.slots), func(i int) bool {
		return r.at(oldest+uint64(i)).Index > from.index
	})
	return oldest + uint64(passed), true
}
