package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Work that renews its session itself, before each step. A step that hangs renews nothing: after a
// TTL the lock passes on, and a late write of that step is refused. Session.KeepAlive would renew
// beside the work, and the lock would be held while the work hangs.
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

// A keeper renews beside the work. So the work has a check with a TTL, and puts it again itself. If
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

// Two goroutines lock two keys in opposite orders, each under the context of its first lock. The
// second call would wait for ever, so it is refused.
func ExampleDeadlockError() {
	db := must(lockd.New(nil))
	defer db.Close()
	ctx := context.Background()
	web := must(db.NewSession(&lockd.SessionOptions{Name: "web"}))
	mail := must(db.NewSession(&lockd.SessionOptions{Name: "mail"}))
	users, orders := must(web.TryLock("users", nil)), must(mail.TryLock("orders", nil))
	waits := make(chan *lockd.Lock)
	go func() { waits <- must(web.Lock(users.Context(ctx), "orders", nil)) }()
	for len(slices.Collect(db.Locks())[0].Queue) == 0 {
		runtime.Gosched()
	}

	_, err := mail.Lock(orders.Context(ctx), "users", nil)
	var deadlock *lockd.DeadlockError
	fmt.Println("refused:", errors.As(err, &deadlock))
	for _, step := range deadlock.Steps {
		fmt.Println(step.Holds.Session.Name, "holds", step.Holds.Grant.Key,
			"and wants", step.Awaits)
	}
	fmt.Println(orders.Unlock(), (<-waits).Key())
	// Output:
	// refused: true
	// mail holds orders and wants users
	// web holds users and wants orders
	// <nil> orders
}

// A function that runs under a lock calls another one that takes it again: a lock is not reentrant.
func ExampleDeadlockStep() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(&lockd.SessionOptions{Name: "report"}))
	take := func(ctx context.Context, _ lockd.Sequencer) error {
		_, err := session.Lock(ctx, "page", nil)
		return err
	}
	err := session.WithLock(context.Background(), "page", nil, take)
	if deadlock, ok := errors.AsType[*lockd.DeadlockError](err); ok {
		step := deadlock.Steps[0]
		fmt.Printf("%s holds %s %s, and waits for %s\n", step.Holds.Session.Name,
			step.Holds.Grant.Key, step.Holds.Grant.Mode, step.Awaits)
	}
	// Output:
	// report holds page exclusive, and waits for page
}
