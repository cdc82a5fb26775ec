package hub

import "sort"

// MaxBytes is how many bytes the events of a hub keep at most, by their sizes. Those of the last
// publication are kept whatever their sizes.
const MaxBytes = 64 << 20

// ring holds the newest events. Events are numbered as they come, from 0 on, and the slot of an
// event is its number modulo the number of slots.
//
// A publication is kept whole, until as many events as the history is long have come after it: so
// who had seen all before it can read it in peace, however many events it has. The ring is then
// longer than the history by one publication at most. Bytes are not given such a margin, because
// they may be very many: a publication that alone is over MaxBytes goes with the next one.
type ring[T any] struct {
	history int
	slots   []slot[T]
	kept    int    // how many of the newest events are kept; the other slots are empty
	first   int    // how many of them are of the oldest publication
	bytes   uint64 // that those kept do keep, by their sizes
	next    uint64 // the number of the next event
	floor   uint64 // events with this index or a lower one may be missing
}

// slot has room for an event.
type slot[T any] struct {
	event Event[T]
	last  bool // of its publication
}

// oldest returns the number of the oldest event that is kept.
func (r *ring[T]) oldest() uint64 { return r.next - uint64(r.kept) }

// slot returns the slot of that number.
func (r *ring[T]) slot(sequence uint64) *slot[T] {
	return &r.slots[sequence%uint64(len(r.slots))]
}

// at returns the event of that number, which must be one that is kept. The event stays the ring's.
func (r *ring[T]) at(sequence uint64) *Event[T] { return &r.slot(sequence).event }

// push adds a publication, in place of the oldest ones if there is no room for it.
func (r *ring[T]) push(events []Event[T]) {
	n := len(events)
	if n == 0 {
		return
	}
	if r.history == 0 {
		r.floor = events[n-1].Index
		r.next += uint64(n)
		return
	}
	bytes := uint64(0)
	for i := range events {
		bytes += uint64(events[i].Size)
	}
	for r.kept > 0 && (r.kept-r.first+n >= r.history || r.bytes+bytes > MaxBytes) {
		r.drop()
	}
	r.fit(r.kept + n)
	for i := range events {
		*r.slot(r.next + uint64(i)) = slot[T]{event: events[i], last: i == n-1}
	}
	if r.kept == 0 {
		r.first = n
	}
	r.next += uint64(n)
	r.kept += n
	r.bytes += bytes
}

// drop takes out the oldest publication, so that what it keeps is free at once.
func (r *ring[T]) drop() {
	for ; r.first > 0; r.first-- {
		s := r.slot(r.oldest())
		r.floor = s.event.Index
		r.bytes -= uint64(s.event.Size)
		r.kept--
		*s = slot[T]{}
	}
	for r.first < r.kept {
		r.first++
		if r.slot(r.oldest() + uint64(r.first) - 1).last {
			return
		}
	}
}

// fit sees to it that there are slots for so many events, and not many more than that or than the
// history is long.
func (r *ring[T]) fit(events int) {
	size := len(r.slots)
	switch {
	case events > r.history && events > size:
		size = events + events/4
	case events > size:
		size = min(max(2*size, events, 16), r.history)
	case size > 2*max(events, r.history):
		size = max(events, r.history)
	default:
		return
	}
	slots := make([]slot[T], size)
	for sequence := r.oldest(); sequence < r.next; sequence++ {
		slots[sequence%uint64(size)] = *r.slot(sequence)
	}
	r.slots = slots
}

// seek returns the number of the first event that the cursor has not passed. It reports false if
// that event may be missing.
func (r *ring[T]) seek(from Cursor) (uint64, bool) {
	oldest := r.oldest()
	if from.sequence != 0 && from.sequence >= oldest {
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
