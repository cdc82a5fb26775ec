package lockd

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/internal/schema"
)

// Watch yields every change in the scope after the index, in order, as it becomes durable: one
// event for each key and index, and one for each grant of a shared lock that began or ended at that
// index. From the index of a Snapshot, an Entry or an Event it misses no change. Index 0 is the
// creation of the database.
//
// It also ends with ErrInvalid for an index that the database has not reached, and ErrCompacted
// when events that it has yet to look at were dropped (Options.History), in the scope or not; once
// it has caught up, those outside do not count. Events are not in the file: after an Open the
// oldest index to watch from is the last index in the file.
func (db *DB) Watch(ctx context.Context, scope Scope, index uint64) iter.Seq2[Event, error] {
	mustHave(ctx != nil, "context")
	db.writer.MustNotBeFunction()
	return func(yield func(Event, error) bool) {
		err := db.follow(ctx, scope, index, func(e *engine.Event) bool {
			return yield(eventOf(e), nil)
		})
		if err != nil {
			yield(Event{}, wrap("watch", scope.name(), err))
		}
	}
}

// follow yields every event in the scope after the index. It returns nil if yield reports false.
func (db *DB) follow(
	ctx context.Context, scope Scope, index uint64, yield func(*engine.Event) bool,
) error {
	db.writer.MustNotBeFunction() // the loop may have been begun in the function of an Update
	if newest := db.rows.Published(); index > newest {
		return db.orClosed(invalid("index %d is ahead of the database, which is at %d", index,
			newest))
	}
	at := hub.After(max(index, schema.FirstIndex)) // lower indexes are before the first change too
	var events []engine.Event
	var topic *hub.Topic
	defer func() { db.hub.Unsubscribe(topic) }() // also when the loop panics
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		events, at, topic, err = db.hub.Follow(scope.events(), at, events)
		if err != nil {
			return db.orClosed(ErrCompacted)
		}
		for i := range events {
			if !yield(&events[i]) {
				return nil
			}
		}
		if topic == nil {
			continue
		}
		if at, err = db.waitFor(ctx, topic, at); err != nil {
			return err
		}
	}
}

// waitFor waits for the topic, and returns the cursor from which there is something to read.
func (db *DB) waitFor(ctx context.Context, topic *hub.Topic, at hub.Cursor) (hub.Cursor, error) {
	end := db.writer.Wait(hook.Change, nil)
	select {
	case <-topic.Changed():
		end()
		if first := topic.First(); first > 0 {
			// The events before first that fell out of the history were not in scope.
			return at.Advance(first - 1), nil
		}
		return at, errDatabaseClosed
	case <-ctx.Done():
		end()
		return at, ctx.Err()
	}
}

// Wait blocks until the index of the scope (Snapshot.IndexOf) is above the given index. It returns
// a state in which that is so, and at, the scope's index in that state: the next call waits from
// there. For an index that the database has not reached it returns at once. If the scope's index
// rises without a change in the scope, no call that waits returns for that, but the next call with
// the old index does (B8).
//
// A limit bounds the wait, by the database's clock; 0 means no limit. When it has passed, as one
// below 0 has, Wait returns the state without an error; then at need not be above index.
func (db *DB) Wait(
	ctx context.Context, scope Scope, index uint64, limit time.Duration,
) (state *Snapshot, at uint64, err error) {
	mustHave(ctx != nil, "context")
	db.writer.MustNotBeFunction()
	state, at, err = db.wait(ctx, scope, index, limit)
	return state, at, wrap("wait", scope.name(), err)
}

func (db *DB) wait(
	ctx context.Context, scope Scope, index uint64, limit time.Duration,
) (state *Snapshot, at uint64, err error) {
	var d expiry.Limit
	var topic *hub.Topic
	defer func() {
		db.limits.Remove(&d)
		db.hub.Unsubscribe(topic)
	}()
	for {
		topic = db.hub.Subscribe(scope.scope)
		if !db.keyStandsAt(scope, index) {
			state = db.Snapshot()
			at = state.IndexOf(scope)
			if at > index || index > state.Index() {
				return state, at, nil
			}
		}
		if limit < 0 {
			break
		}
		if limit > 0 && d.Passed() == nil {
			db.limits.Add(&d, limit)
		}
		why := hook.Change
		if limit > 0 {
			why = hook.Limit
		}
		end := db.writer.Wait(why, nil)
		select {
		case <-topic.Changed():
			end()
			first := topic.First()
			if first == 0 {
				return nil, 0, errDatabaseClosed
			}
			if first <= index {
				continue // the caller has seen it: Get shows it a moment before the hub does
			}
		case <-d.Passed():
			end()
		case <-ctx.Done():
			end()
			return nil, 0, ctx.Err()
		}
		break
	}
	state = db.Snapshot()
	return state, state.IndexOf(scope), nil
}

// keyStandsAt reports whether the scope is one key that exists and has not changed after the index.
// Most calls wait for such a key, and begin to wait without a Snapshot.
func (db *DB) keyStandsAt(scope Scope, index uint64) bool {
	if scope.scope.Space != engine.SpaceKeys || scope.scope.Match != hub.Exact {
		return false
	}
	row := db.rows.Keys.Get(scope.scope.Name)
	return row != nil && row.ModifyIndex <= index && index <= db.rows.Published()
}

// Follow yields an event of kind StateLoaded, whose State has the keys with the prefix, and then
// each later change of them as Watch does, so that a caller can keep a copy. If events were dropped
// (Options.History), the state comes again, with ErrCompacted as the Cause, and replaces the copy.
// No index is below one that was yielded before.
func (db *DB) Follow(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	mustHave(ctx != nil, "context")
	db.writer.MustNotBeFunction()
	return func(yield func(Event, error) bool) {
		load := func(s *Snapshot, gap error) bool {
			return yield(Event{Index: s.Index(), Kind: StateLoaded, State: s, Cause: gap}, nil)
		}
		change := func(e *engine.Event) bool { return yield(eventOf(e), nil) }
		if err := db.track(ctx, PrefixScope(prefix), load, change); err != nil {
			yield(Event{}, wrap("follow", prefix, err))
		}
	}
}

// track calls load with the state, and then change with each later event in the scope. It begins
// again after each gap; the first time gap is nil. It returns nil if load or change reports false.
func (db *DB) track(
	ctx context.Context, scope Scope,
	load func(s *Snapshot, gap error) bool, change func(*engine.Event) bool,
) error {
	var gap error
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := db.Snapshot()
		if !load(s, gap) {
			return nil
		}
		gap = db.follow(ctx, scope, s.Index(), change)
		if !errors.Is(gap, ErrCompacted) {
			return gap
		}
	}
}
