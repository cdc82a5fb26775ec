package hub

import "sort"

// MaxBytes is the most bytes that the kept events of a hub have together, by their sizes. The
// events of the last publication are kept whatever their sizes.
const MaxBytes = 64 << 20

// Event says that something happened to a name in a space. Events of one transaction share its
// Index, which is above 0. The hub never reads the Body.
type Event[T any] struct {
	Index uint64
	Space byte   // one bit: names in different spaces have nothing to do with each other
	first bool   // the first of its publication; set by the ring, here where it takes no memory
	Size  uint32 // bytes that the Body keeps from being freed, as far as they count for [MaxBytes]
	Name  string
	Body  T
}

// Cursor is how far a watcher has read. It may lie between two events of one index, and is then
// good only for the hub that it comes from. The zero value is before everything.
type Cursor struct {
	index    uint64 // everything with this index or a lower one has been read
	sequence uint64 // and so have all events below this number; 0 if the index says it all
}

// After returns the cursor of a watcher that knows everything up to index, and nothing after it.
func After(index uint64) Cursor { return Cursor{index: index} }

// Advance returns the cursor moved on to index. The watcher must know that it skips no event in its
// scope. Advance never moves a cursor back.
func (c Cursor) Advance(index uint64) Cursor {
	if index <= c.index {
		return c
	}
	return After(index)
}

// ring holds the newest events. Events are numbered as they come, from 0 on, and fill the slots in
// laps.
//
// A publication is kept whole until history newer events have come, so that a watcher that had seen
// all events before it has time to read it, however many events it has. So the ring is longer than
// the history by one publication at most. For bytes there is no such margin, because they may be
// very many: a publication that alone has more than MaxBytes is dropped when the next one comes.
type ring[T any] struct {
	history     int
	slots       []Event[T]
	kept        int    // how many of the newest events are kept; the other slots are empty
	oldestCount int    // how many of them are of the oldest publication
	bytes       uint64 // the sum of the sizes of the kept events
	next        uint64 // the number of the next event
	lap         uint64 // the number of the event in the first slot, or of the next event for it
	floor       uint64 // events with this index or a lower one may be missing
}

// oldest returns the number of the oldest event that is kept.
func (r *ring[T]) oldest() uint64 { return r.next - uint64(r.kept) }

// at returns the slot of the event with that number, which must be kept or the next one. The caller
// must not keep the slot. at does not divide, because each write calls it several times.
func (r *ring[T]) at(sequence uint64) *Event[T] {
	i := sequence - r.lap
	if sequence < r.lap { // in the lap before
		i += uint64(len(r.slots))
	}
	return &r.slots[i]
}

// push adds a publication, in place of the oldest ones if there is no room for it.
func (r *ring[T]) push(events []Event[T]) {
	n := len(events)
	if n == 0 {
		return
	}
	bytes := uint64(0)
	for i := range events {
		bytes += uint64(events[i].Size)
	}
	for r.kept > 0 && (r.kept-r.oldestCount+n >= r.history || r.bytes+bytes > MaxBytes) {
		r.drop()
	}
	if r.kept == 0 {
		r.oldestCount = n
	}
	r.fit(r.kept + n)
	for i := range events {
		at := r.at(r.next)
		*at = events[i]
		at.first = i == 0
		if r.next++; r.next-r.lap == uint64(len(r.slots)) {
			r.lap = r.next
		}
	}
	r.kept += n
	r.bytes += bytes
}

// drop drops the oldest publication: the memory that its events keep is free at once.
func (r *ring[T]) drop() {
	for range r.oldestCount {
		oldest := r.at(r.oldest())
		r.floor = oldest.Index
		r.bytes -= uint64(oldest.Size)
		r.kept--
		*oldest = Event[T]{}
	}
	r.oldestCount = min(1, r.kept)
	for r.oldestCount < r.kept && !r.at(r.oldest()+uint64(r.oldestCount)).first {
		r.oldestCount++
	}
}

// fit makes slots for that number of events, and not many more than the larger of that number and
// the history.
func (r *ring[T]) fit(events int) {
	size := len(r.slots)
	switch {
	case events > r.history && events > size:
		size = events + events/4
	case events > size:
		size = min(max(2*size, events, 16), r.history)
	case size/2 > max(events, r.history): // twice the history may overflow
		size = max(events, r.history)
	default:
		return
	}
	slots := make([]Event[T], size)
	for i := range r.kept {
		slots[i] = *r.at(r.oldest() + uint64(i))
	}
	r.slots, r.lap = slots, r.oldest()
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
