// Package expiry keeps deadlines in one heap, and wakes its owner by one timer.
//
// It orders and it wakes; it decides nothing. Whether something is due is decided by the owner,
// which reads the clock and calls [Heap.Pop] with what it read. A timer that fires early, late,
// twice or never therefore ends nothing too soon: at worst the owner looks in vain, or looks later.
//
// A [Heap], its items and an [Alarm] have no lock of their own: the owner calls every method under
// its mutex. No method blocks. [Limits] have a heap, an alarm and a mutex of their own, for an
// owner whose mutex may be held for long.
//
// Instants are compared as package time compares them, so the instants of one heap should all come
// from one clock: either all with a monotonic reading or all without.
package expiry
