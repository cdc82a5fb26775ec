package lockd_test

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd"
)

// A file has many readers, and now and then one writer, which reads on when it has written.
func ExampleLockMode() {
	db := must(lockd.New(nil))
	defer db.Close()
	shared := &lockd.LockOptions{Mode: lockd.Shared}
	reader := must(db.NewSession(&lockd.SessionOptions{Name: "reader"}))
	writer := must(db.NewSession(&lockd.SessionOptions{Name: "writer"}))

	first := must(reader.TryLock("file", shared))
	second := must(reader.TryLock("file", shared)) // beside the first
	_, err := writer.TryLock("file", nil)
	refused, _ := errors.AsType[*lockd.LockedError](err)
	fmt.Println("readers in the way:", len(refused.Holders))

	err = errors.Join(first.Unlock(), second.Unlock())
	lock := must(writer.TryLock("file", nil))
	before := lock.Sequencer()
	err = errors.Join(err, lock.Downgrade()) // no other writer comes in between
	fmt.Println("mode:", lock.Sequencer().Mode, err)
	fmt.Println("a reader beside it:", must(reader.TryLock("file", shared)).Err() == nil)
	fmt.Println("proof of before:", errors.Is(db.CheckSequencer(before), lockd.ErrNotHeld))
	// Output:
	// readers in the way: 2
	// mode: shared <nil>
	// a reader beside it: true
	// proof of before: true
}

// The sessions that hold a lock, whatever its mode.
func ExampleHolder() {
	db := must(lockd.New(nil))
	defer db.Close()
	for _, name := range []string{"ann", "ben"} {
		session := must(db.NewSession(&lockd.SessionOptions{Name: name}))
		must(session.TryLock("file", &lockd.LockOptions{Mode: lockd.Shared}))
	}
	for holder := range db.Snapshot().Holders("file") {
		fmt.Println(holder.Session.Name, holder.Grant.Mode)
	}
	// Output:
	// ann shared
	// ben shared
}
