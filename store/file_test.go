package store_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd/store"
)

// quick are options for a test that does not depend on the disk.
var quick = store.FileOptions{Sync: store.SyncNever}

// place names a row in a file.
type place struct {
	table byte
	key   string
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "lockd.db") }

func openFile(t *testing.T, path string, o store.FileOptions) *store.File {
	t.Helper()
	f, err := store.OpenFile(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // for a test that fails before it does so itself
	return f
}

func closeFile(t *testing.T, f *store.File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, f *store.File, index uint64, rows ...store.RowWrite) {
	t.Helper()
	if err := f.Commit(index, rows...); err != nil {
		t.Fatal(err)
	}
}

// mark is the write of a mark.
func mark(name string, index uint64) store.RowWrite {
	row := store.Mark{Name: name, Index: index}
	return store.Write(store.MarkRows.Table, name, store.MarkRows.Append(nil, name, row))
}

// contents loads the file.
func contents(t *testing.T, f *store.File) (rows map[place]string, index uint64) {
	t.Helper()
	rows = make(map[place]string)
	index, err := f.Load(func(table byte, key string, value []byte) error {
		rows[place{table, key}] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, index
}

func TestFile_StartsEmpty(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, store.FileOptions{Mode: 0o640})
	rows, index := contents(t, f)
	if len(rows) != 0 || index != store.FirstIndex {
		t.Errorf("a new file has %d rows and index %d", len(rows), index)
	}
	closeFile(t, f)
	if names := folder(t, path); !slices.Equal(names, []string{"lockd.db"}) {
		t.Errorf("creating it left %q in the folder", names)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&^0o640 != 0 {
		t.Errorf("its mode is %v", mode)
	}
}

// folder lists what is in the file's folder.
func folder(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestFile_KeepsWhatWasCommitted(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, store.FileOptions{})
	big := bytes.Repeat([]byte{1, 2, 3}, 100_000)
	long := strings.Repeat("k", store.KeyLimit)
	var rows []store.RowWrite
	for table := byte(0); store.MarkRows.Table >= table; table++ {
		rows = append(rows, store.Write(table, "key", []byte{table}))
	}
	rows = append(rows, store.Write(0, "\x00", big), store.Write(1, long, []byte{1}),
		store.Write(2, "gone", []byte{1}))
	commit(t, f, 2, rows...)
	commit(t, f, 7, store.Write(2, "gone", nil), store.Write(2, "never there", nil),
		store.Write(3, "key", []byte{99}))
	closeFile(t, f)

	want := map[place]string{{0, "\x00"}: string(big), {1, long}: "\x01"}
	for table := byte(0); store.MarkRows.Table >= table; table++ {
		want[place{table, "key"}] = string([]byte{table})
	}
	want[place{3, "key"}] = "\x63"
	f = openFile(t, path, store.FileOptions{})
	got, index := contents(t, f)
	if !maps.Equal(got, want) || index != 7 {
		t.Errorf("got %d rows and index %d, want %d rows as committed and 7",
			len(got), index, len(want))
	}
	closeFile(t, f)
}

// Ensure that rows come table by table, each in the order of its keys, and that an error ends it.
func TestFile_LoadIsInOrder(t *testing.T) {
	f := openFile(t, newPath(t), quick)
	commit(t, f, 2, store.Write(1, "b", []byte{1}), store.Write(0, "z", []byte{1}),
		store.Write(1, "\xff", []byte{1}), store.Write(1, "a", []byte{1}))
	var got []place
	enough := errors.New("enough")
	_, err := f.Load(func(table byte, key string, _ []byte) error {
		got = append(got, place{table, key})
		if key == "b" {
			return enough
		}
		return nil
	})
	if want := []place{{0, "z"}, {1, "a"}, {1, "b"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !errors.Is(err, enough) {
		t.Errorf("got %v, want what the visitor returned", err)
	}
	closeFile(t, f)
}

// Ensure that rows that were read outlive the memory that the file is mapped to.
func TestFile_RowsOutliveTheFile(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	want := store.Key{Key: "k", Value: bytes.Repeat([]byte{7}, 100_000)}
	commit(t, f, 2, store.Write(store.KeyRows.Table, "k", store.KeyRows.Append(nil, "k", want)))
	closeFile(t, f)
	f = openFile(t, path, quick)
	var got store.Key
	_, err := f.Load(func(_ byte, key string, value []byte) (err error) {
		got, err = store.KeyRows.Decode(key, value)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	closeFile(t, f)
	if got.Key != "k" || !bytes.Equal(got.Value, want.Value) {
		t.Error("the row is another one after the file was closed")
	}
}

func TestFile_LoadPassesAPanicOn(t *testing.T) {
	f := openFile(t, newPath(t), quick)
	commit(t, f, 2, mark("m", 1))
	func() {
		defer func() {
			if got := recover(); got != "a bug" {
				t.Errorf("recovered %v, want the visitor's panic", got)
			}
		}()
		_, err := f.Load(func(byte, string, []byte) error { panic("a bug") })
		t.Errorf("Load made %v of the visitor's panic", err)
	}()
	closeFile(t, f) // would wait for a transaction that was left open
}

func TestFile_RefusedCommitWritesNothing(t *testing.T) {
	f := openFile(t, newPath(t), quick)
	commit(t, f, 2, mark("m", 1))
	for name, key := range map[string]string{
		"empty": "", "too long": strings.Repeat("k", store.KeyLimit+1),
	} {
		if err := f.Commit(3, mark("n", 1), store.Write(0, key, []byte{1})); err == nil {
			t.Errorf("a key that is %s was accepted", name)
		}
	}
	if rows, index := contents(t, f); len(rows) != 1 || index != 2 {
		t.Errorf("the file has %d rows and index %d, want 1 and 2", len(rows), index)
	}
	commit(t, f, 4, mark("n", 1))
	closeFile(t, f)
}

func TestHooks(t *testing.T) {
	broken := errors.New("broken disk")
	t.Run("BeforeCommit", func(t *testing.T) {
		var hook error
		o := quick
		o.Hooks.BeforeCommit = func() error { return hook }
		f := openFile(t, newPath(t), o)
		commit(t, f, 2, mark("m", 1))
		hook = broken
		testFailedCommit(t, f, broken, 2)
		hook = nil
		commit(t, f, 4, mark("n", 1))
		closeFile(t, f)
	})
	t.Run("AfterCommit", func(t *testing.T) {
		var hook error
		o := quick
		o.Hooks.AfterCommit = func() error { return hook }
		f := openFile(t, newPath(t), o)
		commit(t, f, 2, mark("m", 1))
		hook = broken
		testFailedCommit(t, f, broken, 3)
		closeFile(t, f)
	})
}

// testFailedCommit commits index 3, and checks the error and what the file has after it.
func testFailedCommit(t *testing.T, f *store.File, want error, wantIndex uint64) {
	t.Helper()
	if err := f.Commit(3, mark("m", 99)); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if index, err := f.Index(); err != nil || index != wantIndex {
		t.Errorf("the file has index %d, %v, want %d", index, err, wantIndex)
	}
}

// state is all that opening a file must not change.
type state struct {
	bytes string
	mtime time.Time
}

// age gives the file a time of last change that any write would change, and returns its state.
func age(t *testing.T, path string) state {
	t.Helper()
	long := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	return stateOf(t, path)
}

func stateOf(t *testing.T, path string) state {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return state{string(content), info.ModTime()}
}

func TestFile_OpeningWritesNothing(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, store.FileOptions{})
	commit(t, f, 2, mark("m", 1))
	commit(t, f, 3, mark("m", 2))
	closeFile(t, f)
	before := age(t, path)
	f = openFile(t, path, store.FileOptions{})
	contents(t, f)
	closeFile(t, f)
	if stateOf(t, path) != before {
		t.Error("the file was written to")
	}
}

func TestFile_InUse(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	for _, timeout := range []time.Duration{-1, 0, time.Millisecond} {
		o := quick
		o.Timeout = timeout
		_, err := store.OpenFile(path, o)
		if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), path) {
			t.Errorf("with a timeout of %v: got %v, want ErrInUse and the path", timeout, err)
		}
	}
	commit(t, f, 2, mark("m", 1))
	closeFile(t, f)
	closeFile(t, openFile(t, path, quick))
}

// Ensure that what looks damaged is not condemned while somebody may be in the middle of writing
// it.
func TestFile_InUseIsNotDamaged(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	whole := stateOf(t, path).bytes
	for name, damaged := range map[string]string{
		"pages half written": strings.Repeat("\x00", 2*os.Getpagesize()) +
			whole[2*os.Getpagesize():],
		"no meta page": strings.Repeat("x", len(whole)),
	} {
		overwrite(t, path, 0, damaged)
		if _, err := store.OpenFile(path, quick); !errors.Is(err, store.ErrInUse) {
			t.Errorf("%s: got %v, want ErrInUse", name, err)
		}
	}
	overwrite(t, path, 0, whole)
	closeFile(t, f)
	closeFile(t, openFile(t, path, quick))
}

func overwrite(t *testing.T, path string, offset int64, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that of those who create one file at the same time one has it, and no other.
func TestFile_OneCreatorWins(t *testing.T) {
	for range 50 {
		path := newPath(t)
		var files [4]*store.File
		var errs [4]error
		var wg sync.WaitGroup
		for i := range files {
			wg.Go(func() { files[i], errs[i] = store.OpenFile(path, quick) })
		}
		wg.Wait()
		opened := 0
		for i, f := range files {
			switch {
			case errs[i] == nil:
				opened++
				closeFile(t, f)
			case !errors.Is(errs[i], store.ErrInUse):
				t.Errorf("got %v, want ErrInUse", errs[i])
			}
		}
		if opened != 1 {
			t.Fatalf("%d of %d have it open", opened, len(files))
		}
		if names := folder(t, path); !slices.Equal(names, []string{"lockd.db"}) {
			t.Fatalf("they left %q in the folder", names)
		}
	}
}

func TestFile_CreateInPlace(t *testing.T) {
	path := newPath(t)
	for range 2 { // the second finds what the first made
		if err := store.CreateInPlace(path, quick); err != nil {
			t.Fatal(err)
		}
	}
	f := openFile(t, path, quick)
	if rows, index := contents(t, f); len(rows) != 0 || index != store.FirstIndex {
		t.Errorf("a new file has %d rows and index %d", len(rows), index)
	}
	closeFile(t, f)
}

// Ensure that a file is given up that the path does not lead to any more: another would open the
// one that it leads to.
func TestFile_PathMustLeadToTheLockedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be renamed")
	}
	path := newPath(t)
	f := openFile(t, path, quick)
	if err := f.CheckPath(path); err != nil {
		t.Errorf("got %v for a file in its place", err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckPath(path); !errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v for a file that was renamed, want ErrInUse", err)
	}
	closeFile(t, openFile(t, path, quick)) // a new one
	if err := f.CheckPath(path); !errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v for a file that was replaced, want ErrInUse", err)
	}
	closeFile(t, f)
}

// Ensure that a file that cannot be used is refused and left as it is.
func TestFile_Refuses(t *testing.T) {
	page := os.Getpagesize()
	for _, test := range []struct {
		name string
		make func(t *testing.T, path string)
		want error
		text string
	}{
		{"Empty", content(""), store.ErrCorrupt, "it is empty"},
		{"Byte", content("x"), store.ErrFormat, "not a bbolt file"},
		{"Garbage", content(strings.Repeat("garbage ", 10_000)), store.ErrFormat,
			"not a bbolt file"},
		{"Zeros", content(strings.Repeat("\x00", 1<<16)), store.ErrFormat, "not a bbolt file"},
		{"CutToOneByte", cut(1), store.ErrFormat, "not a bbolt file"},
		{"CutToOnePage", cut(page), store.ErrCorrupt, "cut off"},
		{"CutToTwoPages", cut(2 * page), store.ErrCorrupt, "cut off"},
		{"CutByOneByte", cutToUse(-1), store.ErrCorrupt, "cut off"},
		{"MetaPages", damage(map[int]string{20: "\x03", page + 20: "\x03"}), store.ErrFormat,
			"version 3 of bbolt's format"},
		{"MetaChecksums", damage(map[int]string{72: "damaged!", page + 72: "damaged!"}),
			store.ErrCorrupt, "neither of its two meta pages is whole"},
		{"OtherProgram", bolt(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("other"))
			return err
		}), store.ErrFormat, "another program"},
		{"OtherProgramWithMeta", bolt(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(store.HeaderBucket))
			return errors.Join(err, b.Put([]byte("consistent_index"), []byte{1}))
		}), store.ErrFormat, "another program"},
		{"NoFreelist", noFreelist, store.ErrFormat, "without its list of free pages"},
		{"Newer", headed(store.HeaderValue(2, 5)), store.ErrFormat, "version 2"},
		{"Newest", headed(store.HeaderValue(math.MaxUint64, 5)), store.ErrFormat, "version 1844"},
		{"NoVersion", headed(store.HeaderValue(0, 5)), store.ErrFormat, "version 0"},
		{"NoIndex", headed(store.HeaderValue(1, 0)), store.ErrCorrupt, "last index is 0"},
		{"HeaderCut", headed([]byte{1}), store.ErrCorrupt, "ends too early"},
		{"HeaderDamaged", headed([]byte{1, 5, 0, 0, 0, 0}), store.ErrCorrupt, "checksum"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			test.make(t, path)
			before := age(t, path)
			for range 2 { // the first must have given it up
				f, err := store.OpenFile(path, store.FileOptions{})
				if err == nil {
					closeFile(t, f)
					t.Fatal("the file was accepted")
				}
				for _, text := range []string{path, test.text} {
					if !errors.Is(err, test.want) || !strings.Contains(err.Error(), text) {
						t.Errorf("got %v, want %v with %q", err, test.want, text)
					}
				}
			}
			if stateOf(t, path) != before {
				t.Error("the file was written to")
			}
			if names := folder(t, path); len(names) != 1 {
				t.Errorf("it left %q in the folder", names)
			}
		})
	}
}

// content makes a file of the bytes.
func content(bytes string) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte(bytes), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// sound makes a file with a hundred rows.
func sound(t *testing.T, path string) {
	t.Helper()
	f := openFile(t, path, quick)
	for i := range uint64(10) {
		var rows []store.RowWrite
		for name := range uint64(10) {
			rows = append(rows, mark(strings.Repeat(string(rune('a'+i)), 100+int(name)), i))
		}
		commit(t, f, i+2, rows...)
	}
	closeFile(t, f)
}

// cut makes a sound file, and leaves so many bytes of it.
func cut(size int) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		if err := os.Truncate(path, int64(size)); err != nil {
			t.Fatal(err)
		}
	}
}

// cutToUse makes a sound file, and cuts it to the pages in use and so many bytes more.
func cutToUse(more int) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		used := usedSize(t, path)
		if err := os.Truncate(path, used+int64(more)); err != nil {
			t.Fatal(err)
		}
	}
}

// usedSize is where the file's last used page ends.
func usedSize(t *testing.T, path string) (size int64) {
	t.Helper()
	inBolt(t, path, nil, func(tx *bbolt.Tx) error {
		size = tx.Size()
		return errors.New("change nothing")
	})
	return size
}

// damage makes a sound file, and overwrites it at the offsets.
func damage(at map[int]string) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		for offset, bytes := range at {
			overwrite(t, path, int64(offset), bytes)
		}
	}
}

// bolt makes a file of bbolt's with what fn writes.
func bolt(fn func(tx *bbolt.Tx) error) func(t *testing.T, path string) {
	return func(t *testing.T, path string) { inBolt(t, path, nil, fn) }
}

func noFreelist(t *testing.T, path string) {
	sound(t, path)
	inBolt(t, path, &bbolt.Options{NoFreelistSync: true, NoSync: true},
		func(tx *bbolt.Tx) error { return nil })
}

// headed makes a sound file, and gives it another header.
func headed(value []byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(store.HeaderBucket)).Put([]byte(store.HeaderKey), value)
		})
	}
}

// inBolt runs a transaction on the file, which an error of fn's takes back.
func inBolt(t *testing.T, path string, o *bbolt.Options, fn func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Update(fn)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFile_RefusesWhatIsNoFile(t *testing.T) {
	t.Run("Folder", func(t *testing.T) {
		_, err := store.OpenFile(t.TempDir(), quick)
		if !errors.Is(err, store.ErrFormat) {
			t.Errorf("got %v, want ErrFormat", err)
		}
	})
	t.Run("FolderMissing", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "missing", "lockd.db")
		if _, err := store.OpenFile(path, quick); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want ErrNotExist", err)
		}
	})
	t.Run("LinkToNothing", func(t *testing.T) {
		path := newPath(t)
		if err := os.Symlink(path+".missing", path); err != nil {
			t.Skip(err)
		}
		if _, err := store.OpenFile(path, quick); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want ErrNotExist", err)
		}
	})
	t.Run("LinkToFile", func(t *testing.T) {
		path := newPath(t)
		closeFile(t, openFile(t, path+".real", quick))
		if err := os.Symlink(path+".real", path); err != nil {
			t.Skip(err)
		}
		closeFile(t, openFile(t, path, quick))
	})
}

// Ensure that one damaged meta page is no damage: a crash in the middle of a commit leaves that.
func TestFile_NeedsOneMetaPage(t *testing.T) {
	page := os.Getpagesize()
	for _, offset := range []int{0, page} {
		path := newPath(t)
		sound(t, path)
		overwrite(t, path, int64(offset), strings.Repeat("x", page))
		f := openFile(t, path, quick)
		if _, index := contents(t, f); index != 11 && index != 10 {
			t.Errorf("the file has index %d, want the last or the one before", index)
		}
		closeFile(t, f)
	}
}

// Ensure that a file of which one page is overwritten, or one table is missing, is refused or
// read as it was, whichever page it is; and that it is neither written to nor left open.
func TestFile_SurvivesEveryDamagedPage(t *testing.T) {
	path := newPath(t)
	sound(t, path)
	whole := stateOf(t, path).bytes
	f := openFile(t, path, quick)
	want, _ := contents(t, f)
	closeFile(t, f)
	page := os.Getpagesize()
	refused := 0
	for start := 2 * page; start < len(whole); start += page {
		for _, fill := range []string{"\x00", "\xff", "x"} {
			overwrite(t, path, 0, whole)
			overwrite(t, path, int64(start), strings.Repeat(fill, page))
			before := age(t, path)
			got, err := openAndLoad(path)
			switch {
			case errors.Is(err, store.ErrCorrupt):
				refused++
			case err != nil:
				t.Errorf("page %d: got %v, want ErrCorrupt", start/page, err)
			case !maps.Equal(got, want):
				t.Errorf("page %d: %d rows were read", start/page, len(got))
			}
			if stateOf(t, path) != before {
				t.Errorf("page %d: the file was written to", start/page)
			}
		}
	}
	if refused == 0 {
		t.Error("no damage was found")
	}
	for table := range store.MarkRows.Table {
		overwrite(t, path, 0, whole)
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return tx.DeleteBucket([]byte(store.TableName(table)))
		})
		if _, err := openAndLoad(path); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("table %d missing: got %v, want ErrCorrupt", table, err)
		}
	}
}

func openAndLoad(path string) (map[place]string, error) {
	f, err := store.OpenFile(path, quick)
	if err != nil {
		return nil, err
	}
	rows := make(map[place]string)
	_, err = f.Load(func(table byte, key string, value []byte) error {
		rows[place{table, key}] = string(value)
		return nil
	})
	return rows, errors.Join(err, f.Close())
}

// Ensure that a file that is cut off while it is open ends in errors, not in a signal.
func TestFile_CutOffWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut")
	}
	path := newPath(t)
	sound(t, path)
	f := openFile(t, path, quick)
	if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	_, err := f.Load(func(byte, string, []byte) error { return nil })
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("load: got %v, want ErrCorrupt", err)
	}
	if err := f.Commit(99, mark("m", 1)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("commit: got %v, want ErrCorrupt", err)
	}
	if _, err := f.Index(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("index: got %v, want ErrCorrupt", err)
	}
	closeFile(t, f)
	if _, err := store.OpenFile(path, quick); errors.Is(err, store.ErrInUse) {
		t.Errorf("open: got %v; the file was left locked", err)
	}
}
