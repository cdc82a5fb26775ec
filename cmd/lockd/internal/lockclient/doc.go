// Package lockclient adds to Consul's official client what the command promises beyond it, against
// lockd or a Consul agent: an end to every request, a session that is kept alive with a deadline,
// the lock of a key that keeps its value, a slot of a semaphore, both by the protocols of the
// official client, and the data of lockd's own endpoints.
//
// # Time
//
// Work under a session has to be over before the session can end. A session lives for at least its
// TTL after the last renewal that succeeded, counted from when that was sent. A Keeper sends the
// next renewal after a third of the TTL, and gives up if none succeeds within two thirds: Done is
// closed, and until Deadline, at five sixths, there is time to stop the work.
package lockclient
