// Workers shows a pool of which only a few may work at once: each worker has a session of its own,
// and takes a slot of a semaphore for each piece of work. Slots are granted in the order in which
// workers began to wait, and a lost worker's slot stays taken for its lock-delay.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/lockd/lockd"
)

const (
	prefix  = "pool/encode" // the semaphore
	limit   = 3             // slots
	workers = 8
	pieces  = 5 // of work for each worker
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	db, err := lockd.New(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	var working, most, done atomic.Int64
	encode := func() {
		now := working.Add(1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); {
			before = most.Load()
		}
		done.Add(1)
		working.Add(-1)
	}
	var pool sync.WaitGroup
	outcomes := make([]error, workers)
	for i := range outcomes {
		pool.Go(func() { outcomes[i] = work(ctx, db, fmt.Sprintf("worker-%d", i), encode) })
	}
	pool.Wait()
	if err := errors.Join(outcomes...); err != nil {
		return err
	}
	if most.Load() > limit {
		return fmt.Errorf("%d worked at once, with %d slots", most.Load(), limit)
	}
	fmt.Fprintf(out, "%d workers did %d pieces of work, never more than %d at once\n", workers,
		done.Load(), limit)
	return nil
}

// work does some pieces of work, each in a slot.
func work(ctx context.Context, db *lockd.DB, name string, piece func()) error {
	session, err := db.NewSession(&lockd.SessionOptions{Name: name})
	if err != nil {
		return err
	}
	for range pieces {
		slot, err := session.Acquire(ctx, prefix, limit)
		if err != nil {
			return errors.Join(err, session.Close())
		}
		piece()
		if err := slot.Release(); err != nil {
			return errors.Join(err, session.Close())
		}
	}
	return session.Close()
}
