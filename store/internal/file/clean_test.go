package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
)

// securing opens the file, secures it, and closes it. It reports the number of syncs, and whether
// the file was written to before it was closed.
func securing(t *testing.T, path string) (syncs int, written bool) {
	t.Helper()
	before := age(t, path)
	s := store.New()
	hooks := store.Hooks{Synced: func() error {
		syncs++
		return nil
	}}
	if err := s.Open(path, store.Options{Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	if err := s.Secure(); err != nil {
		t.Fatal(err)
	}
	written = stateOf(t, path) != before
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !written && stateOf(t, path) != before {
		t.Error("the Close of a file that was only read has written to it")
	}
	return syncs, written
}

// Ensure that the next Open only syncs a file that was closed with all of its content on disk, and
// never writes to it. Any other file is written to, once. What a process said when it closed the
// file counts no more once the log or the tables have been written to.
func TestClean_OnlyWhatMayNotBeOnDiskIsWrittenAgain(t *testing.T) {
	small := func(s *store.Store) {
		s.Keys.Put("k", schema.Key{Key: "k", Fence: s.Next()})
	}
	large := func(s *store.Store) { // more than the log takes
		for i := range 700 {
			key := fmt.Sprintf("large/%d", i)
			s.Keys.Put(key, schema.Key{Key: key, Value: make([]byte, 90), Fence: s.Next()})
		}
	}
	for _, test := range []struct {
		name         string
		before, last func(s *store.Store)
		noSync       bool
		fail, kill   bool
		clean        bool
	}{
		{"Closed", small, small, false, false, false, true},
		{"ClosedAfterTables", small, large, false, false, false, true},
		{"Killed", small, small, false, false, true, false},
		{"KilledAfterTables", large, large, false, false, true, false},
		{"Failed", small, small, false, true, false, false},
		{"FailedAfterTables", large, large, false, true, false, false},
		{"FailedAndKilled", small, small, false, true, true, false},
		{"NeverSynced", small, small, true, false, false, false},
		{"NeverSyncedTables", large, large, true, false, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			closeFile(t, openFile(t, path, quick))
			logFile(t, path)
			commitOne(t, path, store.Options{}, test.before, false)
			if _, written := securing(t, path); written {
				t.Fatal("it was written to after the first process")
			}
			opts := store.Options{NoSync: test.noSync}
			if test.fail {
				opts.Hooks.AfterCommit = func() error { return errSync }
				opts.Hooks.Synced = failAfter(1)
			}
			path = commitOne(t, path, opts, test.last, test.kill)
			if syncs, written := securing(t, path); written == test.clean || syncs != 1 {
				t.Errorf("synced %d times, written to: %t", syncs, written)
			}
			if syncs, written := securing(t, path); written || syncs != 1 {
				t.Errorf("another time: synced %d times, written to: %t", syncs, written)
			}
		})
	}
}

// failAfter returns a hook that succeeds for the given number of calls, and then fails.
func failAfter(calls int) func() error {
	return func() error {
		if calls--; calls < 0 {
			return errSync
		}
		return nil
	}
}

// commitOne commits once, as a process of its own, and returns the file that the process leaves. If
// the process is killed, that is a copy of the file from before its Close.
func commitOne(
	t *testing.T, path string, opts store.Options, fn func(s *store.Store), kill bool,
) string {
	t.Helper()
	s := store.New()
	if err := s.Open(path, opts); err != nil {
		t.Fatal(err)
	}
	if err := s.Secure(); err != nil {
		t.Fatal(err)
	}
	if err := write(s, func() { fn(s) }); err != nil && !errors.Is(err, errSync) {
		t.Fatal(err)
	}
	left := path
	if kill {
		left = newPath(t)
		if err := os.WriteFile(left, contentOf(t, path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return left
}

// Ensure that the name of a file is on disk before any caller is told of its content, also if an
// earlier process left the name unsynced: it made and closed the file without any sync, or it could
// not sync the folder. The name of a file that was closed with all of it on disk is not synced
// again, and without sync no name is.
func TestClean_G2_NameIsOnDisk(t *testing.T) {
	folders := 0
	count := store.Hooks{SyncFolder: func(string) error {
		folders++
		return nil
	}}
	broken := store.Hooks{SyncFolder: func(string) error { return errSync }}
	for name, first := range map[string]store.Options{
		"NeverSynced": {NoSync: true}, "Failed": {Hooks: broken},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			visit := func(opts store.Options) (syncs int, err error) {
				folders = 0
				s := store.New()
				if err := s.Open(path, opts); err != nil {
					return folders, err
				}
				err = s.Secure()
				return folders, errors.Join(err, s.Close())
			}
			if _, err := visit(first); first.NoSync == (err != nil) {
				t.Fatal(err)
			}
			never := store.Options{NoSync: true, Hooks: count}
			if syncs, err := visit(never); syncs != 0 || err != nil {
				t.Errorf("without sync: synced %d times, %v", syncs, err)
			}
			if _, err := visit(store.Options{Hooks: broken}); !errors.Is(err, errSync) {
				t.Errorf("the folder cannot be synced: got %v", err)
			}
			if syncs, err := visit(store.Options{Hooks: count}); syncs != 1 || err != nil {
				t.Errorf("synced %d times, %v", syncs, err)
			}
			if syncs, err := visit(store.Options{Hooks: count}); syncs != 0 || err != nil {
				t.Errorf("closed cleanly: synced %d times, %v", syncs, err)
			}
		})
	}
}

// Ensure that until what the last process left is on disk, the content and the name of the file,
// Secure fails, a commit without it too, and nothing new is written.
func TestClean_G2_NothingIsCommittedOnWhatMayBeLost(t *testing.T) {
	put := func(s *store.Store) { s.Marks.Put("m", schema.Mark{Name: "m", Index: s.Next()}) }
	var broken error
	for name, hooks := range map[string]store.Hooks{
		"Name":    {SyncFolder: func(string) error { return broken }},
		"Content": {Synced: func() error { return broken }},
	} {
		t.Run(name, func(t *testing.T) {
			path := commitOne(t, newPath(t), store.Options{}, put, true)
			before := contentOf(t, path)
			s := store.New()
			if err := s.Open(path, store.Options{Hooks: hooks}); err != nil {
				t.Fatal(err)
			}
			broken = errSync
			for range 2 {
				put(s)
				s.Seal()
				b := s.Take()
				if err := s.Write(b); !errors.Is(err, errSync) {
					t.Errorf("commit: got %v, want %v", err, errSync)
				}
				s.Drop(b)
				if err := s.Secure(); !errors.Is(err, errSync) {
					t.Errorf("secure: got %v, want %v", err, errSync)
				}
				if !bytes.Equal(contentOf(t, path), before) {
					t.Error("the file was written to")
				}
			}
			broken = nil
			if err := write(s, func() { put(s) }); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ensure that a file whose clean word is damaged has not said that it was closed cleanly, nor that
// it has lost a commit.
func TestClean_G2_DamagedWord(t *testing.T) {
	path := newPath(t)
	one := func(s *store.Store) { s.Marks.Put("m", schema.Mark{Name: "m", Index: s.Next()}) }
	commitOne(t, path, store.Options{}, one, false)
	content := contentOf(t, path)
	word := newestMeta(content, os.Getpagesize()) - headSize + sector
	const size = 20
	for i := range size {
		damaged := bytes.Clone(content)
		damaged[word+i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, written := securing(t, path); !written {
			t.Errorf("byte %d: it was not written to", i)
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, written := securing(t, path); written {
		t.Error("whole: it was written to")
	}
}

// Ensure that the folder of the file is synced, not the folder of a link to it, and that none is
// if the link is gone.
func TestClean_NameOfLinkedFile(t *testing.T) {
	for name, gone := range map[string]bool{"Linked": false, "LinkGone": true} {
		t.Run(name, func(t *testing.T) {
			path, link := newPath(t), newPath(t)
			closeFile(t, openFile(t, path, quick))
			if err := os.Symlink(path, link); err != nil {
				t.Skip(err)
			}
			want, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			synced := ""
			hooks := store.Hooks{SyncFolder: func(folder string) error {
				synced = folder
				return nil
			}}
			f := openFile(t, link, store.Options{Hooks: hooks})
			if gone {
				err, want = os.Remove(link), ""
			}
			if err := errors.Join(err, f.Secure()); err != nil {
				t.Fatal(err)
			}
			closeFile(t, f)
			if synced != want {
				t.Errorf("got %q, want %q", synced, want)
			}
		})
	}
}

// Ensure that a file that was closed with all of its content on disk is refused if it has lost the
// last commit since, and that Recover says so.
func TestClean_G2G13_LastCommitLost(t *testing.T) {
	for name, test := range map[string]struct {
		rows int // of the last commit
		lose func(before, content []byte, meta int)
		want string // how what is missing begins
	}{
		"Record": {
			1,
			func(before, content []byte, _ int) {
				copy(content[2*os.Getpagesize():], before[2*os.Getpagesize():])
			},
			"record ",
		},
		"MetaPageDamaged": {
			700,
			func(_, content []byte, meta int) {
				content[meta+16] ^= 0xff
				content[meta+40] ^= 0xff
			},
			"it lacks the last commit",
		},
		"MetaPageLost": {
			700,
			func(before, content []byte, meta int) {
				copy(content[meta:meta+sector-headSize], before[meta:])
			},
			"it lacks the last commit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := store.New()
			put := func(rows int) {
				t.Helper()
				err := write(s, func() {
					for i := range rows {
						key := fmt.Sprintf("key/%d", i)
						row := schema.Key{Key: key, Value: make([]byte, 90), Fence: s.Next()}
						s.Keys.Put(key, row)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Open(path, store.Options{}); err != nil {
				t.Fatal(err)
			}
			put(700)
			for logOf(t, path).Next < 4 {
				put(1)
			}
			before := contentOf(t, path)
			put(test.rows)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			content := contentOf(t, path)
			test.lose(before, content, newestMeta(content, os.Getpagesize()))
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := openStore(path); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("open: got %v, want ErrCorrupt", err)
			}
			found, err := file.Recover(path, file.Options{})
			if err != nil || !told(found.Missing, "", "", test.want) {
				t.Errorf("recover: got %+v, %v", found.Missing, err)
			}
		})
	}
}
