package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// A keeper always has a session that lives: when one has ended, the next call makes another.
func ExampleKeeper() {
	ctx := context.Background()
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	keeper := must(db.NewKeeper(&lockd.SessionOptions{Name: "worker", TTL: 10 * time.Second}))

	first := must(keeper.Session(ctx))
	mock.Add(time.Hour)
	fmt.Println("renewed:", must(keeper.Session(ctx)) == first)

	fmt.Println("end session:", db.EndSession(first.ID())) // an operator does
	second := must(keeper.Session(ctx))
	fmt.Println("another:", second != first, second.Info().Name)

	fmt.Println("close:", keeper.Close())
	<-keeper.Done()
	fmt.Println("closed:", errors.Is(second.Err(), lockd.ErrClosed))
	// Output:
	// renewed: true
	// end session: <nil>
	// another: true worker
	// close: <nil>
	// closed: true
}

// A service that leads whenever it can, until it is stopped. Each of its writes proves by the
// sequencer that the service still leads.
func ExampleKeeper_Lead() {
	db := must(lockd.New(nil))
	defer db.Close()
	keeper := must(db.NewKeeper(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay}))
	defer keeper.Close()

	ctx, stop := context.WithCancel(context.Background())
	terms := 0
	err := keeper.Lead(ctx, "service/mysql/leader", []byte("10.0.0.7"),
		func(ctx context.Context, proof lockd.Sequencer) error {
			terms++
			_, err := db.If(proof).Put("service/mysql/primary", []byte("10.0.0.7"), nil)
			fmt.Printf("term %d: written: %v\n", terms, err == nil)
			if terms == 1 {
				_ = db.EndSession(proof.Session) // this leader is lost
			} else {
				stop()
			}
			<-ctx.Done()
			fmt.Println("over:", errors.Is(context.Cause(ctx), lockd.ErrDestroyed))
			return nil
		})
	fmt.Println(err)
	// Output:
	// term 1: written: true
	// over: true
	// term 2: written: true
	// over: false
	// lockd: lead "service/mysql/leader": context canceled
}

// A leader that steps down when it is asked to, by a write to a key that it watches. The next one
// leads without a lock-delay.
func ExampleKeeper_Lead_stepDown() {
	db := must(lockd.New(nil))
	defer db.Close()
	keeper := must(db.NewKeeper(nil))
	defer keeper.Close()

	asked := lockd.KeyScope("leader/step-down")
	err := keeper.Lead(context.Background(), "leader", []byte("10.0.0.7"),
		func(ctx context.Context, proof lockd.Sequencer) error {
			// An operator asks, with a value that is new: otherwise nothing would change (K3).
			go db.Put("leader/step-down", fmt.Append(nil, proof.Fence), nil)
			for _, err := range db.Watch(ctx, asked, proof.Fence) {
				return err
			}
			return nil
		})
	fmt.Println("stepped down:", err == nil)
	_, err = must(db.NewSession(nil)).TryLock("leader", nil)
	fmt.Println("the next one leads:", err == nil)
	// Output:
	// stepped down: true
	// the next one leads: true
}

// A panic ends only the term. Here the service is stopped after it.
func ExampleKeeper_Lead_panic() {
	db := must(lockd.New(nil))
	defer db.Close()
	keeper := must(db.NewKeeper(nil))
	defer keeper.Close()

	ctx, stop := context.WithCancel(context.Background())
	err := keeper.Lead(ctx, "leader", nil, func(context.Context, lockd.Sequencer) error {
		stop()
		panic("out of luck")
	})
	fmt.Println("stopped:", errors.Is(err, context.Canceled))
	_, last, _ := strings.Cut(err.Error(), "before that, ")
	fmt.Println(last)
	// Output:
	// stopped: true
	// the leader's function panicked: out of luck
}

// Standing for an election by hand; Keeper.Lead does all of it.
func ExampleLeader() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	leader := must(session.Campaign(context.Background(), "leader", []byte("10.0.0.7")))
	fmt.Println("proclaimed:", leader.Proclaim([]byte("10.0.0.8")) == nil)
	entry, _ := db.Get("leader")
	fmt.Printf("%s leads: %v\n", entry.Value, entry.Sequencer() == leader.Sequencer())

	fmt.Println("resigned:", leader.Resign() == nil)
	err := leader.Proclaim([]byte("10.0.0.9"))
	fmt.Println("leads no more:", errors.Is(err, lockd.ErrNotHeld))
	// Output:
	// proclaimed: true
	// 10.0.0.8 leads: true
	// resigned: true
	// leads no more: true
}

// Following the leadership: the present state comes first, then each change.
func ExampleLeadership() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(&lockd.SessionOptions{Name: "db1"}))

	step := 0
	for leadership, err := range db.Observe(context.Background(), "leader") {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case leadership.Vacant():
			fmt.Println("nobody leads; delayed:", !leadership.Until.IsZero())
		default:
			fmt.Printf("%s leads, at %s\n", leadership.Name, leadership.Value)
		}
		switch step++; step {
		case 1:
			must(session.Campaign(context.Background(), "leader", []byte("10.0.0.7")))
		case 2:
			_ = db.EndSession(session.ID())
		case 3:
			return
		}
	}
	// Output:
	// nobody leads; delayed: false
	// db1 leads, at 10.0.0.7
	// nobody leads; delayed: true
}

// The shortest way to do something under a lock.
func ExampleSession_WithLock() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	err := session.WithLock(context.Background(), "jobs/nightly", nil,
		func(ctx context.Context, proof lockd.Sequencer) error {
			fmt.Println("held:", db.CheckSequencer(proof) == nil)
			return ctx.Err() // the lock is lost when ctx ends
		})
	fmt.Println("error:", err)
	_, left := db.Get("jobs/nightly")
	fmt.Println("the key is left:", left)
	// Output:
	// held: true
	// error: <nil>
	// the key is left: false
}
