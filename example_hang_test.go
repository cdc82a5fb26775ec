package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Work that renews its session itself, before each step. When a step hangs, nobody renews: after a
// TTL the lock passes on, and what the step writes then is refused. Session.KeepAlive would renew
// beside the work, and the lock would be held for as long as that hangs.
func ExampleSession_Renew() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	worker := must(db.NewSession(&lockd.SessionOptions{
		TTL: 10 * time.Second, LockDelay: lockd.NoLockDelay,
	}))
	lock := must(worker.TryLock("mail", nil))
	standby := must(db.NewSession(nil))
	next := make(chan *lockd.Lock)
	go func() { next <- must(standby.Lock(context.Background(), "mail", nil)) }()

	step := func(name string, takes time.Duration) error {
		if err := worker.Renew(); err != nil {
			return err
		}
		mock.Add(takes) // the step's work, which must take less than the TTL
		_, err := db.If(lock.Sequencer()).Put("mail/done", []byte(name), nil)
		return err
	}
	fmt.Println("first:", step("first", 9*time.Second))
	fmt.Println("second:", step("second", 9*time.Second))
	err := step("third", time.Hour) // it hangs
	fmt.Println("third, too late:", errors.Is(err, lockd.ErrNotHeld))
	fmt.Println("not renewed:", errors.Is(worker.Err(), lockd.ErrExpired))
	fmt.Println("passed on:", (<-next).Sequencer().Session == standby.ID())
	// Output:
	// first: <nil>
	// second: <nil>
	// third, too late: true
	// not renewed: true
	// passed on: true
}

// A keeper renews beside the work. So the work has a check with a TTL, and puts it again itself: if
// the work hangs, the check becomes critical. That ends the session, however often it is renewed.
func ExampleKeeper_check() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	beat := func() error {
		return db.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: db.Node(), ID: "mail works", Status: catalog.Passing, TTL: 10 * time.Second,
			})
		})
	}
	err := beat()
	keeper := must(db.NewKeeper(&lockd.SessionOptions{
		TTL: 30 * time.Second, Checks: []string{"mail works"},
	}))
	session := must(keeper.Session(context.Background()))

	for range 10 {
		mock.Add(9 * time.Second) // a step of the work
		err = errors.Join(err, beat())
	}
	fmt.Println("at work:", session.Err(), err)

	mock.Add(10 * time.Second) // it hangs
	<-session.Done()
	fmt.Println("noticed:", errors.Is(session.Err(), catalog.ErrCheckCritical))
	// Output:
	// at work: <nil> <nil>
	// noticed: true
}
