// Package waitq keeps waiters in line, one queue per thing that is waited for.
//
// A waiter has a [Place] in every queue that it stands in, and may stand in several at once. Which
// waiter is served is the owner's decision. A decision may have to be taken back, because it could
// not be made durable, and the waiter must then be where it was. So when the owner has decided on a
// waiter, it first sets the place aside, which hides it from the rest of the queue, and then either
// restores the place or leaves it for good.
//
// A waiter that gives up leaves in the same way, whatever its place in line, and holds up no other.
//
// Queues and places have no lock of their own: the owner calls every method under its mutex. No
// method blocks.
package waitq
