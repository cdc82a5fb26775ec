package lockd_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// backup returns a backup of the database.
func (h *harness) backup() []byte {
	h.t.Helper()
	var b bytes.Buffer
	h.must(h.Backup(&b))
	return b.Bytes()
}

// Ensure that a restore over a live database changes what differs, at one index, and nothing else.
func TestDB_Restore(t *testing.T) {
	each(t, func(h *harness) {
		same := h.put("same", "1", 0)
		h.put("changed", "1", 0)
		h.put("deleted", "1", 0)
		b := h.backup()
		h.put("changed", "2", 0)
		h.put("added", "1", 0)
		_, err := h.Delete("deleted")
		h.must(err)
		s := h.session(nil)
		lock := h.lock(s, "same")
		before := h.Snapshot().Index()

		h.must(h.Restore(bytes.NewReader(b)))
		if !errors.Is(lock.Err(), lockd.ErrRestored) || !errors.Is(s.Err(), lockd.ErrRestored) {
			t.Fatalf("lock %v, session %v", lock.Err(), s.Err())
		}
		if _, ok := h.Get("added"); ok {
			t.Fatal("a key stays that the backup does not have")
		}
		index := h.entry("changed").ModifyIndex
		if e := h.entry("changed"); string(e.Value) != "1" || index != before+2 {
			t.Fatalf("changed: got %+v after %d", e, before)
		}
		if e := h.entry("deleted"); e.CreateIndex != index {
			t.Fatalf("deleted: got %+v, want it made at %d", e, index)
		}
		e := h.entry("same")
		if e.CreateIndex != same.CreateIndex || e.ModifyIndex != before+1 {
			t.Fatalf("same: got %+v, want only the end of the session at %d", e, before+1)
		}
		_, err = h.session(nil).TryLock("same", nil)
		if refused, ok := errors.AsType[*lockd.LockedError](err); !ok ||
			refused.Obstacle != lockd.ObstacleDelay {
			t.Fatalf("lock after the restore: got %v, want its delay", err)
		}
	})
}

// Ensure that nodes, services and checks come back, and that the node of the process stays.
func TestDB_Restore_Catalog(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.Update(func(tx *lockd.Txn) error {
			return errors.Join(
				tx.Catalog().PutNode(catalog.Node{Name: "n", Meta: map[string]string{"a": "b"}}),
				tx.Catalog().PutService(catalog.Service{
					Node: "n", Name: "web", Tags: []string{"x"},
				}),
				tx.Catalog().PutCheck(catalog.Check{Node: "n", Name: "up", ServiceID: "web"}))
		}))
		b := h.backup()
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().DeleteNode("n")
			return errors.Join(err, tx.Catalog().PutNode(catalog.Node{Name: "other"}))
		}))
		h.must(h.Restore(bytes.NewReader(b)))
		s := h.Snapshot()
		if c, ok := s.Catalog().Check("n", "up"); !ok || c.ServiceID != "web" {
			t.Fatalf("check: got %+v, %v", c, ok)
		}
		if v, ok := s.Catalog().Service("n", "web"); !ok || len(v.Tags) != 1 {
			t.Fatalf("service: got %+v, %v", v, ok)
		}
		if _, ok := s.Catalog().Node("other"); ok {
			t.Fatal("a node stays that the backup does not have")
		}
		if _, ok := s.Catalog().Node("local"); !ok {
			t.Fatal("the node of the process has gone")
		}
	})
}

// Ensure that a damaged, cut or foreign backup is refused before anything changes.
func TestDB_Restore_Damaged(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "value", 0)
		b := h.backup()
		s := h.session(nil)
		index := h.Snapshot().Index()
		refuse := func(what string, damaged []byte) {
			t.Helper()
			err := h.Restore(bytes.NewReader(damaged))
			if !errors.Is(err, lockd.ErrCorrupt) && !errors.Is(err, lockd.ErrFormat) {
				t.Fatalf("%s: got %v", what, err)
			}
			if s.Err() != nil || h.Snapshot().Index() != index {
				t.Fatalf("%s: something has changed", what)
			}
		}
		for n := range b {
			refuse("cut", b[:n])
			flipped := bytes.Clone(b)
			flipped[n] ^= 1 << (n % 8)
			refuse("flipped", flipped)
		}
		refuse("longer", append(bytes.Clone(b), 0))
	})
}

// Ensure that a new file has the state of the backup, that its indexes start above the backup's,
// the given one and the clock's, and that it is not made in place of another file (G4, G8).
func TestRestore_NewFile(t *testing.T) {
	for _, test := range []struct {
		name  string
		min   uint64
		now   time.Time
		above uint64
	}{
		{"Backup", 0, time.Unix(0, 0), 4},
		{"MinIndex", 1000, time.Unix(0, 0), 1000},
		{"Clock", 1000, time.Unix(7, 0), 7_000_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				h.put("a", "1", 0)
				h.put("b", "2", 0)
				lock := h.lock(h.session(nil), "a")
				path := filepath.Join(t.TempDir(), "restored.db")
				mock := clock.NewMock()
				mock.Set(test.now)
				opts := &lockd.Options{Clock: mock}
				b := h.backup()
				h.must(lockd.Restore(path, bytes.NewReader(b), test.min, opts))

				err := lockd.Restore(path, bytes.NewReader(b), test.min, opts)
				if !errors.Is(err, fs.ErrExist) {
					t.Fatalf("a second time: got %v, want fs.ErrExist", err)
				}
				db, err := lockd.Open(path, &lockd.Options{Clock: mock})
				h.must(err)
				defer db.Close()
				e, _ := db.Get("a")
				if string(e.Value) != "1" || !e.Session.IsZero() || e.ModifyIndex <= test.above {
					t.Fatalf("entry: got %+v, want an index above %d", e, test.above)
				}
				s, err := db.NewSession(nil)
				h.must(err)
				again, err := s.TryLock("a", nil)
				h.must(err)
				if again.Sequencer().Fence <= lock.Sequencer().Fence {
					t.Fatalf("fence: got %d after %d", again.Sequencer().Fence,
						lock.Sequencer().Fence)
				}
				left, err := os.ReadDir(filepath.Dir(path))
				h.must(err)
				if len(left) != 1 {
					t.Fatalf("left behind: %v", left)
				}
			})
		})
	}
}

// Ensure that a new file whose indexes would soon overflow is not made.
func TestRestore_IndexNearOverflow(t *testing.T) {
	onFile(t, func(h *harness) {
		b := h.backup()
		late := clock.NewMock()
		late.Set(time.UnixMicro(math.MaxInt64))
		for name, test := range map[string]struct {
			index uint64
			opts  lockd.Options
			want  error
		}{
			"index":          {math.MaxUint64, lockd.Options{}, lockd.ErrInvalid},
			"index by 1":     {1<<62 + 1, lockd.Options{}, lockd.ErrInvalid},
			"Clock":          {0, lockd.Options{Clock: late}, lockd.ErrInvalid},
			"greatest index": {1 << 62, lockd.Options{}, nil},
		} {
			path := filepath.Join(h.t.TempDir(), "restored.db")
			err := lockd.Restore(path, bytes.NewReader(b), test.index, &test.opts)
			if !errors.Is(err, test.want) {
				t.Errorf("%s: got %v", name, err)
			}
			if _, err := os.Stat(path); (err == nil) != (test.want == nil) {
				t.Errorf("%s: stat: got %v", name, err)
			}
			if test.want == nil { // and what it becomes can be restored again
				var again bytes.Buffer
				h.must(lockd.BackupFile(path, &again, nil))
				h.must(lockd.Restore(path+".again", &again, 0, nil))
			}
		}
	})
}

// Ensure that a backup whose index is above the greatest that a caller may name can be restored,
// and that nothing is written if the caller names a greater one.
func TestWriteBackup_IndexNearOverflow(t *testing.T) {
	put := func(tx *lockd.Txn) error { return second(tx.Put("k", nil, nil)) }
	var b bytes.Buffer
	err := lockd.WriteBackup(&b, 1<<62+1, put)
	if !errors.Is(err, lockd.ErrInvalid) || b.Len() > 0 {
		t.Errorf("2^62 + 1: got %v, and %d bytes", err, b.Len())
	}
	if err := lockd.WriteBackup(&b, 1<<62, put); err != nil {
		t.Fatal(err)
	}
	if err := lockd.Restore(filepath.Join(t.TempDir(), "new.db"), &b, 0, nil); err != nil {
		t.Error(err)
	}
}

// Ensure that a new file has the nodes of the backup, and no other.
func TestRestore_Nodes(t *testing.T) {
	for _, name := range []string{"web", "local", "LOCAL"} {
		db, err := lockd.New(&lockd.Options{Node: name})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		err = errors.Join(db.Backup(&b), db.Close())
		path := filepath.Join(t.TempDir(), "new.db")
		if err = errors.Join(err, lockd.Restore(path, &b, 0, nil)); err != nil {
			t.Fatal(err)
		}
		if db, err = lockd.Open(path, &lockd.Options{Node: name}); err != nil {
			t.Fatal(err)
		}
		for node := range db.Snapshot().Catalog().Nodes() {
			if node.Name != name {
				t.Errorf("of node %q: there is node %q too", name, node.Name)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Ensure that a compacted file is smaller and has the same state, and that an open file is refused.
func TestCompact(t *testing.T) {
	onFile(t, func(h *harness) {
		for range 20 {
			h.put("big", string(bytes.Repeat([]byte("x"), 1<<18)), 0)
			h.put("big", "", 0)
		}
		h.put("k", "v", 0)
		if err := lockd.Compact(h.path, nil); !errors.Is(err, lockd.ErrInUse) {
			t.Fatalf("of an open file: got %v, want ErrInUse", err)
		}
		want := h.entry("k")
		h.must(h.Close())
		before, err := os.Stat(h.path)
		h.must(err)
		h.must(lockd.Compact(h.path, nil))
		after, err := os.Stat(h.path)
		h.must(err)
		if after.Size() >= before.Size()/4 || after.Mode() != before.Mode() {
			t.Fatalf("%d bytes %v, before %d bytes %v", after.Size(), after.Mode(), before.Size(),
				before.Mode())
		}
		h.must(lockd.Verify(h.path, nil))
		h.open()
		if got := h.entry("k"); got.ModifyIndex != want.ModifyIndex || string(got.Value) != "v" {
			t.Fatalf("entry: got %+v, want %+v", got, want)
		}
	})
}

// Ensure that a file that does not exist is not made by a function that only reads it.
func TestVerify_NoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.db")
	if err := lockd.Verify(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("verify: got %v", err)
	}
	if err := lockd.Compact(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("compact: got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat: got %v", err)
	}
}

// Ensure that these functions do not make a file either if the file goes while they wait for it.
func TestVerify_FileIsRemovedMeanwhile(t *testing.T) {
	for name, read := range map[string]func(path string, opts *lockd.Options) error{
		"verify":  lockd.Verify,
		"compact": lockd.Compact,
		"backup": func(path string, opts *lockd.Options) error {
			return lockd.BackupFile(path, io.Discard, opts)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lockd.db")
			if err := makeEmpty(path); err != nil {
				t.Fatal(err)
			}
			removed := store.Hooks{NetworkFS: func(string) string {
				_ = os.Remove(path) // it is there when it is first looked for
				return ""
			}}
			err := read(path, &lockd.Options{Clock: probe(nil, removed)})
			if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("stat: got %v", err)
			}
		})
	}
}

// makeEmpty makes the file of a database that has nothing.
func makeEmpty(path string) error {
	db, err := lockd.Open(path, nil)
	if err != nil {
		return err
	}
	return db.Close()
}

// Ensure that a backup of a closed file equals the one that the database would have written, and
// that it changes nothing in the file, not even a session whose process is gone.
func TestBackupFile(t *testing.T) {
	onFile(t, func(h *harness) {
		h.put("k", "value", 7)
		if err := lockd.BackupFile(h.path, io.Discard, &lockd.Options{
			OpenTimeout: lockd.NoWait,
		}); !errors.Is(err, lockd.ErrInUse) {
			t.Fatalf("of an open file: got %v, want ErrInUse", err)
		}
		open := h.backup()
		h.must(h.Close())
		before := readFile(t, h.path)
		var closed bytes.Buffer
		h.must(lockd.BackupFile(h.path, &closed, nil))
		if !bytes.Equal(closed.Bytes(), open) {
			t.Error("the backup of the closed file is another than that of the open one")
		}
		if err := lockd.BackupFile(h.path, failingWriter{}, nil); !errors.Is(err, errWrite) {
			t.Errorf("got %v, want the error of the writer", err)
		}
		if !bytes.Equal(readFile(t, h.path), before) {
			t.Error("the file has changed")
		}
		absent := filepath.Join(t.TempDir(), "absent.db")
		err := lockd.BackupFile(absent, io.Discard, nil)
		if _, stat := os.Stat(absent); !errors.Is(err, fs.ErrNotExist) || stat == nil {
			t.Errorf("of no file: got %v, and now there is one: %v", err, stat == nil)
		}
	})
}

// Ensure that a session that is bound to a process which has gone is still there after a backup.
func TestBackupFile_EndsNoSession(t *testing.T) {
	id := schema.ID{1}
	path := craft(t, func(s *store.Store) {
		s.Nodes.Put("n", schema.Node{Name: "n"})
		s.Sessions.Put(string(id[:]), schema.Session{ID: id, Node: "n"})
		s.Keys.Put("held", schema.Key{Key: "held", Session: id, LockIndex: 1})
	})
	if err := lockd.BackupFile(path, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	db, err := lockd.Open(path, &lockd.Options{Reopen: lockd.EndNone, Sync: lockd.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if e, ok := db.Get("held"); !ok || e.Session != lockd.SessionID(id) {
		t.Errorf("got %+v, want it held by the session", e)
	}
}

// Ensure that a writer may open the file: a backup has read it and closed it by then. So a writer
// that is slow, or panics, keeps no other open out.
func TestBackupFile_WriterHasTheFile(t *testing.T) {
	onFile(t, func(h *harness) {
		h.put("k", "value", 0)
		open := h.backup()
		h.must(h.Close())
		free := func(when string) {
			if err := lockd.Verify(h.path, &lockd.Options{OpenTimeout: lockd.NoWait}); err != nil {
				t.Errorf("%s: got %v", when, err)
			}
		}
		var closed bytes.Buffer
		h.must(lockd.BackupFile(h.path, writerFunc(func(b []byte) (int, error) {
			free("while the backup is written")
			return closed.Write(b)
		}), nil))
		if !bytes.Equal(closed.Bytes(), open) {
			t.Error("the backup of the closed file is another than that of the open one")
		}
		if !doesPanic(func() {
			_ = lockd.BackupFile(h.path, writerFunc(func([]byte) (int, error) {
				panic("of the writer")
			}), nil)
		}) {
			t.Error("the writer did not panic")
		}
		free("after a panic of the writer")
	})
}

var errWrite = errors.New("no room")

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errWrite }
