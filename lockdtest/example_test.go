package lockdtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// A holder is paused, and comes back after its lock has passed on: its late write is refused. In a
// test, t is the test's own; that an example has none is why this one makes one.
func Example() {
	t := &exampleT{}
	defer t.end()

	db := lockdtest.New(t, nil)
	holder, _ := db.NewSession(&lockd.SessionOptions{TTL: 10 * time.Second})
	lock, _ := holder.TryLock("report", nil)
	go holder.KeepAlive(t.Context())
	db.WaitForKeepAlive(holder)
	next, _ := db.NewSession(nil)
	go next.Lock(t.Context(), "report", nil)
	db.WaitForWaiters("report", 1)

	db.DropRenewals(holder, 2) // the holder is paused for a TTL
	db.Advance(10*time.Second + lockd.DefaultLockDelay)
	if report, _ := db.Get("report"); report.Session != next.ID() {
		t.Fatalf("the lock has not passed on: session %q holds it", report.Session)
	}

	_, err := db.If(lock.Sequencer()).Put("report", []byte("late"), nil)
	if !errors.Is(err, lockd.ErrNotHeld) {
		t.Errorf("late write: got %v, want ErrNotHeld", err)
	}

	fmt.Println("refused:", err != nil)
	// Output: refused: true
}

// exampleT stands in for a *testing.T.
type exampleT struct {
	testing.TB // nil
	cleanups   []func()
}

func (t *exampleT) Helper()                  {}
func (t *exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Output() io.Writer        { return io.Discard }
func (t *exampleT) Cleanup(fn func())        { t.cleanups = append(t.cleanups, fn) }

func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleT) end() {
	for _, fn := range t.cleanups {
		fn()
	}
}
