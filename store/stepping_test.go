package store_test

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// beside is a store of which a step of the checkpoint is held, while commits are made.
type beside struct {
	*wide
	armed   atomic.Bool   // the next sync is held
	reached chan struct{} // it is
	outcome chan error    // what it comes to
	fail    atomic.Bool   // the next sync that is not held fails
	want    whole         // what was committed
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
	b.synced = func() error {
		if b.armed.CompareAndSwap(true, false) {
			b.reached <- struct{}{}
			return <-b.outcome
		}
		if b.fail.CompareAndSwap(true, false) {
			return errSync
		}
		return nil
	}
	b.open()
	return b
}

// commit changes some rows.
func (b *beside) commit(many int) error {
	b.change(1 + b.random.IntN(many))
	b.Seal()
	batch := b.Take()
	if err := batch.Write(); err != nil {
		b.Drop(batch)
		return err
	}
	b.Publish(batch)
	b.want = dump(b.Store)
	return nil
}

// commitBeside makes some commits while the step has not ended. It returns the outcome of the last
// one if that waits for the step.
func (b *beside) commitBeside() (waiting chan error) {
	b.t.Helper()
	for range 1 + b.random.IntN(4) {
		failing := b.random.IntN(8) == 0
		b.fail.Store(failing)
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
			b.fail.Store(false) // it may have waited before it failed
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

// opens checks that such a file has what was committed.
func (b *beside) opens(what string, content []byte) {
	b.t.Helper()
	path := newPath(b.t)
	b.must(os.WriteFile(path, content, 0o600))
	if got, err := openStore(path); err != nil || got != b.want {
		b.t.Fatalf("%s: got index %d, %v, want %d", what, got.index, err, b.want.index)
	}
}

// cut checks the file as a power cut may leave it before the step's meta page is on disk: with what
// the commits have written, and any of what the step has.
func (b *beside) cut(before, stepped []byte) {
	b.t.Helper()
	left := b.content()
	metas := 2 * os.Getpagesize()
	copy(left[:metas], before[:metas])
	before = append(bytes.Clone(before), make([]byte, len(left)-len(before))...)
	for at := metas; at < len(stepped); at += sector {
		end := at + sector
		if bytes.Equal(left[at:end], stepped[at:end]) && b.random.IntN(2) == 0 {
			copy(left[at:end], before[at:end])
		}
	}
	b.opens("after a power cut", left)
}

// Ensure that commits go on beside a step of a checkpoint, whether it has begun to write or has
// written all, and that the file has what was committed then, after a crash too; that one which has
// no room waits for the step, and one that fails leaves nothing.
func TestStepping_G2_CommitsBesideAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(t)
		for b.seen["steps"] < 50 || b.seen["waited"] < 2 {
			if err := b.commit(20); err != nil {
				t.Fatal(err)
			}
			step := b.Tidy()
			if step == nil {
				continue
			}
			b.seen["steps"]++
			before, ended := b.content(), make(chan struct{})
			late := b.random.IntN(3) == 0
			run := func() { step(); close(ended) }
			if !late {
				b.armed.Store(true)
				go run()
				<-b.reached
			}
			stepped := b.content()
			waiting := b.commitBeside()
			b.opens("beside the step", b.content())
			if late {
				go run()
			} else {
				b.cut(before, stepped)
				b.outcome <- nil
			}
			<-ended
			if waiting != nil {
				b.must(<-waiting)
			}
			b.opens("after the step", b.content())
		}
		b.must(b.Close())
		t.Log(b.seen)
		if b.seen["beside"] == 0 || b.seen["failed"] == 0 {
			t.Error("this was not tried")
		}
	})
}

// Ensure that after commits beside a step that fails, when it may be in the file, no more are made,
// and that the file has those that were; Close waits for a step.
func TestStepping_G11_FailsBesideCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeside(t)
		for b.seen["broken"] < 20 || b.seen["closed"] < 4 {
			if err := b.commit(20); err != nil {
				t.Fatal(err)
			}
			step := b.Tidy()
			if step == nil {
				continue
			}
			b.armed.Store(true)
			go step()
			<-b.reached
			waiting := b.commitBeside()
			if waiting == nil && b.random.IntN(2) == 0 {
				b.closeBeside()
				continue
			}
			if waiting == nil {
				waiting = make(chan error, 1)
				go func() {
					synctest.Wait()
					waiting <- b.commit(1)
				}()
			}
			b.outcome <- errSync
			if err := <-waiting; !errors.Is(err, errSync) {
				t.Fatalf("got %v from a commit after the step, want %v", err, errSync)
			}
			if index, err := b.FileIndex(); err == nil {
				t.Errorf("the file is said to have index %d", index)
			}
			b.seen["broken"]++
			b.must(b.Close())
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

// closeBeside closes the store while a step is held, and opens it again.
func (b *beside) closeBeside() {
	b.t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	synctest.Wait()
	select {
	case err := <-closed:
		b.t.Fatalf("closed while a step is under way: %v", err)
	default:
	}
	b.outcome <- nil
	b.must(<-closed)
	b.seen["closed"]++
	b.open()
	if got := dump(b.Store); got != b.want {
		b.t.Fatalf("got index %d, want %d", got.index, b.want.index)
	}
}
