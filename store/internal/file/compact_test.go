package file_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// toCompact makes a file with one commit, where an open file can be replaced.
func toCompact(t *testing.T) (path string, want whole) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be replaced")
	}
	path = newPath(t)
	closeFile(t, openFile(t, path, quick))
	return path, commitTo(t, path, 0)
}

// Ensure that Compact follows a symbolic link to the file, and the link stays. Otherwise processes
// that use the file's own name and processes that use the link would have two files.
func TestCompact_SymbolicLink(t *testing.T) {
	path, want := toCompact(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := store.Compact(link, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Fatalf("the link is now %v, %v", info, err)
	}
	changed := commitTo(t, link, 1)
	if got, err := openStore(path); err != nil || got != changed || got == want {
		t.Errorf("by its own name: got index %d, %v, want %d", got.index, err, changed.index)
	}
}

// Ensure that the smaller file has the mode of the larger one before it is filled and synced: a
// power cut may undo what comes later, and a caller who may not set it learns so at once.
func TestCompact_ModeIsSynced(t *testing.T) {
	path, _ := toCompact(t)
	const want = 0o640
	if err := os.Chmod(path, want); err != nil {
		t.Fatal(err)
	}
	files := 0
	rows := func(func(format.Write) bool) {
		for _, name := range folder(t, path) {
			info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
			if err != nil || info.Mode() != want {
				t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
			}
			files++
		}
	}
	if err := file.Compact(path, quick, file.Unread{}, rows); err != nil || files != 2 {
		t.Errorf("got %v, and %d files meanwhile", err, files)
	}
}

// Ensure that an error of Compact names the file, also where no link can be followed.
func TestCompact_ErrorNamesTheFile(t *testing.T) {
	path, _ := toCompact(t)
	loop := path + ".loop"
	if err := os.Symlink(loop, loop); err != nil {
		t.Skip(err)
	}
	for _, at := range []string{loop, filepath.Join(path, "below"), path + ".none"} {
		if err := store.Compact(at, quick); err == nil || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: got %v", at, err)
		}
	}
}

// Ensure that a file keeps its mode, whatever the umask is.
func TestCompact_KeepsMode(t *testing.T) {
	path, _ := toCompact(t)
	const mode = 0o666
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := store.Compact(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != mode {
		t.Errorf("got %v, %v, want %v", info.Mode(), err, fs.FileMode(mode))
	}
}

// Ensure that no process can have a file open, and so commit to it, before its name is on disk.
// After a power cut the path would lead to the earlier file.
func TestOpening_NobodyBeforeTheNameIsOnDisk(t *testing.T) {
	for name, give := range map[string]func(t *testing.T, path string, opts store.Options) error{
		"created": func(t *testing.T, path string, opts store.Options) error {
			s := store.New()
			if err := s.Open(path, opts); err != nil {
				return err
			}
			return s.Close()
		},
		"compacted": func(t *testing.T, path string, opts store.Options) error {
			from, _ := toCompact(t)
			if err := os.Rename(from, path); err != nil {
				return err
			}
			return store.Compact(path, opts)
		},
		"made of a snapshot": func(_ *testing.T, path string, opts store.Options) error {
			return store.Create(path, store.New().Snapshot(), opts)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "named.db")
			synced := 0
			opts := store.Options{Hooks: store.Hooks{SyncFolder: func(folder string) error {
				synced++
				if folder != filepath.Dir(path) {
					t.Errorf("folder %s", folder)
				}
				impatient := store.Options{Timeout: time.Nanosecond}
				if _, err := file.OpenFile(path, impatient); !errors.Is(err, store.ErrInUse) {
					t.Errorf("meanwhile: got %v, want ErrInUse", err)
				}
				return nil
			}}}
			if err := give(t, path, opts); err != nil {
				t.Fatal(err)
			}
			if synced != 1 {
				t.Errorf("synced %d times", synced)
			}
			if _, err := openStore(path); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ensure that a file whose name could not be synced to disk loses the name, so that the name can be
// given again, and that a file gets no name that is taken, and is not left under another.
func TestCreate_SyncFails(t *testing.T) {
	from, want := toCompact(t)
	s := store.New()
	if err := s.Open(from, quick); err != nil {
		t.Fatal(err)
	}
	path := newPath(t)
	fault := errors.New("I/O error")
	broken := store.Options{Hooks: store.Hooks{SyncFolder: func(string) error { return fault }}}
	if err := store.Create(path, s.Snapshot(), broken); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
	if names := folder(t, path); len(names) != 0 {
		t.Errorf("it left %q", names)
	}
	if err := store.Create(path, s.Snapshot(), store.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(path, s.Snapshot(), broken); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: got %v, want fs.ErrExist", err)
	}
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("it left %q", names)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("got index %d, %v, want %d", got.index, err, want.index)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Ensure that a new file and a smaller one have all rows of every table, in whatever transactions
// they were written.
func TestCreate_AllRows(t *testing.T) {
	s := store.New()
	for round := range 12 {
		someRows(s, round, rand.New(rand.NewPCG(7, uint64(round))))
		for i := range 6 {
			key := fmt.Sprintf("large/%d/%d", round, i)
			s.Keys.Put(key, schema.Key{Key: key, Value: make([]byte, 100_000)})
		}
		s.Seal()
		s.PublishMemory()
	}
	path, want := newPath(t), dump(s)
	if err := store.Create(path, s.Snapshot(), quick); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("created: got index %d, %v, want %d", got.index, err, want.index)
	}
	if runtime.GOOS == "windows" {
		return // an open file cannot be replaced
	}
	if err := store.Compact(path, quick); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("compacted: got index %d, %v, want %d", got.index, err, want.index)
	}
}

// Ensure that a file with two names is not compacted where the system counts them: the names would
// lead to two files, and both could be open at once. With one name it is compacted.
func TestCompact_G1_TwoNames(t *testing.T) {
	path, want := toCompact(t)
	other := path + ".other"
	if err := os.Link(path, other); err != nil {
		t.Skip(err)
	}
	before := stateOf(t, path)
	err := store.Compact(path, quick)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if stateOf(t, path) != before {
		t.Error("it was written to")
	}
	if err := errors.Join(os.Remove(other), store.Compact(path, quick)); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("got index %d, %v, want %d", got.index, err, want.index)
	}
}

// Ensure that Compact returns the error of a sync of the folder: a power cut may then bring the
// larger file back. Both have all rows.
func TestCompact_SyncFails(t *testing.T) {
	path, want := toCompact(t)
	fault := errors.New("I/O error")
	broken := store.Options{Hooks: store.Hooks{SyncFolder: func(string) error { return fault }}}
	if err := store.Compact(path, broken); !errors.Is(err, fault) {
		t.Errorf("got %v, want the error of the sync", err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("got index %d, %v, want %d", got.index, err, want.index)
	}
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("it left %q", names)
	}
}

// Ensure that Compact returns an error if the smaller file does not get the name, and leaves none.
func TestCompact_RenameFails(t *testing.T) {
	path, _ := toCompact(t)
	rows := func(func(format.Write) bool) {
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	err := file.Compact(path, quick, file.Unread{}, rows)
	if _, failed := errors.AsType[*os.LinkError](err); !failed {
		t.Errorf("got %v, want the error of the rename", err)
	}
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("it left %q", names)
	}
}

// Ensure that no file is made of rows of which bbolt refuses one, wherever it comes.
func TestCreate_RefusedRow(t *testing.T) {
	for _, rows := range [][]int{{0}, {1, 0}, {1, 1, 0}, {0, 1}, {1, 0, 1, 1}} {
		path := newPath(t)
		err := file.Create(path, quick, schema.FirstIndex, func(yield func(format.Write) bool) {
			for i, full := range rows { // each of these fills a transaction, or is refused
				key := fmt.Sprint("k", i)
				if full == 0 {
					key = ""
				}
				value := make([]byte, format.ChecksumSize+full<<20)
				if !yield(file.Write(format.NodeRows.Table, key, value)) {
					return
				}
			}
		})
		if err == nil || !strings.Contains(err.Error(), `row "" of nodes`) {
			t.Errorf("%d: got %v", rows, err)
		}
		if names := folder(t, path); len(names) != 0 {
			t.Errorf("%d: it left %q", rows, names)
		}
	}
}

// Ensure that a file that cannot be read while it is made is an error, and leaves nothing: bbolt
// panics with its locks held, and would wait for them when it is closed.
func TestCreate_UnreadableMeanwhile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be cut off")
	}
	path := newPath(t)
	rows := func(yield func(format.Write) bool) {
		for i := range 40 {
			key := fmt.Sprintf("key-%02d", i)
			row := schema.Key{Key: key, Value: make([]byte, 100_000)}
			value := format.KeyRows.Append(nil, key, &row)
			if !yield(format.Write{Table: format.KeyRows.Table, Key: key, Value: value}) {
				return
			}
		}
		for _, name := range folder(t, path) {
			if err := os.Truncate(filepath.Join(filepath.Dir(path), name), 0); err != nil {
				t.Error(err)
			}
		}
	}
	within(t, time.Minute, func() {
		if err := file.Create(path, quick, schema.FirstIndex, rows); !errors.Is(err,
			store.ErrCorrupt) {
			t.Errorf("got %v, want ErrCorrupt", err)
		}
	})
	if names := folder(t, path); len(names) != 0 {
		t.Errorf("it left %q", names)
	}
}
