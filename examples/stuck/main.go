// Stuck shows what a program can tell when something hangs: who holds what and who waits for it, a
// deadlock that is reported instead of made, and a holder that does not unlock.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lockd/lockd"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stuck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	db, err := lockd.New(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var sessions [3]*lockd.Session
	for i, name := range []string{"web", "mail", "report"} {
		sessions[i], err = db.NewSession(&lockd.SessionOptions{
			Name: name, LockDelay: 10 * time.Millisecond,
		})
		if err != nil {
			return err
		}
	}
	web, mail, report := sessions[0], sessions[1], sessions[2]
	return errors.Join(deadlock(ctx, db, web, mail, out), several(ctx, db, web, report, out),
		heldTooLong(ctx, web, mail, out))
}

// deadlock lets two goroutines lock two keys in opposite orders, each under the context of the lock
// that it holds.
func deadlock(ctx context.Context, db *lockd.DB, web, mail *lockd.Session, out io.Writer) error {
	users, err := web.Lock(ctx, "users", nil)
	if err != nil {
		return err
	}
	orders, err := mail.Lock(ctx, "orders", nil)
	if err != nil {
		return errors.Join(err, users.Unlock())
	}
	ended := make(chan error, 1)
	go func() {
		both, err := web.Lock(users.Context(ctx), "orders", nil)
		if err == nil {
			err = both.Unlock()
		}
		ended <- errors.Join(err, users.Unlock())
	}()
	if err := show(ctx, db, "orders", out); err != nil {
		return errors.Join(err, orders.Unlock(), <-ended)
	}

	// This would wait for web, which waits for mail.
	_, err = mail.Lock(orders.Context(ctx), "users", nil)
	var refused *lockd.DeadlockError
	if !errors.As(err, &refused) {
		return fmt.Errorf("the deadlock was not refused: %w", err)
	}
	fmt.Fprintln(out, "mail is refused the lock of users, for it would be a deadlock:")
	for _, step := range refused.Steps {
		fmt.Fprintf(out, "  %s holds %s and wants %s\n", step.Holds.Session.Name,
			step.Holds.Grant.Key, step.Awaits)
	}
	return errors.Join(orders.Unlock(), <-ended)
}

// several lets one goroutine take two locks together, and another take them one after the other.
// That does not hang, although the first is ahead in the queue of the second key.
func several(ctx context.Context, db *lockd.DB, web, report *lockd.Session, out io.Writer) error {
	users, err := web.Lock(ctx, "users", nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		var failed error
		locks, err := report.LockAll(ctx, []string{"users", "orders"}, nil)
		for _, lock := range locks {
			failed = errors.Join(failed, lock.Unlock())
		}
		ended <- errors.Join(err, failed)
	}()
	if err := show(ctx, db, "users", out); err != nil {
		return errors.Join(err, users.Unlock(), <-ended)
	}
	orders, err := web.Lock(ctx, "orders", nil)
	if err == nil {
		fmt.Fprintln(out, "web has users and orders, ahead of report, which waits for users")
		err = orders.Unlock()
	}
	return errors.Join(err, users.Unlock(), <-ended)
}

// heldTooLong lets a holder hang. Its lock has a MaxHold, and passes on.
func heldTooLong(ctx context.Context, web, mail *lockd.Session, out io.Writer) error {
	hung, err := web.Lock(ctx, "users", &lockd.LockOptions{MaxHold: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	next, err := mail.Lock(ctx, "users", nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "mail has users, for web held it too long:",
		errors.Is(hung.Err(), lockd.ErrHeldTooLong))
	return next.Unlock()
}

// show writes who holds the lock and who waits for it, as soon as a call does.
func show(ctx context.Context, db *lockd.DB, key string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		for _, lock := range db.MostAwaited(2) {
			if lock.Key == key {
				fmt.Fprintf(out, "%s is held by %s, and awaited by %s\n", key,
					lock.Holder.Name, lock.Queue[0].Session.Name)
				return nil
			}
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("nobody waits for %s: %w", key, ctx.Err())
}
