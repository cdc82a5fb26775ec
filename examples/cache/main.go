// Cache shows a file that many read and one replaces now and then. Readers share the file's lock.
// The writer takes it exclusively, and shares it after the write, to read beside the others.
//
// One reader is paused for longer than its session's TTL. The writer has to wait for the end of
// that session and its lock-delay, since the reader may still be at work, and for nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockd/lockd"
)

const (
	key     = "cache/page"
	readers = 4
	delay   = 50 * time.Millisecond // of the reader that is lost
)

var shared = &lockd.LockOptions{Mode: lockd.Shared}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cache:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cache-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := lockd.New(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	path := filepath.Join(dir, "page")
	if err := os.WriteFile(path, []byte("first edition"), 0o600); err != nil {
		return err
	}
	if err := readTogether(ctx, db, path, out); err != nil {
		return err
	}

	paused, err := take(ctx, db, shared, &lockd.SessionOptions{
		Name: "paused", TTL: 100 * time.Millisecond, LockDelay: delay,
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "a reader has the lock, and is paused before it reads")

	// The session of that reader is not renewed: this waits for its TTL and the lock-delay.
	writer, err := take(ctx, db, nil, &lockd.SessionOptions{Name: "writer"})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the writer has the lock, after the reader's lock-delay:", waited(db))
	if err := os.WriteFile(path, []byte("second edition"), 0o600); err != nil {
		return err
	}
	if err := writer.Downgrade(); err != nil {
		return err
	}
	fmt.Fprintln(out, "the writer has replaced the file, and its lock is", writer.Sequencer().Mode)
	if err := readTogether(ctx, db, path, out); err != nil { // while the writer has the lock
		return err
	}
	fmt.Fprintln(out, "the paused reader wakes up, and has lost its lock:",
		lockd.Lost(paused.Err()))
	return writer.Unlock()
}

// readTogether starts readers that each keep the lock until all of them have read the file.
func readTogether(ctx context.Context, db *lockd.DB, path string, out io.Writer) error {
	var reading, ended sync.WaitGroup
	reading.Add(readers)
	texts, outcomes := make([]string, readers), make([]error, readers)
	for i := range readers {
		ended.Go(func() {
			lock, err := take(ctx, db, shared, nil)
			if err == nil {
				var text []byte
				text, err = os.ReadFile(path)
				texts[i] = string(text)
			}
			reading.Done()
			reading.Wait() // for ever, if the lock were not shared
			if lock != nil {
				err = errors.Join(err, lock.Unlock())
			}
			outcomes[i] = err
		})
	}
	ended.Wait()
	for _, text := range texts {
		if text != texts[0] {
			return errors.Join(append(outcomes, fmt.Errorf("read %q and %q", texts[0], text))...)
		}
	}
	fmt.Fprintf(out, "%d readers side by side have read the %s\n", readers, texts[0])
	return errors.Join(outcomes...)
}

// take gets the lock of the file, by a session of its own.
func take(
	ctx context.Context, db *lockd.DB, how *lockd.LockOptions, by *lockd.SessionOptions,
) (*lockd.Lock, error) {
	session, err := db.NewSession(by)
	if err != nil {
		return nil, err
	}
	return session.Lock(ctx, key, how)
}

// waited reports whether the newest grant of the lock came a lock-delay after the loss before it.
func waited(db *lockd.DB) bool {
	var lost time.Time
	held := false
	for _, e := range db.History(key) {
		if e.Lost {
			lost = e.Time
		}
		if !e.Granted.ID.IsZero() {
			held = !lost.IsZero() && e.Time.Sub(lost) >= delay
		}
	}
	return held
}
