// Package waitq keeps waiters in queues, one queue for each thing that is waited for.
//
// A waiter may stand in several queues at once, and has a [Place] in each. The owner decides which
// waiter is served. If the decision cannot be made durable, the owner has to take it back, and the
// waiter must then stand where it stood. So when the owner decides on a waiter, it first sets the
// place aside, which hides the place from the rest of the queue. Later it either restores the place
// or leaves it for good.
//
// A waiter that gives up leaves in the same way, wherever it stands, and delays no other waiter.
//
// Queues and places have no lock of their own: the owner calls every method under its mutex. No
// method blocks.
package waitq
