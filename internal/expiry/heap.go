package expiry

import (
	"container/heap"
	"time"
)

// Heap holds items in the order in which they are due. It knows no clock and wakes no goroutine.
// The zero value is empty and ready. The owner's mutex guards it.
type Heap struct {
	items items
	sets  uint64 // how often Set was called
}

// Set adds the item, or moves it, to the instant at. It takes time in proportion to the logarithm
// of Len. No timer is touched.
// Set panics if the item is in another heap.
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

// Pop takes out the first item that is due, and returns it, or returns nil if none is. An item is
// due from its very instant on. Of several the earliest comes first; at one instant the lower Rank
// does, and at one rank the one that was set first.
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
