// Package expiry keeps deadlines in one heap, and wakes its owner by one timer.
//
// The package orders deadlines and wakes the owner; it decides nothing. The owner decides whether
// something is due: it reads the clock and calls [Heap.Pop] with the time. So a timer that fires
// early, late, twice or never ends nothing too soon: at worst the owner looks in vain, or later.
//
// A [Heap], its items and an [Alarm] have no lock of their own: the owner calls every method under
// its mutex. No method blocks. [Limits] have their own heap, alarm and mutex, and end what has
// passed on goroutines of their own, for an owner whose mutex may be held for long.
//
// Instants are compared as package time compares them, so the instants of one heap should all come
// from one clock: either all with a monotonic reading or all without.
package expiry
