package lockd_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

// With the first quarter of them the log of a file is as large as it becomes.
var sizePairs = flag.Int("size.pairs", 80_000, "how many locks the tests of size take")

const (
	sizeKeys   = 1_000
	sizeEvery  = 2_000 // pairs from one look at the heap to the next
	mostOnDisk = 16 << 20
	mostOnHeap = 4 << 20 // beyond what there was before
)

// Ensure that a file and a heap do not grow with the number of locks that were ever taken and
// released, but only with what is kept: for keys that are used again and again, and for keys that
// are new every time and removed after.
func TestSize_IsBounded(t *testing.T) {
	for _, test := range []struct {
		name    string
		key     func(i int) string
		opts    lockd.LockOptions
		workers int // so many keys at a time
		left    int // keys
	}{
		{"1,000 keys", func(i int) string { return fmt.Sprintf("lock/%d", i%sizeKeys) },
			lockd.LockOptions{}, 64, sizeKeys},
		{"new keys", func(i int) string { return fmt.Sprintf("user/%d", i) },
			lockd.LockOptions{Key: lockd.RemoveAfter}, 1_000, 0},
	} {
		t.Run(test.name+"/Memory", func(t *testing.T) {
			sz := &sizes{t: t, key: test.key, opts: test.opts, workers: test.workers}
			sz.run(test.left)
		})
		t.Run(test.name+"/File", func(t *testing.T) {
			sz := &sizes{t: t, key: test.key, opts: test.opts, workers: test.workers}
			sz.path = filepath.Join(t.TempDir(), "lockd.db")
			sz.run(test.left)
		})
	}
}

// sizes takes and releases locks, and measures.
type sizes struct {
	*lockd.DB
	t    *testing.T
	in   *hook.Clock
	path string
	key  func(i int) string
	opts lockd.LockOptions

	workers  int
	sessions []*lockd.Session // of each worker
}

// run fails the test unless the size is bounded, and that many keys are left.
func (sz *sizes) run(left int) {
	t := sz.t
	t.Helper()
	var err error
	sz.in = probe(nil, store.Hooks{})
	if sz.path == "" {
		sz.DB, err = lockd.New(&lockd.Options{Clock: sz.in})
	} else {
		sz.DB, err = lockd.Open(sz.path,
			&lockd.Options{Sync: lockd.SyncNever, Clock: sz.in})
	}
	if err != nil {
		t.Fatal(err)
	}
	sz.begin()
	quarter := *sizePairs / 4
	if raced { // the workers meet often in a twentieth, too
		quarter /= 20
	}
	sz.lockAll(0, quarter)
	before := sz.least("the second quarter", quarter, 2*quarter)
	sz.lockAll(2*quarter, 3*quarter)
	after := sz.least("the last quarter", 3*quarter, 4*quarter)
	if after > before+mostOnHeap {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	sz.end()
	if got := sz.Snapshot().Len(); got != left {
		t.Errorf("%d keys are left, want %d", got, left)
	}
	if got := sz.in.Controls.States(); got != 0 {
		t.Errorf("something is known of %d locks that are free", got)
	}
	if err := sz.Close(); err != nil {
		t.Fatal(err)
	}
	if size := sz.onDisk(); size > mostOnDisk {
		t.Errorf("the file has %d bytes, more than %d", size, mostOnDisk)
	}
}

// onDisk is the size of the file.
func (sz *sizes) onDisk() int64 {
	sz.t.Helper()
	if sz.path == "" {
		return 0
	}
	info, err := os.Stat(sz.path)
	if err != nil {
		sz.t.Fatal(err)
	}
	return info.Size()
}

// begin makes a session for each worker.
func (sz *sizes) begin() {
	sz.t.Helper()
	for range sz.workers {
		s, err := sz.NewSession(nil)
		if err != nil {
			sz.t.Fatal(err)
		}
		sz.sessions = append(sz.sessions, s)
	}
}

// end closes the sessions.
func (sz *sizes) end() {
	sz.t.Helper()
	for _, s := range sz.sessions {
		if err := s.Close(); err != nil {
			sz.t.Fatal(err)
		}
	}
}

// least takes and releases the locks from one number to another, and returns the least that was on
// the heap meanwhile. It looks often: the rows of the log are on the heap too until a checkpoint
// has them, which may be 7 MB, and two looks would say how far the next checkpoint was.
func (sz *sizes) least(when string, from, to int) uint64 {
	sz.t.Helper()
	began := time.Now()
	least := uint64(math.MaxUint64)
	for at := from; at < to; at += sizeEvery {
		sz.lockAll(at, min(at+sizeEvery, to))
		least = min(least, onHeap())
	}
	sz.t.Logf("%s: %d pairs in %v; %d KiB on disk, at least %d KiB on the heap", when, to-from,
		time.Since(began).Round(time.Millisecond), sz.onDisk()>>10, least>>10)
	return least
}

// lockAll takes and releases the locks from one number to another, each worker with its session.
func (sz *sizes) lockAll(from, to int) {
	sz.t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var workers sync.WaitGroup
	faults := make([]error, sz.workers)
	for w, s := range sz.sessions {
		workers.Go(func() {
			var err error
			for i := int(next.Add(1)) - 1; err == nil && i < to; i = int(next.Add(1)) - 1 {
				var lock *lockd.Lock
				if lock, err = s.Lock(sz.t.Context(), sz.key(i), &sz.opts); err == nil {
					err = lock.Unlock()
				}
			}
			faults[w] = err
		})
	}
	workers.Wait()
	if err := errors.Join(faults...); err != nil {
		sz.t.Fatal(err)
	}
}

// onHeap returns how much of the heap is in use.
func onHeap() uint64 {
	runtime.GC()
	runtime.GC() // what pools held back
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}
