package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockd/lockd"
)

// What most people come for: work under a lock, exclusive or shared, with a slot of a semaphore,
// and as the leader; and seeing who leads, and how keys change.
func Example_recipes() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	work := func(ctx context.Context, proof lockd.Sequencer) error {
		fmt.Println("proved:", db.CheckSequencer(proof) == nil)
		return ctx.Err()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// Under a lock.
	err := session.WithLock(ctx, "jobs/nightly", nil, work)

	// Beside others that share the lock. A call without a mode is exclusive, and waits for them.
	shared := &lockd.LockOptions{Mode: lockd.Shared}
	err = errors.Join(err, session.WithLock(ctx, "page", shared, work))

	// With one of three slots. Each session has one; the others wait in order. To a resource that
	// compares fences a slot proves nothing (ExampleSlot_Sequencer).
	slot := must(session.Acquire(ctx, "pool", 3))
	err = errors.Join(err, work(slot.Context(ctx), slot.Sequencer()), slot.Release())

	// As the leader, term after term, by a session that is renewed, and made anew after its end.
	keeper := must(db.NewKeeper(&lockd.SessionOptions{Name: "db1", TTL: 10 * time.Second}))
	err = errors.Join(err, keeper.Lead(ctx, "leader", []byte("10.0.0.7"), work), keeper.Close())

	// Who leads: now, and from now on.
	for leadership, ended := range db.Observe(ctx, "leader") {
		fmt.Println("vacant:", leadership.Vacant(), ended)
		break
	}

	// The keys with a prefix: now, and from now on (ExampleDB_Follow).
	for event, ended := range db.Follow(ctx, "config/") {
		fmt.Println(event.Kind, ended)
		break
	}

	fmt.Println(err)
	// Output:
	// proved: true
	// proved: true
	// proved: true
	// proved: true
	// vacant: true <nil>
	// state loaded <nil>
	// <nil>
}
