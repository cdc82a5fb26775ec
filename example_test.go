package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// must returns the value of a call that succeeds here. A program handles the error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A first lock. The write is done only while the lock is held; with lockd.New(nil) instead of
// Open, all of it is in memory.
func Example() {
	path := filepath.Join(must(os.MkdirTemp("", "lockd-")), "lockd.db")
	defer os.RemoveAll(filepath.Dir(path))
	ctx := context.Background()

	db := must(lockd.Open(path, nil))
	session := must(db.NewSession(nil))
	lock := must(session.Lock(ctx, "service/mysql/leader", nil))
	held := db.If(lock.Sequencer())
	entry, err := held.Put("service/mysql/primary", []byte("10.0.0.7"), nil)
	err = errors.Join(err, lock.Unlock(), db.Close())

	fmt.Printf("%s = %s, error %v\n", entry.Key, entry.Value, err)
	// Output: service/mysql/primary = 10.0.0.7, error <nil>
}

// Ensure that the README shows the lines of the Examples.
func TestREADME_ShowsExamples(t *testing.T) {
	block := func(file, from, to string) string {
		_, rest, found := strings.Cut(string(must(os.ReadFile(file))), from)
		text, _, ended := strings.Cut(rest, to)
		if !found || !ended {
			t.Fatalf("%s has nothing between %q and %q", file, from, to)
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return strings.Join(lines, "\n")
	}
	for _, tc := range []struct{ section, file, from, to string }{
		{"## A first lock", "example_test.go", "ctx := context.Background()\n\n", "\n\n"},
		{"## Recipes", "example_recipes_test.go", "defer stop()\n\n", "\n\n\tfmt.Println(err)"},
	} {
		want := block(tc.file, tc.from, tc.to)
		got := block("README.md", tc.section, "\n## ")
		if !strings.Contains(got, "```go\n"+want+"\n```") {
			t.Errorf("want these lines in a block of go:\n%s\ngot:\n%s", want, got)
		}
	}
}

func ExampleDB() {
	db := must(lockd.New(nil))
	defer db.Close()

	made := must(db.Put("config/color", []byte("red"), nil))
	same := must(db.Put("config/color", []byte("red"), nil))
	fmt.Println("the same value moves an index:", same.ModifyIndex != made.ModifyIndex)

	_, err := db.CompareAndSwap("config/color", made.ModifyIndex, []byte("blue"), nil)
	fmt.Println("swapped:", err == nil)
	_, err = db.CompareAndSwap("config/color", made.ModifyIndex, []byte("green"), nil)
	fmt.Println("swapped on an old index:", !errors.Is(err, lockd.ErrConflict))

	entry, ok := db.Get("config/color")
	fmt.Printf("%s %v\n", entry.Value, ok)
	// Output:
	// the same value moves an index: false
	// swapped: true
	// swapped on an old index: false
	// blue true
}

// A session that is not renewed ends exactly when its TTL has passed. The clock here is a mock.
func ExampleSession() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()

	session := must(db.NewSession(&lockd.SessionOptions{Name: "worker", TTL: 10 * time.Second}))
	mock.Add(9 * time.Second)
	fmt.Println("renewed:", session.Renew() == nil)
	mock.Add(time.Second)
	fmt.Println("renewed by its ID:", db.Renew(session.ID()) == nil)
	mock.Add(9 * time.Second)
	fmt.Println("lives:", session.Err() == nil)
	mock.Add(time.Second)
	<-session.Done()
	fmt.Println("expired:", errors.Is(session.Err(), lockd.ErrExpired))
	// Output:
	// renewed: true
	// renewed by its ID: true
	// lives: true
	// expired: true
}

func ExampleSession_Lock() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	// Waits for the lock until it is held, or ctx ends.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock := must(session.Lock(ctx, "jobs/nightly", nil))

	// Work under this context ends when the lock is lost.
	work := lock.Context(ctx)
	fmt.Println("held:", work.Err() == nil)

	fmt.Println("unlock:", lock.Unlock())
	<-work.Done()
	fmt.Println("released:", errors.Is(context.Cause(work), lockd.ErrUnlocked))
	// Output:
	// held: true
	// unlock: <nil>
	// released: true
}

// TryLock says why it cannot have the lock: first because of a holder and, once the holder is lost,
// because of a lock-delay.
func ExampleSession_TryLock() {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	web := must(db.NewSession(&lockd.SessionOptions{Name: "web", LockDelay: 20 * time.Second}))
	job := must(db.NewSession(&lockd.SessionOptions{Name: "job"}))
	must(web.TryLock("maintenance", nil))

	_, err := job.TryLock("maintenance", nil)
	if locked, ok := errors.AsType[*lockd.LockedError](err); ok {
		fmt.Println("held by", locked.HolderName)
	}

	fmt.Println("end session:", db.EndSession(web.ID()))
	mock.Add(5 * time.Second)
	_, err = job.TryLock("maintenance", nil)
	if locked, ok := errors.AsType[*lockd.LockedError](err); ok {
		fmt.Println("delayed for another", locked.Remaining)
	}

	mock.Add(15 * time.Second)
	_, err = job.TryLock("maintenance", nil)
	fmt.Println("after the delay:", err)
	// Output:
	// held by web
	// end session: <nil>
	// delayed for another 15s
	// after the delay: <nil>
}

// Several locks at once: all of them or none, so that callers never wait in a circle.
func ExampleSession_LockAll() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))

	accounts := []string{"account/anna", "account/ben"}
	locks := must(session.LockAll(context.Background(), accounts, nil))
	for _, lock := range locks {
		same := lock.Sequencer().Fence == locks[0].Sequencer().Fence
		fmt.Println(lock.Key(), "shares the fence:", same)
	}
	// Output:
	// account/anna shares the fence: true
	// account/ben shares the fence: true
}

// A transaction is done as a whole or not at all.
func ExampleDB_Update() {
	db := must(lockd.New(nil))
	defer db.Close()

	move := func(tx *lockd.Txn) error {
		job, ok := tx.Get("queue/open/1")
		if !ok {
			return errors.New("no such job")
		}
		if _, err := tx.CompareAndSwap("queue/done/1", 0, job.Value, nil); err != nil {
			return err
		}
		_, err := tx.Delete(job.Key)
		return err
	}

	fmt.Println(db.Update(move))
	must(db.Put("queue/open/1", []byte("send mail"), nil))
	fmt.Println(db.Update(move))
	for key, entry := range db.Snapshot().Prefix("queue/") {
		fmt.Printf("%s: %s\n", key, entry.Value)
	}
	// Output:
	// no such job
	// <nil>
	// queue/done/1: send mail
}

// A holder sends its sequencer along with the work. It proves that the lock is still held.
func ExampleSequencer() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	lock := must(session.TryLock("printer", nil))

	header := lock.Sequencer().String() // in a request, say
	proof := must(lockd.ParseSequencer(header))
	fmt.Println("holds:", db.CheckSequencer(proof) == nil)

	fmt.Println("unlock:", lock.Unlock())
	fmt.Println("holds no more:", errors.Is(db.CheckSequencer(proof), lockd.ErrNotHeld))
	// Output:
	// holds: true
	// unlock: <nil>
	// holds no more: true
}

// A write that depends on a lock is refused when the lock is lost, and so is never late.
func ExampleFenced() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	lock := must(session.TryLock("service/mysql/leader", nil))
	held := db.If(lock.Sequencer())

	_, err := held.Put("service/mysql/primary", []byte("10.0.0.7"), nil)
	fmt.Println("in time:", err)

	fmt.Println("end session:", db.EndSession(session.ID()))
	_, err = held.Put("service/mysql/primary", []byte("10.0.0.8"), nil)
	fmt.Println("late:", errors.Is(err, lockd.ErrNotHeld))
	// Output:
	// in time: <nil>
	// end session: <nil>
	// late: true
}

// Flags are a number of the caller's own, such as a format of the value.
func ExamplePutOptions() {
	db := must(lockd.New(nil))
	defer db.Close()
	entry := must(db.Put("config", []byte("{}"), &lockd.PutOptions{Flags: 2}))
	fmt.Println("flags:", entry.Flags)
	entry = must(db.Put("config", []byte("{}"), nil)) // the next write replaces them
	fmt.Println("flags:", entry.Flags)
	// Output:
	// flags: 2
	// flags: 0
}

// A guard protects a resource that lockd does not know.
func ExampleGuard() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	first := must(session.TryLock("report", nil))
	fmt.Println("unlock:", first.Unlock())
	second := must(session.TryLock("report", nil))

	var guard lockd.Guard // of one file, say
	fmt.Println("second:", guard.Check(second.Sequencer()))
	err := guard.Check(first.Sequencer())
	fmt.Println("first, too late:", errors.Is(err, lockd.ErrNotHeld))
	// Output:
	// unlock: <nil>
	// second: <nil>
	// first, too late: true
}

// Read the state, and then watch from its index on: no change is missed between the two.
func ExampleDB_Watch() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	state := db.Snapshot()

	must(db.Put("config/color", []byte("red"), nil)) // by somebody else, meanwhile
	lock := must(session.TryLock("config/color", nil))
	fmt.Println("unlock:", lock.Unlock())
	must(db.Delete("config/color"))

	watch := db.Watch(context.Background(), lockd.PrefixScope("config/"), state.Index())
	for event, err := range watch {
		if err != nil {
			fmt.Println(err)
			break
		}
		if event.Kind == lockd.KeyDeleted {
			fmt.Printf("%s deleted, was %s\n", event.Previous.Key, event.Previous.Value)
			break
		}
		lock := "as it was"
		switch session.ID() {
		case event.Granted.ID:
			lock = "granted"
		case event.Ended.ID:
			lock = "released"
		}
		fmt.Printf("%s = %s, lock %s\n", event.Entry.Key, event.Entry.Value, lock)
	}
	// Output:
	// unlock: <nil>
	// config/color = red, lock as it was
	// config/color = red, lock granted
	// config/color = red, lock released
	// config/color deleted, was red
}

// A copy of some keys that is kept in step: the state comes first, then each change, and the state
// again if changes were missed.
func ExampleDB_Follow() {
	db := must(lockd.New(&lockd.Options{History: 3})) // so few that some are missed here
	defer db.Close()
	put := func(key, value string) { must(db.Put(key, []byte(value), nil)) }
	put("config/color", "red")
	meanwhile := []func(){ // what others write while the loop is at an event
		func() { put("config/size", "10") },
		func() { put("config/size", "11"); must(db.Delete("config/color")) },
		func() {},
		func() {
			for size := range 5 {
				put("config/size", fmt.Sprint(size))
			}
		},
	}

	var config map[string]string
	for event, err := range db.Follow(context.Background(), "config/") {
		if err != nil {
			fmt.Println(err)
			break
		}
		switch event.Kind {
		case lockd.StateLoaded: // in place of all that was known
			config = make(map[string]string)
			for key, entry := range event.State.Prefix("config/") {
				config[key] = string(entry.Value)
			}
		case lockd.KeyPut:
			config[event.Key] = string(event.Entry.Value)
		case lockd.KeyDeleted:
			delete(config, event.Key)
		}
		fmt.Println(event.Kind, config, event.Cause)
		if len(meanwhile) == 0 {
			break
		}
		meanwhile[0]()
		meanwhile = meanwhile[1:]
	}
	// Output:
	// state loaded map[config/color:red] <nil>
	// key put map[config/color:red config/size:10] <nil>
	// key put map[config/color:red config/size:11] <nil>
	// key deleted map[config/size:11] <nil>
	// state loaded map[config/size:4] events after this index are no longer kept
}

// A loop of reads, each of which waits for the next change, is a blocking query. A wait with a
// limit may end without a change.
func ExampleDB_Wait() {
	db := must(lockd.New(nil))
	defer db.Close()
	ctx, scope := context.Background(), lockd.KeyScope("config/color")

	from := db.Snapshot().IndexOf(scope)
	must(db.Put("config/size", []byte("L"), nil)) // another key
	_, at, err := db.Wait(ctx, scope, from, time.Millisecond)
	fmt.Println(at > from, err)

	go db.Put("config/color", []byte("red"), nil)
	state, at, err := db.Wait(ctx, scope, from, 0)
	entry, _ := state.Get("config/color")
	fmt.Println(at > from, err, string(entry.Value))
	// Output:
	// false <nil>
	// true <nil> red
}

// A snapshot shows the same state for ever, whatever is written after it.
func ExampleSnapshot() {
	db := must(lockd.New(nil))
	defer db.Close()
	for _, key := range []string{"web/1/addr", "web/1/port", "web/2/addr", "web/size"} {
		must(db.Put(key, nil, nil))
	}
	state := db.Snapshot()
	must(db.DeletePrefix("web/"))

	for key := range state.Keys("web/", "/") {
		fmt.Println(key)
	}
	fmt.Println(state.Len(), "keys, and now", db.Snapshot().Len())
	// Output:
	// web/1/
	// web/2/
	// web/size
	// 4 keys, and now 0
}

// The index of a scope moves only when something in it changes.
func ExampleScope() {
	db := must(lockd.New(nil))
	defer db.Close()
	must(db.Put("web/1", nil, nil))
	before := db.Snapshot()
	must(db.Put("mail/1", nil, nil))
	after := db.Snapshot()

	for _, prefix := range []string{"web/", "mail/"} {
		scope := lockd.PrefixScope(prefix)
		fmt.Println(prefix, "moved:", after.IndexOf(scope) > before.IndexOf(scope))
	}
	// Output:
	// web/ moved: false
	// mail/ moved: true
}
