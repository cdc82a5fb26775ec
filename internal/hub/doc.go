// Package hub keeps the newest events in a ring, and turns events into closed channels.
//
// # Watching
//
// A watcher reads what there is, and then sleeps on a [Topic], whose channel is closed at the next
// event in its scope:
//
//	for {
//		events, cursor, topic, err = h.Follow(scope, cursor, events)
//		if err != nil {
//			return err // ErrCompacted: read the state anew, and begin again there
//		}
//		deliver(events)
//		if topic == nil {
//			continue // there may be more
//		}
//		select {
//		case <-topic.Changed():
//		case <-ctx.Done():
//			h.Unsubscribe(topic)
//			return ctx.Err()
//		}
//		if topic.First() == 0 {
//			return errClosed
//		}
//		cursor = cursor.Advance(topic.First() - 1)
//	}
//
// The last line matters. While the watcher sleeps, or delivers what it read last, events elsewhere
// push the ring on past its cursor; but nothing happened in its scope before the event that closed
// the channel, and so it may go straight there. Only a watcher with events still to read, in a ring
// that may hold them, can be overtaken; it is cut off with [ErrCompacted]. One that had read all
// that there was when a publication came cannot miss part of that: it is dropped whole, and no
// sooner than the history's length of events has come after it (see [New] for bytes).
//
// That depends on the topic being taken at the end of the ring, in the same moment. So [Hub.Follow]
// does both. [Hub.Read] alone reads, and [Hub.Subscribe] alone waits. A caller that stops watching
// gives the topic back.
//
// # Publishing
//
// A publisher waits for no watcher. It is held up by [Hub.Read] and [Hub.Follow] no longer than it
// takes to look at 256 events. An event costs one lookup if its scopes are watched exactly, and one
// for every distinct length of the prefixes that are watched, in its own space; it does not matter
// how many watch.
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
