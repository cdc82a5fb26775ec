package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockd/lockd"
)

// A pool of workers of which two at a time may do the work. Each has a session of its own.
func ExampleSession_Acquire() {
	db := must(lockd.New(nil))
	defer db.Close()
	ctx := context.Background()

	var workers sync.WaitGroup
	for range 5 {
		workers.Go(func() {
			session := must(db.NewSession(nil))
			defer session.Close()
			slot := must(session.Acquire(ctx, "pool", 2))
			defer slot.Release()
			// The work, which ends with slot.Context(ctx) if the slot is lost.
		})
	}
	workers.Wait()
	entry, _ := db.Get("pool/.lock")
	fmt.Printf("%s\n", entry.Value)
	// Output: {"Limit":2,"Holders":{}}
}

// What TryAcquire says when there is no slot, and what SetLimit does about it.
func ExampleSlot() {
	db := must(lockd.New(nil))
	defer db.Close()
	first := must(db.NewSession(&lockd.SessionOptions{Name: "importer"}))
	second := must(db.NewSession(nil))

	slot := must(first.TryAcquire("pool", 1))
	_, err := second.TryAcquire("pool", 1)
	if full, ok := errors.AsType[*lockd.LockedError](err); ok {
		fmt.Printf("%v, %d in all, the longest by %s\n", full.Obstacle, full.Limit,
			full.HolderName)
	}
	err = db.SetLimit("pool", 2)
	fmt.Println("one more:", err == nil)
	_, err = second.TryAcquire("pool", 2)
	fmt.Println("taken:", err == nil)

	// A holder's write is refused after its slot has been released.
	held := db.If(slot.Sequencer())
	err = slot.Release()
	fmt.Println("released:", err == nil && errors.Is(slot.Err(), lockd.ErrUnlocked))
	_, err = held.Put("result", []byte("late"), nil)
	fmt.Println("written late:", !errors.Is(err, lockd.ErrNotHeld))
	// Output:
	// all slots taken, 1 in all, the longest by importer
	// one more: true
	// taken: true
	// released: true
	// written late: false
}

// Two at a time work on the rows of a table outside lockd, which compares fences to refuse late
// writes. The fences of the slots do not tell who is late; the fences of a lock for each row do.
func ExampleSlot_Sequencer() {
	db := must(lockd.New(nil))
	defer db.Close()
	ctx := context.Background()
	first := must(db.NewSession(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay}))
	second := must(db.NewSession(nil))
	slot := must(first.Acquire(ctx, "pool", 2)).Sequencer()
	newer := must(second.Acquire(ctx, "pool", 2)).Sequencer()
	fmt.Println("smaller, and held:", slot.Fence < newer.Fence && db.CheckSequencer(slot) == nil)

	var row lockd.Guard // of row 7; every row has one
	lock := must(first.Lock(ctx, "table/7", nil))
	fmt.Println("write:", row.Check(lock.Sequencer()))

	fmt.Println("the first is lost:", db.EndSession(first.ID()))
	next := must(second.Lock(ctx, "table/7", nil))
	fmt.Println("write of the next:", row.Check(next.Sequencer()))
	err := row.Check(lock.Sequencer())
	fmt.Println("late write refused:", errors.Is(err, lockd.ErrNotHeld))
	// Output:
	// smaller, and held: true
	// write: <nil>
	// the first is lost: <nil>
	// write of the next: <nil>
	// late write refused: true
}

// The limit of a semaphore is set in one place. The calls for slots name no limit, so it can be
// changed while the program runs.
func ExampleDB_SetLimit() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	err := db.SetLimit("pool", 3)
	fmt.Println("set:", err == nil)
	_, err = session.TryAcquire("pool", 2)
	fmt.Println("taken with another limit:", !errors.Is(err, lockd.ErrConflict))
	_, err = session.TryAcquire("pool", 0)
	fmt.Println("taken with the semaphore's own:", err == nil)
	// Output:
	// set: true
	// taken with another limit: false
	// taken with the semaphore's own: true
}
