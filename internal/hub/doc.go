// Package hub keeps the newest events in a ring, and turns events into closed channels.
//
// # Watching
//
// A watcher calls [Hub.Follow] with its cursor, and delivers what that returns, until it returns a
// [Topic]: then all is read, and the watcher sleeps until [Topic.Changed] is closed, at the next
// event in its scope. It goes on from the cursor advanced to just before [Topic.First], and gives
// back a topic that it no longer waits for.
//
// To advance matters. While the watcher sleeps, or delivers what it read last, events elsewhere
// push the ring on past its cursor; but nothing happened in its scope before the event that closed
// the channel, and so it may go straight there. Only a watcher with events still to read, in a ring
// that may hold them, can be overtaken; it is cut off with [ErrCompacted]. A watcher that had read
// all that there was when a publication came cannot miss part of that publication: it is dropped
// whole, and not before history newer events have come (see [New] for bytes).
//
// For that the watcher has to take the topic in the moment in which it reaches the end of the ring:
// so Follow does both. [Hub.Subscribe] is for a caller that only waits.
//
// # Publishing
//
// A publisher waits for no watcher. [Hub.Follow] holds it up no longer than it takes to look at 256
// events. An event costs one lookup of its name, and one for every distinct length of the prefixes
// that are watched in its space, whatever the number of watchers.
//
// # Order
//
// Events are read in the order in which they were published. The indexes of one call of
// [Hub.Publish] do not fall, and are all above those of the calls before it.
//
// # Locks
//
// A Hub has one mutex and calls nothing while it holds it, so that it may be used under any other
// mutex. It has no goroutine.
package hub
