package file_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// quick are options for a test that does not depend on the disk.
var quick = store.Options{NoSync: true}

// place names a row in a file.
type place struct {
	table byte
	key   string
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "lockd.db") }

func contentOf(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func openFile(t *testing.T, path string, o store.Options) *file.File {
	t.Helper()
	f, err := file.OpenFile(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // for a test that fails before it does so itself
	return f
}

func closeFile(t *testing.T, f *file.File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, f *file.File, index uint64, rows ...file.RowWrite) {
	t.Helper()
	if err := f.CommitRows(index, rows...); err != nil {
		t.Fatal(err)
	}
}

// mark is the write of a mark.
func mark(name string, index uint64) file.RowWrite {
	row := schema.Mark{Name: name, Index: index}
	return file.Write(format.MarkRows.Table, name, format.MarkRows.Append(nil, name, &row))
}

// contents loads the file.
func contents(t *testing.T, f *file.File) (rows map[place]string, index uint64) {
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

func TestFile_KeepsWhatWasCommitted(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, store.Options{})
	big := bytes.Repeat([]byte{1, 2, 3}, 100_000)
	long := strings.Repeat("k", schema.KeyLimit)
	var rows []file.RowWrite
	for table := byte(0); format.MarkRows.Table >= table; table++ {
		rows = append(rows, file.Write(table, "key", []byte{table}))
	}
	rows = append(rows, file.Write(0, "\x00", big), file.Write(1, long, []byte{1}),
		file.Write(2, "gone", []byte{1}))
	commit(t, f, 2, rows...)
	commit(t, f, 7, file.Write(2, "gone", nil), file.Write(2, "never there", nil),
		file.Write(3, "key", []byte{99}))
	closeFile(t, f)

	want := map[place]string{{0, "\x00"}: string(big), {1, long}: "\x01"}
	for table := byte(0); format.MarkRows.Table >= table; table++ {
		want[place{table, "key"}] = string([]byte{table})
	}
	want[place{3, "key"}] = "\x63"
	f = openFile(t, path, store.Options{})
	got, index := contents(t, f)
	if !maps.Equal(got, want) || index != 7 {
		t.Errorf("got %d rows and index %d, want %d rows as committed and 7",
			len(got), index, len(want))
	}
	closeFile(t, f)
}

// Ensure that rows come table by table, each in the order of its keys, and that an error ends Load.
func TestFile_LoadIsInOrder(t *testing.T) {
	f := openFile(t, newPath(t), quick)
	commit(t, f, 2, file.Write(1, "b", []byte{1}), file.Write(0, "z", []byte{1}),
		file.Write(1, "\xff", []byte{1}), file.Write(1, "a", []byte{1}))
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
	want := schema.Key{Key: "k", Value: bytes.Repeat([]byte{7}, 100_000)}
	commit(t, f, 2, file.Write(format.KeyRows.Table, "k", format.KeyRows.Append(nil, "k", &want)))
	closeFile(t, f)
	f = openFile(t, path, quick)
	var got schema.Key
	_, err := f.Load(func(_ byte, key string, value []byte) (err error) {
		got, err = format.KeyRows.Decode(key, value)
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

// Ensure that a commit with a row that the file cannot have is refused, whether it would go to the
// tables or to the log, and that the file stays as it was.
func TestFile_RefusedCommitWritesNothing(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	for index := uint64(2); index < 20; index += 2 {
		commit(t, f, index, mark("m", 1))
		rows := map[string][]file.RowWrite{
			"empty":    {mark("", 1), mark("n", 1)},
			"too long": {mark("n", 1), mark(strings.Repeat("o", schema.KeyLimit+1), 1)},
		}
		if index > 12 { // in the log the order matters
			rows["in front of another"] = []file.RowWrite{mark("n", 1), mark("m", 2)}
			rows["there twice"] = []file.RowWrite{mark("m", 2), mark("m", 2)}
		}
		for name, rows := range rows {
			if err := f.CommitRows(index+1, rows...); err == nil {
				t.Errorf("index %d: a key that is %s was accepted", index, name)
			}
		}
		if rows, got := contents(t, f); len(rows) != 1 || got != index {
			t.Errorf("the file has %d rows and index %d, want 1 and %d", len(rows), got, index)
		}
	}
	closeFile(t, f)
	if readLog(t, path).Records() < 3 {
		t.Error("no commit went to the log")
	}
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
func testFailedCommit(t *testing.T, f *file.File, want error, wantIndex uint64) {
	t.Helper()
	if err := f.CommitRows(3, mark("m", 99)); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if index, err := f.Index(); err != nil || index != wantIndex {
		t.Errorf("the file has index %d, %v, want %d", index, err, wantIndex)
	}
}

// Ensure that a meta page that a crash left half written is not damage, and that an overwritten
// meta page is: the last commit may have been in it.
func TestFile_NeedsBothMetaPages(t *testing.T) {
	page := os.Getpagesize()
	for _, offset := range []int{0, page} {
		path := newPath(t)
		sound(t, path)
		overwrite(t, path, int64(offset+headSize+32), "new page")
		f := openFile(t, path, quick)
		if _, index := contents(t, f); index != 11 && index != 10 {
			t.Errorf("the file has index %d, want the last or the one before", index)
		}
		closeFile(t, f)
		overwrite(t, path, int64(offset), strings.Repeat("x", page))
		if _, err := file.OpenFile(path, quick); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("overwritten: got %v, want ErrCorrupt", err)
		}
	}
}

// Ensure that a file with one overwritten page, or without one table, is refused or read as it was,
// whichever page it is, and that it is neither written to nor left open.
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
	for table := range format.MarkRows.Table {
		overwrite(t, path, 0, whole)
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return tx.DeleteBucket([]byte(format.TableName(table)))
		})
		if _, err := openAndLoad(path); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("table %d missing: got %v, want ErrCorrupt", table, err)
		}
	}
}

func TestFile_RefusesABucketInATable(t *testing.T) {
	path := newPath(t)
	sound(t, path)
	inBolt(t, path, nil, func(tx *bbolt.Tx) error {
		_, err := tx.Bucket([]byte(format.TableName(0))).CreateBucket([]byte("bucket"))
		header, unknown := file.NextHeader(tx, 0)
		return errors.Join(err, unknown, putHeader(tx, header))
	})
	mustRefuse(t, path, "is not a row")
}

// Ensure that a file with a bucket of another program is refused: a compaction would drop it.
func TestFile_RefusesABucketOfAnotherProgram(t *testing.T) {
	path := newPath(t)
	sound(t, path)
	inBolt(t, path, nil, func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("cache"))
		header, unknown := file.NextHeader(tx, 0)
		return errors.Join(err, unknown, putHeader(tx, header))
	})
	before := age(t, path)
	_, err := file.OpenFile(path, quick)
	if !errors.Is(err, store.ErrFormat) || !strings.Contains(err.Error(), "cache") {
		t.Errorf("got %v, want ErrFormat", err)
	}
	if stateOf(t, path) != before {
		t.Error("the file was written to")
	}
}

func openAndLoad(path string) (map[place]string, error) {
	f, err := file.OpenFile(path, quick)
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

// Ensure that a file that is removed or replaced while it is open takes no commit, which would be
// lost. A file that got another name is still there, and takes commits.
func TestFile_RemovedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	for name, test := range map[string]struct {
		remove func(path string) error
		want   error
	}{
		"removed": {os.Remove, fs.ErrNotExist},
		"replaced": {func(path string) error {
			other := path + ".other"
			return errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, path))
		}, fs.ErrNotExist},
		"renamed": {func(path string) error { return os.Rename(path, path+".other") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			sound(t, path)
			f := openFile(t, path, quick)
			if err := test.remove(path); err != nil {
				t.Fatal(err)
			}
			if err := f.CommitRows(99, mark("m", 1)); !errors.Is(err, test.want) {
				t.Errorf("commit: got %v, want %v", err, test.want)
			}
			if _, err := f.Index(); !errors.Is(err, test.want) {
				t.Errorf("index: got %v, want %v", err, test.want)
			}
			closeFile(t, f)
		})
	}
}

// Ensure that a file that is truncated while it is open causes errors, not a signal, and is left as
// it is.
func TestFile_CutOffWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut")
	}
	path := newPath(t)
	sound(t, path)
	f := openFile(t, path, store.Options{})
	if err := errors.Join(f.Secure(), os.Truncate(path, int64(2*os.Getpagesize()))); err != nil {
		t.Fatal(err)
	}
	before := stateOf(t, path)
	_, err := f.Load(func(byte, string, []byte) error { return nil })
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("load: got %v, want ErrCorrupt", err)
	}
	if err := f.CommitRows(99, mark("m", 1)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("commit: got %v, want ErrCorrupt", err)
	}
	if _, err := f.Index(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("index: got %v, want ErrCorrupt", err)
	}
	closeFile(t, f)
	if stateOf(t, path) != before {
		t.Error("the file was written to")
	}
	if _, err := file.OpenFile(path, quick); errors.Is(err, store.ErrInUse) {
		t.Errorf("open: got %v; the file was left locked", err)
	}
}

// Ensure that a file that has grown since its Open is found to be cut off, even if it still has as
// many bytes as it had then.
func TestFile_CutOffAfterGrowth(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut")
	}
	path := newPath(t)
	f := openFile(t, path, quick)
	before := len(contentOf(t, path))
	commit(t, f, 2, file.Write(0, "k", make([]byte, 2*before)))
	commit(t, f, 3, mark("m", 1))
	if err := os.Truncate(path, int64(before)); err != nil {
		t.Fatal(err)
	}
	if err := f.CommitRows(4, mark("m", 2)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("commit: got %v, want ErrCorrupt", err)
	}
	if _, err := f.Index(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("index: got %v, want ErrCorrupt", err)
	}
	closeFile(t, f)
}
