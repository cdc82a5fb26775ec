// Package waitq keeps waiters in line, one queue per thing that is waited for.
//
// A waiter has a [Place] in every queue that it stands in, and may stand in several at once. Who is
// served is the owner's decision. A decision may have to be taken back, because it could not be
// made durable, and the waiter must then be where it was. So a place that a decision has been made
// about is first set aside, which the rest of the queue sees as gone, and then either restored or
// left for good:
//
//	place := queue.Front()
//	place.SetAside() // served: the next in line is at the front
//	if committed {
//		place.Leave()
//	} else {
//		place.Restore()
//	}
//
// A waiter that gives up leaves in the same way, whatever its place in line, and holds up no other.
//
// Queues and places have no lock of their own: the owner calls every method under its mutex. No
// method blocks.
package waitq
