// Package hub keeps the newest events in a ring, and turns events into closed channels.
//
// # Watching
//
// A watcher calls [Hub.Follow] with its cursor, and delivers the events that Follow returns, until
// Follow returns a [Topic]. Then the watcher has read all events, and sleeps until [Topic.Changed]
// is closed, at the next event in its scope. It goes on from the cursor advanced to just before
// [Topic.First]. It gives back a topic for which it no longer waits.
//
// The watcher has to advance its cursor, because while it sleeps, or delivers the last events,
// events in other scopes may push the ring past the cursor. In its own scope there was no event
// before the one that closed the channel, so the watcher may go straight to that. Only a watcher
// that has events still to read can be overtaken by the ring; Follow then returns [ErrCompacted].
// If a watcher had read all events when a publication came, it has time to read all of that
// publication: the ring drops a publication as a whole, and only after history newer events (for
// bytes see [New]).
//
// This holds only if the watcher subscribes to the topic in the same step in which it reaches the
// end of the ring. So Follow does both under one lock of the mutex. [Hub.Subscribe] is for a caller
// that only waits.
//
// # Publishing
//
// A publisher waits for no watcher. It may wait for a call of [Hub.Follow], but no longer than that
// call takes to look at 256 events. An event costs one lookup of its name, if names of its space
// are watched, and one lookup for each distinct length of the watched prefixes, whatever the number
// of watchers.
//
// # Order
//
// Events are read in the order in which they were published. The indexes of one call of
// [Hub.Publish] do not fall, and are all above those of the calls before it.
//
// # Locks
//
// A Hub has one mutex, and calls no function of its callers while it holds the mutex. So a caller
// may hold any other mutex. A Hub has no goroutine.
package hub
