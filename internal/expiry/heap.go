package expiry

import (
	"container/heap"
	"time"
)

// Rank orders items that are due at the same instant: renewals come first, then ends, then grants,
// then notices. The zero value is Renewal.
type Rank uint8

// The ranks, in their order.
const (
	Renewal Rank = iota // something is renewed in time
	End                 // something is over
	Grant               // something becomes free
	Notice              // something is told, unless it is over at the same instant
)

// Item is one deadline. What has the deadline embeds the item or points to it. An item must not be
// copied while it is queued. The zero value is ready, and in no heap.
type Item struct {
	// Owner is what the deadline belongs to. The heap never reads it.
	Owner any

	// Rank decides among items that are due at the same instant. It must not be changed while the
	// item is queued.
	Rank Rank

	position int32     // where it is in the heap; small, for there may be very many items
	heap     *Heap     // that it is in, nil if none
	at       time.Time // when it is due
	order    uint64    // the count of Set, which decides between equals
}

// Queued reports whether the item is in a heap.
func (it *Item) Queued() bool { return it.heap != nil }

// At returns the instant for which the item was last set. It means nothing for an item that was
// never set.
func (it *Item) At() time.Time { return it.at }

// before reports whether the item comes out of the heap before other does.
func (it *Item) before(other *Item) bool {
	if c := it.at.Compare(other.at); c != 0 {
		return c < 0
	}
	if it.Rank != other.Rank {
		return it.Rank < other.Rank
	}
	return it.order < other.order
}

// Heap holds items in the order in which they are due. It knows no clock and wakes no goroutine.
// The zero value is empty and ready. The owner's mutex guards it.
type Heap struct {
	items items
	sets  uint64 // how often Set was called
}

// Set adds the item to the heap, or moves it, to the instant at. It takes time in proportion to the
// logarithm of Len, and panics if the item is in another heap.
func (h *Heap) Set(it *Item, at time.Time) {
	h.check(it)
	h.sets++
	it.at, it.order = at, h.sets
	if it.heap != nil {
		heap.Fix(&h.items, int(it.position))
		return
	}
	it.heap = h
	heap.Push(&h.items, it)
}

// Remove takes the item out, in time in proportion to the logarithm of Len. It does nothing if the
// item is in no heap, and panics if the item is in another one.
func (h *Heap) Remove(it *Item) {
	h.check(it)
	if it.heap == nil {
		return
	}
	heap.Remove(&h.items, int(it.position))
	it.heap = nil
}

// Pop takes out and returns the first item that is due, or returns nil if none is. An item is due
// at its instant, and after it. The earliest item comes first; at one instant the item of the lower
// Rank, and at one rank the item that was set first.
func (h *Heap) Pop(now time.Time) *Item {
	if len(h.items) == 0 || now.Before(h.items[0].at) {
		return nil
	}
	it := h.items[0]
	h.Remove(it)
	return it
}

// Next returns the earliest instant for which an item is queued. It reports false if there is none.
func (h *Heap) Next() (time.Time, bool) {
	if len(h.items) == 0 {
		return time.Time{}, false
	}
	return h.items[0].at, true
}

// Len returns the number of items queued.
func (h *Heap) Len() int { return len(h.items) }

// check panics if the item is in a heap, and not in this one.
func (h *Heap) check(it *Item) {
	if it.heap != nil && it.heap != h {
		panic("expiry: item is in another heap")
	}
}

// items is a binary heap, by package heap, whose members know their position, so that any of them
// can be moved or removed without a search.
type items []*Item

func (h items) Len() int { return len(h) }

func (h items) Less(i, j int) bool { return h[i].before(h[j]) }

func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = int32(i), int32(j)
}

func (h *items) Push(x any) {
	it := x.(*Item)
	it.position = int32(len(*h))
	*h = append(*h, it)
}

func (h *items) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil // what has left must not be kept from the garbage collector
	*h = (*h)[:last]
	return it
}
