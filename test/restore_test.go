package lockd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Ensure that a closed database reads no backup, and says what it is: closed.
func TestRestore_AfterClose(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.Close())
		for name, text := range map[string]string{"bad": "no backup", "empty": ""} {
			r := strings.NewReader(text)
			err := h.Restore(r)
			if !errors.Is(err, lockd.ErrClosed) || errors.Is(err, lockd.ErrCorrupt) {
				h.t.Errorf("%s: got %v, want ErrClosed", name, err)
			}
			if r.Len() != len(text) {
				h.t.Errorf("%s: it was read", name)
			}
		}
	})
}

// Ensure that a restore over a database with holders, waiters and watchers ends holders and waiters
// with ErrRestored, grants nothing before the delay is over, and notifies the watchers of each end
// and then of all changes, at one index.
func TestG5G7_RestoreUnderLoad(t *testing.T) {
	each(t, func(h *harness) {
		h.put("changed", "1", 0)
		b := h.backup()
		h.put("changed", "2", 0)
		h.put("added", "", 0)
		holder := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
		lock := h.lock(holder, "held")
		line := h.line("held", h.sessions(2)...)
		from := h.Snapshot().Index()
		changed := h.changed(h.t.Context(), lockd.KeyScope("changed"), from)
		var ends, changes []uint64
		watches := []*call{start(func() error {
			for e, err := range h.Watch(h.t.Context(), lockd.SessionsScope(), from) {
				if err != nil || !errors.Is(e.Cause, lockd.ErrRestored) {
					return errors.Join(err, e.Cause, errors.New("not the end that was expected"))
				}
				if ends = append(ends, e.Index); len(ends) == 3 {
					break
				}
			}
			return nil
		}), start(func() error {
			for e, err := range h.Watch(h.t.Context(), lockd.PrefixScope(""), from) {
				if err != nil {
					return err
				}
				if lockChange(e) == lockLost {
					continue // with its session
				}
				if changes = append(changes, e.Index); len(changes) == 3 {
					break
				}
			}
			return nil
		})}
		h.settle()

		h.must(h.Restore(bytes.NewReader(b)))
		for _, watch := range watches {
			h.must(watch.wait())
		}
		h.settle()
		if !isClosed(changed) || !isClosed(lock.Done()) {
			t.Error("Done is open, or Wait has not returned")
		}
		for i, call := range line.calls {
			if err := call.wait(); !errors.Is(err, lockd.ErrRestored) {
				t.Errorf("waiter %d: got %v", i, err)
			}
		}
		for i, index := range ends {
			if index != from+uint64(i)+1 {
				t.Errorf("after %d: ends at %v", from, ends)
			}
		}
		for _, index := range changes {
			if index != from+4 {
				t.Errorf("after %d: changes at %v", from, changes)
			}
		}
		next := h.session(nil)
		if got := h.remaining(next, "held"); got != 5*time.Second {
			t.Errorf("delay: got %v", got)
		}
		h.advance(5 * time.Second)
		if fence := h.lock(next, "held").Sequencer().Fence; fence <= lock.Sequencer().Fence {
			t.Errorf("fence %d after %d", fence, lock.Sequencer().Fence)
		}
	})
}

var errRead = errors.New("connection reset")

// Ensure that the error of a reader that fails half-way is the one that is returned, and that
// nothing has changed then, and no file was made.
func TestG11_RestoreReaderFails(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", string(make([]byte, 10_000)), 0)
		b := h.backup()
		h.put("k", "later", 0)
		lock := h.lock(h.session(nil), "k")
		index := h.Snapshot().Index()
		path := filepath.Join(h.t.TempDir(), "restored.db")
		for _, n := range []int{0, 1, 12, 13, 14, 5000, len(b) - 32, len(b) - 1, len(b)} {
			reader := func() io.Reader {
				return io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(errRead))
			}
			for what, err := range map[string]error{
				"over the database": h.Restore(reader()),
				"into a file":       lockd.Restore(path, reader(), 0, nil),
			} {
				if !errors.Is(err, errRead) || errors.Is(err, lockd.ErrCorrupt) ||
					errors.Is(err, lockd.ErrFormat) {
					t.Errorf("%s, after %d bytes: got %v", what, n, err)
				}
			}
		}
		if got := h.Snapshot().Index(); got != index || lock.Err() != nil {
			t.Errorf("index %d, then %d; lock: %v", index, got, lock.Err())
		}
		if left, err := os.ReadDir(filepath.Dir(path)); len(left) > 0 || err != nil {
			t.Errorf("left in the folder: %v (%v)", left, err)
		}
	})
}

// Ensure that indexes and fences go on above those of the backup also over a database whose own are
// lower, such as a new one in place of one that was lost, even if nothing else changes; and that
// they do after a restart.
func TestG4G8_RestoreOverAYoungerDatabase(t *testing.T) {
	for name, value := range map[string]string{"differs": "old", "equal": ""} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				old, err := lockd.New(&lockd.Options{Clock: h.clock})
				h.must(err)
				defer func() { h.must(old.Close()) }()
				for i := range 50 {
					h.must(second(old.Put("k", []byte{byte(i)}, nil)))
				}
				s, err := old.NewSession(nil)
				h.must(err)
				lock, err := s.TryLock("k", nil)
				h.must(err)
				h.must(second(old.Put("k", []byte(value), nil)))
				var b bytes.Buffer
				h.must(old.Backup(&b))
				last := old.Snapshot().Index()

				h.put("k", "", 0)
				h.must(h.Restore(bytes.NewReader(b.Bytes())))
				if got := h.Snapshot().Index(); got <= last || string(h.entry("k").Value) != value {
					t.Errorf("at %d, after %d: %+v", got, last, h.entry("k"))
				}
				if h.path != "" {
					h.reopen()
				}
				fence := h.lock(h.session(nil), "k").Sequencer().Fence
				if fence <= lock.Sequencer().Fence || fence <= last {
					t.Errorf("fence %d, after %d at %d", fence, lock.Sequencer().Fence, last)
				}
			})
		})
	}
}

// Ensure the same if the commit of the restore fails, and the restore is repeated.
func TestG4G8_RestoreOverAYoungerDatabaseAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		const last = 1_000_000
		var b bytes.Buffer
		h.must(lockd.WriteBackup(&b, last, func(*lockd.Txn) error { return nil }))
		c := h.commits()
		c.fail(errDisk)
		mustFail(t, "restore", h.Restore(bytes.NewReader(b.Bytes())))
		c.fail(nil)
		h.must(h.Restore(bytes.NewReader(b.Bytes())))
		h.reopen()
		if e := h.put("k", "", 0); e.ModifyIndex <= last {
			t.Errorf("index %d, after %d", e.ModifyIndex, last)
		}
	})
}

// Ensure that a backup with an index so high that the database's would soon overflow is refused
// before anything changes.
func TestDB_Restore_IndexNearOverflow(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		s := h.session(nil)
		index := h.Snapshot().Index()
		far := store.New()
		far.Raise(math.MaxInt64)
		var b bytes.Buffer
		h.must(store.WriteBackup(&b, far.Snapshot()))
		if err := h.Restore(&b); !errors.Is(err, lockd.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		if s.Err() != nil || h.Snapshot().Index() != index {
			t.Errorf("session %v, index %d, then %d", s.Err(), index, h.Snapshot().Index())
		}
	})
}

// Ensure that a backup whose rows name a node that it does not have is refused before anything
// changes, whatever the node of the process is called.
func TestDB_Restore_References(t *testing.T) {
	for _, node := range []string{"", "here"} {
		t.Run("node "+node, func(t *testing.T) {
			each(t, func(h *harness) {
				h.opts.Node = node
				h.reopen()
				s := h.session(nil)
				for _, name := range []string{h.Node(), "local", "gone"} {
					crafted := store.New()
					crafted.Services.Put(name+"\x00s",
						schema.Service{Node: name, ID: "s", Name: "s"})
					crafted.Seal()
					crafted.PublishMemory()
					var b bytes.Buffer
					h.must(store.WriteBackup(&b, crafted.Snapshot()))
					err := h.Restore(&b)
					if !errors.Is(err, lockd.ErrCorrupt) || s.Err() != nil {
						t.Errorf("of node %q: got %v, session %v", name, err, s.Err())
					}
				}
			})
		})
	}
}

// Ensure that the node of this process stays, and can have sessions, also if the backup has its ID
// for a node of another name; and that the backup's node has the ID then.
func TestDB_Restore_N5_NodeOfTheSameID(t *testing.T) {
	each(t, func(h *harness) {
		put := func(node catalog.Node) {
			h.must(h.txn(func(tx *lockd.Txn) error { return tx.Catalog().PutNode(node) }))
		}
		put(catalog.Node{Name: "before", ID: "X"})
		var b bytes.Buffer
		h.must(h.Backup(&b))
		h.opts.Node = "now"
		h.reopen()
		put(catalog.Node{Name: "now", ID: "X", Address: "a"})
		h.must(h.Restore(&b))
		h.session(nil)
		before, _ := h.Snapshot().Catalog().Node("before")
		now, ok := h.Snapshot().Catalog().Node("now")
		if before.ID != "X" || !ok || now.ID != "" || now.Address != "a" {
			t.Errorf("got %+v and %+v", before, now)
		}
	})
}

// Ensure that Restore refuses a place where it can make no file, with the reason, and changes
// nothing there.
func TestRestore_Place(t *testing.T) {
	onFile(t, func(h *harness) {
		b := h.backup()
		folder := h.t.TempDir()
		file := filepath.Join(folder, "file")
		h.must(os.WriteFile(file, []byte("x"), 0o600))
		link := filepath.Join(folder, "link")
		if err := os.Symlink(filepath.Join(folder, "nothing"), link); err != nil {
			link = file // no links here
		}
		for _, test := range []struct {
			name, path string
			want       error
		}{
			{"empty", "", lockd.ErrInvalid},
			{"a file", file, fs.ErrExist},
			{"a folder", folder, fs.ErrExist},
			{"a link to nothing", link, fs.ErrExist},
			{"no such folder", filepath.Join(folder, "none", "restored.db"), fs.ErrNotExist},
			{"below a file", filepath.Join(file, "restored.db"), nil},
		} {
			err := lockd.Restore(test.path, bytes.NewReader(b), 0, nil)
			if err == nil || test.want != nil && !errors.Is(err, test.want) ||
				test.want != fs.ErrExist && errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: got %v, want %v", test.name, err, test.want)
			}
		}
		left, err := os.ReadDir(folder)
		h.must(err)
		if content := readFile(h.t, file); string(content) != "x" || len(left) > 2 {
			t.Errorf("left: %v, %q", left, content)
		}
	})
}

// halting is a writer whose first write waits.
type halting struct {
	bytes.Buffer
	begun, on chan struct{}
}

func newHalting() *halting {
	return &halting{begun: make(chan struct{}), on: make(chan struct{})}
}

func (w *halting) Write(p []byte) (int, error) {
	if w.Len() == 0 {
		close(w.begun)
		<-w.on
	}
	return w.Buffer.Write(p)
}

// Ensure that writes, locks, and the end of the database, go on while a backup is written, however
// long that takes, and that the backup is of the moment at which it began.
func TestBackup_WritesGoOn(t *testing.T) {
	each(t, func(h *harness) {
		for i := range 500 { // more than is written at once
			h.put(fmt.Sprintf("key/%03d", i), strings.Repeat("v", 100), 0)
		}
		want := h.backup()
		w := newHalting()
		writing := start(func() error { return h.Backup(w) })
		<-w.begun
		h.must(h.lock(h.session(nil), "key/100").Unlock())
		h.must(second(h.DeletePrefix("key/2")))
		h.put("key/400", "changed", 0)
		h.put("new", "", 0)
		if h.path != "" {
			h.reopen()
		}
		close(w.on)
		h.must(writing.wait())
		if !bytes.Equal(w.Bytes(), want) {
			t.Error("the backup is not that of the moment at which it began")
		}
		h.must(h.Restore(bytes.NewReader(want)))
		if got := h.Snapshot().Len(); got != 500 || len(h.entry("key/400").Value) != 100 {
			t.Errorf("restored: %d keys, %+v", got, h.entry("key/400"))
		}
	})
}

// Ensure that memory does not grow with the writes that are made while a backup is written to a
// slow writer, beyond the state that is backed up.
func TestBackup_SlowWriterHoldsOneState(t *testing.T) {
	db, err := lockd.New(&lockd.Options{History: 1_000}) // full after the first round
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	round := func(value []byte) {
		for i := range 1_000 {
			if _, err := db.Put(fmt.Sprintf("key/%03d", i), bytes.Clone(value), nil); err != nil {
				t.Fatal(err)
			}
		}
		db.Snapshot()
	}
	round(make([]byte, 100))
	w := newHalting()
	writing := start(func() error { return db.Backup(w) })
	<-w.begun
	round(bytes.Repeat([]byte{1}, 101)) // beside the state that is written
	before := heap()
	for i := range 50 {
		round(bytes.Repeat([]byte{byte(i)}, 100+i%2))
	}
	after := heap()
	close(w.on)
	if err := writing.wait(); err != nil {
		t.Fatal(err)
	}
	if after > before+1<<20 { // the rounds have written 5 MB of values
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

// Ensure that a restore whose commit fails has changed nothing, for holders, waiters and watchers,
// and can be repeated; and that a restore that may or may not be in the file ends all of them with
// ErrFailed, and is there whole after the next Open.
func TestG10G11_RestoreCommitFails(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.put("k", "1", 0)
		b := h.backup()
		h.put("k", "2", 0)
		h.put("added", "", 0)
		lock := h.lock(h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second}), "held")
		line := h.line("held", h.session(nil))
		before := h.contents()
		changed := h.changed(h.t.Context(), lockd.PrefixScope(""), h.Snapshot().Index())
		restore := func() error { return h.Restore(bytes.NewReader(b)) }
		c.fail(errDisk)
		for range 2 {
			mustFail(t, "restore", restore())
			line.mustWait(0)
			h.settle()
			if got := h.contents(); fmt.Sprint(got) != fmt.Sprint(before) || isClosed(changed) {
				t.Fatalf("before %v, after %v; Wait returned: %t", before, got, isClosed(changed))
			}
			h.must(h.CheckSequencer(lock.Sequencer()))
		}
		c.fail(nil)
		c.failAfter(errDisk)
		mustFail(t, "restore", restore())
		for what, err := range map[string]error{
			"lock": lock.Err(), "waiter": line.calls[0].wait(), "again": restore(),
		} {
			if !errors.Is(err, lockd.ErrFailed) || !errors.Is(err, errDisk) {
				t.Errorf("%s: got %v, want ErrFailed with its cause", what, err)
			}
		}
		if got := h.contents(); fmt.Sprint(got) != fmt.Sprint(before) {
			t.Errorf("before %v, after %v", before, got)
		}
		c.failAfter(nil)
		h.reopen()
		if got := h.Snapshot().Len(); got != 1 || string(h.entry("k").Value) != "1" {
			t.Errorf("after the reopen: %d keys, %+v", got, h.entry("k"))
		}
		if got := h.remaining(h.session(nil), "held"); got != 5*time.Second {
			t.Errorf("delay: got %v", got)
		}
		h.must(restore())
	})
}

// Ensure that the file that Restore makes is on disk when it returns (G2), whatever Options.Sync
// says of the writes that follow.
func TestRestore_G2_OnDiskWhateverThePolicy(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		var backup bytes.Buffer
		h.must(h.Backup(&backup))
		synced := 0
		path := filepath.Join(t.TempDir(), "restored.db")
		h.must(lockd.Restore(path, &backup, 0, &lockd.Options{
			Sync: lockd.SyncNever,
			Clock: probe(nil, store.Hooks{
				SyncFolder: func(string) error { synced++; return nil },
			}),
		}))
		if synced == 0 {
			t.Error("the folder was not synced")
		}
	})
}
