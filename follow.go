package lockd

import (
	"context"
	"errors"
	"iter"

	"github.com/lockd/lockd/internal/engine"
)

// Follow yields the state of the keys with the prefix, and then each change of them: for whoever
// keeps something in step with them, such as a copy of a configuration, or a list of instances. The
// empty prefix covers all keys.
//
// The first event is of kind StateLoaded, and its State has the keys as they are at its Index. Then
// come the changes after that, as Watch yields them, in order, each as it becomes durable. If the
// ones that come next are no longer kept, because the loop took longer than Options.History
// reaches, there is a gap: the state comes again, with ErrCompacted as the Cause. Changes were
// missed then, and a key that is not in the state is gone. So what was made of earlier events is
// replaced whenever a state comes, by what it has. No index is below one that was yielded before.
//
// It blocks between events, and no writer ever waits for it. It ends with an error: ctx's, or
// ErrClosed at the end of the database. It is a single-use iterator. A nil ctx panics.
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
