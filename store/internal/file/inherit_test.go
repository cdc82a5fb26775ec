package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// failedSync is a file of which a sync has failed. Each sector that should be on disk may be there
// or not. The system has the sectors in memory and takes them for written.
type failedSync struct {
	synced  []byte // as it was on disk before
	written []byte // with all that was written
	cached  []byte // as the system had it in the end: a record may have been withdrawn
}

// failSync makes commits until the sync with that number fails.
func failSync(t *testing.T, fn func(s *store.Store, round int), number int) failedSync {
	t.Helper()
	path := newPath(t)
	read := func() []byte { return contentOf(t, path) }
	f, syncs := failedSync{}, 0
	hooks := store.Hooks{Synced: func() error {
		switch syncs++; {
		case syncs == number-1:
			f.synced = read()
		case syncs >= number:
			if syncs == number {
				f.written = read()
			}
			return errSync
		}
		return nil
	}}
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true, Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	if number == 1 {
		f.synced = read()
	}
	for round := 0; ; round++ {
		if err := write(s, func() { fn(s, round) }); errors.Is(err, errSync) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f.cached = read()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, content := range []*[]byte{&f.synced, &f.written} {
		*content = append(*content, make([]byte, len(f.cached)-len(*content))...)
	}
	return f
}

// bolt reports whether the sync was of the meta page of a commit by bbolt, which has synced
// everything else before.
func (f *failedSync) bolt() bool {
	metas := 2 * os.Getpagesize()
	return !bytes.Equal(f.synced[:metas], f.written[:metas])
}

// pages is the file if instead the sync before that one has failed, the sync of the pages.
func (f *failedSync) pages() failedSync {
	metas := 2 * os.Getpagesize()
	cached := append(bytes.Clone(f.synced[:metas]), f.written[metas:]...)
	return failedSync{synced: f.synced, written: cached, cached: cached}
}

// onDisk returns what is on disk: sectors of one kind in the first rounds, of random kinds later.
func (f *failedSync) onDisk(random *rand.Rand, round int) []byte {
	disk := bytes.Clone(f.written)
	from, kinds := 0, [][]byte{f.synced, f.written, f.cached}
	for at := 0; at < len(disk); at += sector {
		if f.bolt() && at >= 2*os.Getpagesize() {
			break
		}
		if from = round; round >= len(kinds) {
			from = random.IntN(len(kinds))
		}
		copy(disk[at:at+sector], kinds[from][at:])
	}
	return disk
}

// heir opens a file as the system has it in memory. Then the system forgets what it has not
// written.
type heir struct {
	*store.Store
	t       *testing.T
	path    string
	failing bool // its next sync fails
	syncs   int
}

func newHeir(t *testing.T, cached, disk []byte) *heir {
	t.Helper()
	h := &heir{Store: store.New(), t: t, path: newPath(t)}
	if err := os.WriteFile(h.path, cached, 0o600); err != nil {
		t.Fatal(err)
	}
	before := age(t, h.path)
	hooks := store.Hooks{Synced: func() error {
		h.syncs++
		if h.failing {
			h.failing = false
			return errSync
		}
		return nil
	}}
	if err := h.Open(h.path, store.Options{NoSync: true, Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	if stateOf(t, h.path) != before || h.syncs > 0 {
		t.Fatal("it was written to or synced by an Open")
	}
	h.forget(disk)
	return h
}

// close closes the file, and removes it: there are thousands of them.
func (h *heir) close() {
	h.t.Helper()
	if err := errors.Join(h.Close(), os.Remove(h.path)); err != nil {
		h.t.Error(err)
	}
}

func (h *heir) forget(disk []byte) { overwrite(h.t, h.path, 0, string(disk)) }

// commit writes the given number of rows.
func (h *heir) commit(rows int) error {
	return write(h.Store, func() {
		for i := range rows {
			key := fmt.Sprintf("heir/%d", i)
			h.Keys.Put(key, schema.Key{Key: key, Value: make([]byte, 90), Fence: h.Next()})
		}
	})
}

// check checks what is on disk.
func (h *heir) check(what string) {
	h.t.Helper()
	got, err := openCopy(h.t, h.path)
	if err != nil || got != dump(h.Store) {
		h.t.Errorf("%s: got index %d, %v, want %d", what, got.index, err, h.Published())
	}
}

// Ensure that after a failed sync, when the system takes for written what is not on disk, the next
// process that opens the file has on disk what it begins from: before it answers, and with its
// first commit, to the log or to the tables, also if a sync of its own fails before that.
func TestFailedSync_G2_NextOpenHasOnDiskWhatItReads(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bolts, records := 0, 0
			for number := 1; number <= 40; number += min(step(), 7) {
				f := failSync(t, fn, number)
				switch {
				case f.bolt():
					bolts++
					pages := f.pages()
					pages.inherit(t, fmt.Sprintf("pages before sync %d", number), 4)
				case !bytes.Equal(f.synced, f.written):
					records++
				}
				f.inherit(t, fmt.Sprintf("sync %d", number), 4)
			}
			if step() == 1 && (bolts < 3 || records < 5) {
				t.Errorf("%d commits of bbolt's and %d records", bolts, records)
			}
		})
	}
}

// Ensure that the next process does not answer from a file whose log has been damaged since it
// opened the file.
func TestFailedSync_G2_DamagedMeanwhile(t *testing.T) {
	f := failSync(t, traffic["many locks of more"], 20)
	disk := bytes.Clone(f.cached)
	for at := 2 * os.Getpagesize(); at < len(disk); at++ {
		disk[at] = 0xff
	}
	h := newHeir(t, f.cached, disk)
	if err := h.Secure(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	h.close()
}

// secure lets an heir read, but not write.
func (f *failedSync) secure(t *testing.T, what string, cached, disk []byte) {
	t.Helper()
	h := newHeir(t, cached, disk)
	if err := h.Secure(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	h.check(what)
	h.close()
}

// inherit lets the given number of heirs of each kind commit.
func (f *failedSync) inherit(t *testing.T, what string, heirs int) {
	t.Helper()
	random := rand.New(rand.NewPCG(4, uint64(len(f.cached))))
	for i := range heirs {
		disk := f.onDisk(random, i)
		f.secure(t, fmt.Sprintf("%s, answer %d", what, i), f.cached, disk)
		f.inheritFrom(t, fmt.Sprintf("%s, heir %d", what, i), f.cached, disk, 1+random.IntN(4))
		if !bytes.Equal(f.cached, f.written) { // it may have ended before it withdrew the record
			f.inheritFrom(t, fmt.Sprintf("%s, heir %d of all", what, i), f.written, disk,
				1+random.IntN(4))
			f.secure(t, fmt.Sprintf("%s, answer %d of all", what, i), f.written, disk)
		}
	}
}

func (f *failedSync) inheritFrom(t *testing.T, what string, cached, disk []byte, kind int) {
	t.Helper()
	h := newHeir(t, cached, disk)
	if kind == 1 {
		h.failing = true
		h.Marks.Put("failed", schema.Mark{Name: "failed", Index: h.Next()})
		h.Seal()
		b := h.Take()
		if err := h.Write(b); !errors.Is(err, errSync) {
			t.Fatalf("%s: got %v", what, err)
		}
		h.Drop(b)
		h.forget(disk)
	}
	rows := 1
	if kind == 2 {
		rows = 700 // more than the log takes
	}
	err := h.commit(rows)
	h.check(what)
	if err := errors.Join(err, h.commit(1), h.commit(1)); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if kind == 3 {
		h.check(what + ", later")
	}
	h.close()
}
