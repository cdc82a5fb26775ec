// Registration shows how instances of a service register themselves for as long as they live: each
// holds the lock of a key of its own, by a session that deletes its keys when it ends. A client of
// the service lists the keys, and watches them to hear which instances come and go.
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

const prefix = "service/web/"

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "registration:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	db, err := lockd.New(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	before := db.Snapshot().Index()
	one, err := register(db, "web-1", "10.0.0.1:80", 0)
	if err != nil {
		return err
	}
	if _, err := register(db, "web-2", "10.0.0.2:80", 0); err != nil {
		return err
	}
	if err := one.Close(); err != nil { // it says goodbye
		return err
	}
	// The third one hangs: it does not renew its session.
	if _, err := register(db, "web-3", "10.0.0.3:80", 100*time.Millisecond); err != nil {
		return err
	}
	came, gone := 0, 0
	for event, err := range db.Watch(ctx, lockd.PrefixScope(prefix), before) {
		if err != nil {
			return err
		}
		switch event.Kind {
		case lockd.KeyPut:
			came++
			fmt.Fprintf(out, "+ %s at %s\n", event.Key, event.Entry.Value)
		case lockd.KeyDeleted:
			gone++
			fmt.Fprintf(out, "- %s: %v\n", event.Key, event.Cause)
		}
		if came == 3 && gone == 2 {
			break
		}
	}
	for key, entry := range db.Snapshot().Prefix(prefix) {
		fmt.Fprintf(out, "left: %s at %s\n", key, entry.Value)
	}
	return nil
}

// register makes an instance known under its name, until the session ends. With a TTL, the session
// also ends when it has not been renewed for the TTL; a real instance calls KeepAlive.
func register(
	db *lockd.DB, name, address string, ttl time.Duration,
) (*lockd.Session, error) {
	session, err := db.NewSession(&lockd.SessionOptions{
		Name: name, TTL: ttl, Behavior: lockd.DeleteKeys,
		LockDelay: lockd.NoLockDelay, // an instance that comes back may have its name back at once
	})
	if err != nil {
		return nil, err
	}
	_, err = session.TryLock(prefix+name, &lockd.LockOptions{Value: []byte(address)})
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}
