package hub

import "sort"

// MaxBytes is how many bytes the events of a hub keep at most, by their sizes. Those of the newest
// index are kept whatever their sizes: who comes at once has them all.
const MaxBytes = 64 << 20

// ring holds the newest events. Events are numbered as they come, from 0 on, and the slot of an
// event is its number modulo the capacity.
type ring[T any] struct {
	capacity int
	slots    []Event[T] // grows up to capacity
	kept     int        // so many of the newest are; the other slots are empty
	bytes    uint64     // that these keep, by their sizes
	next     uint64     // the number of the next event
	floor    uint64     // events with this index or a lower one may be missing
}

// oldest returns the number of the oldest event that is kept.
func (r *ring[T]) oldest() uint64 { return r.next - uint64(r.kept) }

// at returns the event of that number, which must be one that is kept. The event stays the ring's.
func (r *ring[T]) at(sequence uint64) *Event[T] {
	return &r.slots[sequence%uint64(r.capacity)]
}

// push adds the event, in place of the oldest ones if there is no room for it.
func (r *ring[T]) push(event *Event[T]) {
	if r.capacity == 0 {
		r.floor = event.Index
		r.next++
		return
	}
	if r.kept == r.capacity {
		r.drop()
	}
	if len(r.slots) < r.capacity {
		if len(r.slots) == cap(r.slots) {
			r.grow()
		}
		r.slots = append(r.slots, *event)
	} else {
		*r.at(r.next) = *event
	}
	r.next++
	r.kept++
	r.bytes += uint64(event.Size)
	for r.bytes > MaxBytes && r.at(r.oldest()).Index < event.Index {
		*r.drop() = Event[T]{} // so that what it keeps is free at once
	}
}

// drop takes out the oldest event, and returns its slot.
func (r *ring[T]) drop() *Event[T] {
	slot := r.at(r.oldest())
	r.floor = slot.Index
	r.bytes -= uint64(slot.Size)
	r.kept--
	return slot
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
	passed := sort.Search(r.kept, func(i int) bool {
		return r.at(oldest+uint64(i)).Index > from.index
	})
	return oldest + uint64(passed), true
}
