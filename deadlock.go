package lockd

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockd/lockd/internal/engine"
)

// DeadlockError says that a call was refused because it would have closed a circle: the holder of a
// lock that the call asked for waits, directly or through others, for a lock that the call itself
// holds. The calls that waited before go on waiting. The refused caller may release its locks, and
// try again.
//
// A call holds the locks that its context carries: Lock.Context carries the lock, as do the
// contexts of WithLock, Keeper.Lead, slots and leaders, and all their children. A lock that no
// context carries is in no circle. A circle counts even if a MaxHold, a TTL or the end of a context
// would open it later. A call that does not wait, such as TryLock, is never refused with this
// error.
type DeadlockError struct {
	// Steps are the calls of the circle, the refused one first. Each waits for a lock that the next
	// one holds, and the last for one that the first holds.
	Steps []DeadlockStep
}

// DeadlockStep is one call of a circle of calls that wait for each other.
type DeadlockStep struct {
	Holds  Holder     // the lock that its context carries and the previous call waits for
	Waiter WaiterInfo // the call
	Awaits string     // the key in Waiter.Keys whose lock the next call holds
}

// deadlockError converts d to the type that users know.
func deadlockError(d *engine.Deadlock) *DeadlockError {
	now := d.Steps[0].Waiter.Began
	e := new(DeadlockError)
	for _, step := range d.Steps {
		e.Steps = append(e.Steps, DeadlockStep{
			Holds:  holdersOf([]engine.Holder{step.Holds})[0],
			Waiter: waiterInfo(step.Waiter, now), Awaits: step.Key,
		})
	}
	return e
}

// Error returns the text: a clause for each step.
func (e *DeadlockError) Error() string {
	var text strings.Builder
	text.WriteString("deadlock: ")
	for i, step := range e.Steps {
		holder, waits := step.Holds, step.Waiter
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%s holds %.100q", who(holder.Session.Name, holder.Session.ID),
			holder.Grant.Key)
		if !holder.Since.IsZero() {
			now := e.Steps[0].Waiter.Since
			text.WriteString(" for " + engine.Span(engine.Lasted(holder.Since, now)))
		}
		if i == 0 {
			fmt.Fprintf(&text, " and asks for %.100q", step.Awaits)
			continue
		}
		fmt.Fprintf(&text, " and waits for %.100q for %s", step.Awaits, engine.Span(waits.Waited))
	}
	return text.String()
}

// carriedLocks is the context key for the locks that a context carries.
type carriedLocks struct{}

// carriedBy returns the locks that the context carries. It calls a method of the context, whose
// type may be the user's.
func carriedBy(ctx context.Context) *engine.Carried {
	carried, _ := ctx.Value(carriedLocks{}).(*engine.Carried)
	return carried
}
