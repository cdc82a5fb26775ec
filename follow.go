package lockd

import (
	"context"
	"errors"
	"iter"

	"github.com/lockd/lockd/internal/engine"
)

// Follow yields the state of the keys with the prefix, and then each change of them, so that a
// caller keeps a copy of them up to date. The empty prefix covers all keys.
//
// The first event is of kind StateLoaded: its State has the keys as they are at its Index. The
// changes after that follow as Watch yields them. If events were dropped (Options.History), because
// the loop was too slow, the state comes again, with ErrCompacted as the Cause: it replaces what
// the caller has, and a key that is not in it is gone. No index is below one that was yielded
// before.
//
// It blocks between events; no writer waits for it. It ends with an error: ctx's, or ErrClosed. It
// is a single-use iterator.
func (db *DB) Follow(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	checkContext(ctx)
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

// track calls load with the state, and then change with each event in the scope after that; and so
// again after each gap. The first time the gap is nil. It returns nil if one of the two reports
// false.
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
