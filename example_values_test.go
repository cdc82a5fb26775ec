package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// A lock is held from the call that returns it until it is unlocked, or lost.
func ExampleLock() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	lock := must(session.TryLock("k", nil))
	fmt.Println("held:", lock.Err() == nil)
	fmt.Println("end session:", db.EndSession(session.ID())) // an operator does
	<-lock.Done()
	fmt.Println("lost:", errors.Is(lock.Err(), lockd.ErrDestroyed))
	// Output:
	// held: true
	// end session: <nil>
	// lost: true
}

// A value that is written together with the lock, to tell others about the holder.
func ExampleLockOptions() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	must(session.TryLock("jobs/nightly", &lockd.LockOptions{Value: []byte("host-1")}))
	entry, _ := db.Get("jobs/nightly")
	fmt.Printf("%s\n", entry.Value)
	// Output: host-1
}

// A key that is there only while it is locked.
func ExampleKeyPolicy() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	lock := must(session.TryLock("upload/42", &lockd.LockOptions{Key: lockd.RemoveAfter}))
	fmt.Println("unlock:", lock.Unlock())
	_, left := db.Get("upload/42")
	fmt.Println("left:", left)
	// Output:
	// unlock: <nil>
	// left: false
}

// What is known of a key: its value, its indexes, and who holds its lock.
func ExampleEntry() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	lock := must(session.TryLock("k", nil))

	entry := must(db.Put("k", []byte("v"), nil))
	fmt.Printf("%s = %s\n", entry.Key, entry.Value)
	fmt.Println("written since it was created:", entry.ModifyIndex > entry.CreateIndex)
	fmt.Println("held:", entry.Session == session.ID(), entry.Sequencer() == lock.Sequencer())
	// Output:
	// k = v
	// written since it was created: true
	// held: true true
}

// A session that outlives its process, and is found again.
func ExampleSessionOptions() {
	path := filepath.Join(must(os.MkdirTemp("", "lockd-")), "lockd.db")
	defer os.RemoveAll(filepath.Dir(path))
	db := must(lockd.Open(path, nil))
	id := must(db.NewSession(&lockd.SessionOptions{
		Name: "import", TTL: time.Hour, Lifetime: lockd.Independent,
	})).ID()
	fmt.Println("close:", db.Close())

	db = must(lockd.Open(path, nil))
	defer db.Close()
	session := must(db.Session(id))
	fmt.Println("again:", session.Info().Name, session.Info().Lifetime)
	// Output:
	// close: <nil>
	// again: import independent
}

// Without Independent, a session lives no longer than its process.
func ExampleLifetime() {
	fmt.Println(lockd.SessionOptions{}.Lifetime)
	fmt.Println(lockd.Independent)
	// Output:
	// bound to process
	// independent
}

// The session of a lock tells who holds it.
func ExampleSessionInfo() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(&lockd.SessionOptions{
		Name: "worker-1", Meta: map[string]string{"purpose": "nightly report"},
	}))
	must(session.TryLock("k", nil))

	entry, _ := db.Get("k")
	info, _ := db.Snapshot().Session(entry.Session)
	fmt.Printf("%s on %s: %s\n", info.Name, info.Node, info.Meta["purpose"])
	// Output: worker-1 on local: nightly report
}

// An ID goes through text and comes back the same.
func ExampleSessionID() {
	db := must(lockd.New(nil))
	defer db.Close()
	id := must(db.NewSession(nil)).ID()

	again := must(lockd.ParseSessionID(id.String()))
	fmt.Println("the same:", again == id)
	// Output: the same: true
}

// Keys that are there only as long as the session that holds their locks.
func ExampleBehavior() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(&lockd.SessionOptions{Behavior: lockd.DeleteKeys}))
	must(session.TryLock("service/web/1", &lockd.LockOptions{Value: []byte("10.0.0.1:80")}))

	fmt.Println("close:", session.Close())
	_, left := db.Get("service/web/1")
	fmt.Println("left:", left)
	// Output:
	// close: <nil>
	// left: false
}

// A transaction reads its own writes. Other callers see none of them before the transaction ends.
func ExampleTxn() {
	db := must(lockd.New(nil))
	defer db.Close()

	err := db.Update(func(tx *lockd.Txn) error {
		if _, err := tx.Put("k", []byte("v"), nil); err != nil {
			return err
		}
		_, within := tx.Get("k")
		_, outside := db.Get("k")
		fmt.Println("within:", within, "outside:", outside)
		return errors.New("changed my mind")
	})
	_, left := db.Get("k")
	fmt.Println(err, left)
	// Output:
	// within: true outside: false
	// changed my mind false
}

// One change: what happened to which key, and what became of its lock.
func ExampleEvent() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	before := db.Snapshot().Index()
	must(session.TryLock("k", nil))
	fmt.Println("close:", session.Close())

	for event, err := range db.Watch(context.Background(), lockd.KeyScope("k"), before) {
		ended := event.Ended.ID == session.ID()
		fmt.Println(event.Kind, event.Key, ended, event.Lost, event.Cause, err)
		if ended {
			break
		}
	}
	// Output:
	// close: <nil>
	// key put k false false <nil> <nil>
	// key put k true false closed by its owner <nil>
}

// What changed, in words.
func ExampleEventKind() {
	db := must(lockd.New(nil))
	defer db.Close()
	before := db.Snapshot().Index()
	must(db.Put("k", nil, nil))
	must(db.Delete("k"))

	for event := range db.Watch(context.Background(), lockd.PrefixScope(""), before) {
		fmt.Println(event.Kind)
		if event.Kind == lockd.KeyDeleted {
			break
		}
	}
	// Output:
	// key put
	// key deleted
}

// What was done, to which key, and why not.
func ExampleError() {
	db := must(lockd.New(nil))
	defer db.Close()

	_, err := db.Put("", nil, nil)
	if failed, ok := errors.AsType[*lockd.Error](err); ok {
		fmt.Println(failed.Op, errors.Is(failed, lockd.ErrInvalid))
	}
	// Output: put true
}

// Why a lock or a session has ended.
func ExampleEndedError() {
	db := must(lockd.New(nil))
	defer db.Close()
	lock := must(must(db.NewSession(nil)).TryLock("k", nil))
	must(db.Delete("k"))

	if ended, ok := errors.AsType[*lockd.EndedError](lock.Unlock()); ok {
		fmt.Printf("lock of %s: %v\n", ended.Key, ended.Cause)
	}
	// Output: lock of k: key deleted
}

// What an unsuccessful TryLock says, in words and in fields.
func ExampleLockedError() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	worker := must(db.NewSession(&lockd.SessionOptions{Name: "worker-1"}))
	must(worker.TryLock("k", nil))
	mock.Add(3*time.Minute + 12*time.Second)

	_, err := must(db.NewSession(nil)).TryLock("k", nil)
	if locked, ok := errors.AsType[*lockd.LockedError](err); ok {
		fmt.Println(locked.Obstacle, "by", locked.HolderName, "for", locked.Held)
	}
	// Output: held by worker-1 for 3m12s
}

// What to do about a lock that is not available depends on what is in the way.
func ExampleObstacle() {
	db := must(lockd.New(nil))
	defer db.Close()
	lost, other := must(db.NewSession(nil)), must(db.NewSession(nil))
	must(lost.TryLock("k", nil))
	fmt.Println("end session:", db.EndSession(lost.ID()))

	_, err := other.TryLock("k", nil)
	locked, _ := errors.AsType[*lockd.LockedError](err)
	switch locked.Obstacle {
	case lockd.ObstacleHolder:
		fmt.Println("ask the holder")
	case lockd.ObstacleDelay:
		fmt.Println("wait until the delay is over")
	case lockd.ObstacleQueue:
		fmt.Println("stand in line with Lock")
	}
	// Output:
	// end session: <nil>
	// wait until the delay is over
}

// A backup is restored into a new file. Its fences are above one that a resource has seen.
func ExampleRestore() {
	db := must(lockd.New(nil))
	must(db.Put("k", []byte("v"), nil))
	var backup bytes.Buffer
	fmt.Println("backup:", errors.Join(db.Backup(&backup), db.Close()))

	path := filepath.Join(must(os.MkdirTemp("", "lockd-")), "lockd.db")
	defer os.RemoveAll(filepath.Dir(path))
	fmt.Println("restore:", lockd.Restore(path, &backup, 1000, nil))

	db = must(lockd.Open(path, nil))
	defer db.Close()
	entry, _ := db.Get("k")
	lock := must(must(db.NewSession(nil)).TryLock("k", nil))
	fmt.Printf("%s, fence above 1000: %v\n", entry.Value, lock.Sequencer().Fence > 1000)
	// Output:
	// backup: <nil>
	// restore: <nil>
	// v, fence above 1000: true
}

// A database that can be made again, so that its writes need not wait for the disk.
func ExampleSyncPolicy() {
	path := filepath.Join(must(os.MkdirTemp("", "lockd-")), "cache.db")
	defer os.RemoveAll(filepath.Dir(path))
	db := must(lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever}))
	must(db.Put("k", []byte("v"), nil))
	fmt.Println("close:", db.Close())

	db = must(lockd.Open(path, nil))
	defer db.Close()
	entry, _ := db.Get("k")
	fmt.Printf("%s\n", entry.Value)
	// Output:
	// close: <nil>
	// v
}

// What a crash makes of a lock. The crash is a copy of the file, taken while the lock is held: it
// has what a process leaves that is killed then.
func ExampleReopenPolicy() {
	folder := must(os.MkdirTemp("", "lockd-"))
	defer os.RemoveAll(folder)
	path, quiet := filepath.Join(folder, "lockd.db"), slog.New(slog.DiscardHandler)
	db := must(lockd.Open(path, nil))
	defer db.Close()
	must(must(db.NewSession(nil)).TryLock("job", nil))
	left := must(os.ReadFile(path))

	for _, policy := range []lockd.ReopenPolicy{
		lockd.EndBound, lockd.EndBoundWithoutDelay, lockd.EndNone,
	} {
		path := filepath.Join(folder, fmt.Sprint("policy", policy))
		if err := os.WriteFile(path, left, 0o600); err != nil {
			panic(err)
		}
		next := must(lockd.Open(path, &lockd.Options{Reopen: policy, Logger: quiet}))
		_, err := must(next.NewSession(nil)).TryLock("job", nil)
		if locked, ok := errors.AsType[*lockd.LockedError](err); ok {
			fmt.Println(locked.Obstacle)
		} else {
			fmt.Println("granted:", err == nil)
		}
		next.Close()
	}
	// Output:
	// delayed
	// granted: true
	// held
}
