package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// beside is a store that makes commits while a step of the checkpoint is held.
type beside struct {
	*wide
	changed atomic.Bool           // the next step is held when it has yet to write,
	written atomic.Bool           // or the next sync, when all is written
	reached chan struct{}         // the step is held
	outcome chan error            // what the held call is to return
	failure atomic.Pointer[error] // of the next sync that is not held
	want    whole                 // what was committed
	seen    map[string]int
}

var errSync = errors.New("a broken disk")

func newBeside(t *testing.T) *beside {
	t.Helper()
	b := &beside{
		wide: newWide(t, 1200), reached: make(chan struct{}), outcome: make(chan error),
		seen: map[string]int{},
	}
	b.must(b.Close())
	held := func(armed *atomic.Bool) (err error) {
		if armed.CompareAndSwap(true, false) {
			b.reached <- struct{}{}
			err = <-b.outcome
		}
		return err
	}
	b.wide.changed = func() {
		if err := held(&b.changed); err != nil {
			b.failure.Store(&err)
		}
	}
	b.synced = func() error {
		if err := b.failure.Swap(nil); err != nil {
			return *err
		}
		return held(&b.written)
	}
	b.open()
	return b
}

// commit changes at most the given number of rows.
func (b *beside) commit(many int) error { return b.commitJust(1 + b.random.IntN(many)) }

func (b *beside) commitJust(many int) error {
	b.change(many)
	b.Seal()
	batch := b.Take()
	if err := b.Write(batch); err != nil {
		b.Drop(batch)
		return err
	}
	b.Publish(batch)
	b.want = dump(b.Store)
	return nil
}

// nextStep commits until a step of the checkpoint is due.
func (b *beside) nextStep() (step func() error) {
	b.t.Helper()
	for step == nil {
		b.must(b.commit(20))
		step = b.Tidy()
	}
	return step
}

// commitBeside makes some commits while the step has not ended. It returns the outcome of the last
// one if that waits for the step.
func (b *beside) commitBeside() (waiting chan error) {
	b.t.Helper()
	for range 1 + b.random.IntN(4) {
		failing := b.random.IntN(8) == 0
		if failing {
			b.failure.Store(&errSync)
		}
		outcome := make(chan error, 1)
		go func() { outcome <- b.commit(20) }()
		synctest.Wait()
		select {
		case err := <-outcome:
			if failing != errors.Is(err, errSync) || !failing && err != nil {
				b.t.Fatalf("got %v beside a step, failing %t", err, failing)
			}
			b.seen["beside"]++
			if failing {
				b.seen["failed"]++
			}
		default:
			b.failure.Store(nil) // it may have waited before it failed
			b.seen["waited"]++
			return outcome
		}
	}
	return nil
}

func (b *beside) content() []byte {
	b.t.Helper()
	content, err := os.ReadFile(b.path)
	b.must(err)
	return content
}

// opens checks that a file with the content has what was committed.
func (b *beside) opens(what string, content []byte) {
	b.t.Helper()
	path := newPath(b.t)
	b.must(os.WriteFile(path, content, 0o600))
	if got, err := openStore(path); err != nil || got != b.want {
		b.t.Fatalf("%s: got index %d, %v, want %d", what, got.index, err, b.want.index)
	}
}

// cut checks the file as a power cut may leave it while the step's meta page is not on disk: with
// all writes of the commits beside the step, and any of the step's own.
func (b *beside) cut(before, beside []byte) {
	b.t.Helper()
	left := b.content()
	metas := 2 * os.Getpagesize()
	copy(left[:metas], before[:metas])
	before = append(bytes.Clone(before), make([]byte, len(left)-len(before))...)
	beside = append(bytes.Clone(beside), make([]byte, len(left)-len(beside))...)
	for at := metas; at < len(left); at += sector {
		end := at + sector
		if bytes.Equal(before[at:end], beside[at:end]) && b.random.IntN(2) == 0 {
			copy(left[at:end], before[at:end])
		}
	}
	b.opens("after a power cut", left)
}

// Ensure that commits go on beside a step of a checkpoint until it writes, and that the file then
// has what was committed, after a crash too. A commit that has no room waits for the step, and a
// commit that fails leaves nothing.
func TestStepping_G2_CommitsBesideAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(t)
		for b.seen["steps"] < 20 || b.seen["waited"] < 1 || b.seen["failed"] < 1 {
			step := b.nextStep()
			b.seen["steps"]++
			before, ended := b.content(), make(chan error, 1)
			b.changed.Store(true)
			go func() { ended <- step() }()
			<-b.reached
			waiting := b.commitBeside()
			beside := b.content()
			b.opens("beside the step", beside)
			b.outcome <- nil
			b.must(<-ended)
			if waiting != nil {
				b.must(<-waiting)
			} else {
				b.cut(before, beside)
			}
			b.opens("after the step", b.content())
		}
		b.must(b.Close())
		t.Log(b.seen)
		if b.seen["beside"] == 0 {
			t.Error("this was not tried")
		}
	})
}

// Ensure that no commit writes between a step's writes and their sync. The system tells only one of
// two syncs that a write has failed, and it may be the wrong one.
func TestStepping_G2_OneWritesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(t)
		for b.seen["steps"] < 5 {
			step := b.nextStep()
			b.seen["steps"]++
			b.written.Store(true)
			go step()
			<-b.reached
			before, outcome := b.content(), make(chan error, 1)
			go func() { outcome <- b.commit(1) }()
			synctest.Wait()
			if !bytes.Equal(b.content(), before) {
				t.Fatal("a commit has written while a step does")
			}
			b.outcome <- nil
			b.must(<-outcome)
			b.opens("after the step", b.content())
		}
		b.must(b.Close())
	})
}

// Ensure that if a step fails and may be in the file, no more commits are made and no more steps,
// and the file has the commits that were made beside the step. Close and FileIndex wait for a step.
func TestStepping_G11_FailsBesideCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(t)
		for b.seen["broken"] < 8 || b.seen["closed"] < 2 || b.seen["large"] < 2 ||
			b.seen["asked"] < 2 {
			step, ended := b.nextStep(), make(chan error, 1)
			b.changed.Store(true)
			go func() { ended <- step() }()
			<-b.reached
			waiting := b.commitBeside()
			if waiting == nil && b.random.IntN(3) == 0 {
				waiting = b.commitLarge()
			}
			if waiting == nil && b.random.IntN(2) == 0 {
				b.closeBeside()
				continue
			}
			if waiting == nil && b.random.IntN(3) == 0 {
				b.askBeside()
				continue
			}
			if waiting == nil {
				waiting = make(chan error, 1)
				go func() {
					synctest.Wait()
					waiting <- b.commit(1)
				}()
			}
			b.changed.Store(true) // would hold another step, for ever
			b.outcome <- errSync
			for what, got := range map[string]chan error{
				"the step": ended, "a commit after it": waiting,
			} {
				if err := <-got; !errors.Is(err, errSync) {
					t.Fatalf("got %v from %s, want %v", err, what, errSync)
				}
			}
			if index, err := b.FileIndex(); err == nil {
				t.Errorf("the file is said to have index %d", index)
			}
			b.seen["broken"]++
			b.must(b.Close())
			b.changed.Store(false)
			b.open()
			if got := dump(b.Store); got != b.want {
				t.Fatalf("got index %d, want %d", got.index, b.want.index)
			}
		}
		b.must(b.Close())
		t.Log(b.seen)
		if b.seen["beside"] == 0 {
			t.Error("this was not tried")
		}
	})
}

// commitLarge makes a commit that is too large for the log, and so waits for the step.
func (b *beside) commitLarge() (waiting chan error) {
	waiting = make(chan error, 1)
	go func() { waiting <- b.commitJust(1000) }()
	synctest.Wait()
	b.seen["large"]++
	return waiting
}

// mustWait checks that the call waits for the step that is held, and then succeeds.
func (b *beside) mustWait(call func() error) {
	b.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	synctest.Wait()
	select {
	case err := <-ended:
		b.t.Fatalf("it has not waited for a step that is under way: %v", err)
	default:
	}
	b.outcome <- nil
	b.must(<-ended)
}

// askBeside asks for the file's index while a step is held.
func (b *beside) askBeside() {
	b.t.Helper()
	b.mustWait(func() error {
		index, err := b.FileIndex()
		if err == nil && index != b.want.index {
			err = fmt.Errorf("got index %d, want %d", index, b.want.index)
		}
		return err
	})
	b.seen["asked"]++
}

// closeBeside closes the store while a step is held, and opens it again.
func (b *beside) closeBeside() {
	b.t.Helper()
	b.mustWait(b.Close)
	b.seen["closed"]++
	b.open()
	if got := dump(b.Store); got != b.want {
		b.t.Fatalf("got index %d, want %d", got.index, b.want.index)
	}
}
