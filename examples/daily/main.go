// Daily shows how a job is done once a day, however many goroutines ask for it, and although one of
// them may fail, or the program may end. They take the job's lock in turn. The one that has done
// the job writes the day to a key, which the others read.
//
// If the program dies before that write, the job is done again, so the job has to bear that.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/lockd/lockd"
)

const (
	lockKey = "job/report"
	lastKey = "job/report/last" // has the day of the last report
)

// errPrinter is how the job fails once.
var errPrinter = errors.New("printer on fire")

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "daily:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "daily-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "lockd.db")
	failed := false
	for _, day := range []string{"2026-11-20", "2026-11-20", "2026-11-21"} {
		var done, failures atomic.Int32
		err := ask(ctx, path, day, func() error {
			if day == "2026-11-21" && !failed {
				failed = true // no race: the lock keeps the attempts apart
				failures.Add(1)
				return errPrinter
			}
			done.Add(1)
			return nil
		})
		fmt.Fprintf(out, "started on %s: 3 asked for the job, %d did it, %d failed\n", day,
			done.Load(), failures.Load())
		switch {
		case errors.Is(err, errPrinter):
			fmt.Fprintln(out, "       failed:", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// ask lets three goroutines ask at once for the report of the day, in a program started anew.
func ask(ctx context.Context, path, day string, job func() error) (err error) {
	db, err := lockd.Open(path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var asking sync.WaitGroup
	outcomes := make([]error, 3)
	for i := range outcomes {
		asking.Go(func() { outcomes[i] = once(ctx, db, day, job) })
	}
	asking.Wait()
	return errors.Join(outcomes...)
}

// once does the job, unless it has been done that day.
func once(ctx context.Context, db *lockd.DB, day string, job func() error) error {
	session, err := db.NewSession(nil)
	if err != nil {
		return err
	}
	err = session.WithLock(ctx, lockKey, nil, func(_ context.Context, proof lockd.Sequencer) error {
		if last, _ := db.Get(lastKey); string(last.Value) == day {
			return nil
		}
		if err := job(); err != nil {
			return err
		}
		_, err := db.If(proof).Put(lastKey, []byte(day), nil)
		return err
	})
	return errors.Join(err, session.Close())
}
