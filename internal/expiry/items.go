package expiry

import "container/heap"

var _ heap.Interface = (*items)(nil)

// items is a binary heap whose members know their position, so that any of them can be moved or
// removed without a search.
type items []*Item

// Len implements [heap.Interface].
func (h items) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h items) Less(i, j int) bool { return h[i].before(h[j]) }

// Swap implements [heap.Interface].
func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = int32(i), int32(j)
}

// Push implements [heap.Interface].
func (h *items) Push(x any) {
	it := x.(*Item)
	it.position = int32(len(*h))
	*h = append(*h, it)
}

// Pop implements [heap.Interface].
func (h *items) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil // what has left must not be kept from the garbage collector
	*h = (*h)[:last]
	return it
}
