package file_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

func TestFile_StartsEmpty(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, store.Options{Mode: 0o640})
	rows, index := contents(t, f)
	if len(rows) != 0 || index != schema.FirstIndex {
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
	f := openFile(t, path, store.Options{})
	commit(t, f, 2, mark("m", 1))
	commit(t, f, 3, mark("m", 2))
	closeFile(t, f)
	before := age(t, path)
	f = openFile(t, path, store.Options{})
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
		_, err := file.OpenFile(path, o)
		if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), path) {
			t.Errorf("with a timeout of %v: got %v, want ErrInUse and the path", timeout, err)
		}
		want := ": the call did not wait;"
		if timeout > 0 {
			want = ": it was not closed within 1ms;"
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("with a timeout of %v: got %q, want %q in it", timeout, err, want)
		}
	}
	commit(t, f, 2, mark("m", 1))
	closeFile(t, f)
	closeFile(t, openFile(t, path, quick))
}

// Ensure that a file that looks damaged is not condemned while another process may be writing to
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
		if _, err := file.OpenFile(path, quick); !errors.Is(err, store.ErrInUse) {
			t.Errorf("%s: got %v, want ErrInUse", name, err)
		}
	}
	overwrite(t, path, 0, whole)
	closeFile(t, f)
	closeFile(t, openFile(t, path, quick))
}

// Ensure that commits that go on while others try to open the file do not make it look damaged.
func TestFile_InUseWhileWritten(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := file.OpenFile(path, quick); !errors.Is(err, store.ErrInUse) {
				t.Errorf("got %v, want ErrInUse", err)
				return
			}
		}
	})
	for index := uint64(2); index < 300; index++ {
		commit(t, f, index, mark(strings.Repeat("m", int(index)), index))
	}
	close(done)
	wg.Wait()
	closeFile(t, f)
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

// Ensure that of several creators of one file at the same time exactly one has it.
func TestFile_OneCreatorWins(t *testing.T) {
	for range 50 {
		path := newPath(t)
		var files [4]*file.File
		var errs [4]error
		var wg sync.WaitGroup
		for i := range files {
			wg.Go(func() { files[i], errs[i] = file.OpenFile(path, quick) })
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

// Ensure that a file is made on a file system without links too, and that one which is there, or
// which another process has made meanwhile, stays as it is.
func TestFile_CreateInPlace(t *testing.T) {
	path := newPath(t)
	create := func() {
		t.Helper()
		if err := file.CreateInPlace(path, quick); err != nil {
			t.Fatal(err)
		}
	}
	create()
	f := openFile(t, path, quick)
	if rows, index := contents(t, f); len(rows) != 0 || index != schema.FirstIndex {
		t.Errorf("a new file has %d rows and index %d", len(rows), index)
	}
	commit(t, f, 12, mark("m", 1))
	closeFile(t, f)
	before := stateOf(t, path)
	if create(); stateOf(t, path) != before {
		t.Error("what was there was written to")
	}
}

// Ensure that a file is given up if the path no longer leads to it: another process would open the
// file that the path leads to.
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
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckPath(loop); err == nil || errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v for a path that leads nowhere, want the system's error", err)
	}
	closeFile(t, f)
}

// Ensure that a file is opened whatever the size of its pages, and of its list of free pages.
func TestFile_AnyPageSize(t *testing.T) {
	path := newPath(t)
	small := &bbolt.Options{PageSize: 1024, NoSync: true}
	inBolt(t, path, small, func(tx *bbolt.Tx) error {
		if err := file.MakeTables(tx); err != nil {
			return err
		}
		bucket := tx.Bucket([]byte(format.TableName(0)))
		return bucket.Put([]byte("large"), make([]byte, 1024*(1<<16)))
	})
	inBolt(t, path, small, func(tx *bbolt.Tx) error {
		err := tx.Bucket([]byte(format.TableName(0))).Delete([]byte("large"))
		return errors.Join(err, putHeader(tx, file.HeaderValue(1, uint64(tx.ID()), 1)))
	})
	for range 2 {
		if rows, err := openAndLoad(path); err != nil || len(rows) != 0 {
			t.Errorf("got %d rows and %v", len(rows), err)
		}
		// As half a commit leaves the older meta page: the other must be looked for.
		overwrite(t, path, headSize+32, "new page")
	}
}

// Ensure that a program of 32 bits refuses a file that it cannot map, also if the size looks small
// in an int.
func TestFile_RefusesWhatItCannotMap(t *testing.T) {
	if math.MaxInt > math.MaxInt32 {
		t.Skip("a program of 64 bits can map it")
	}
	path := newPath(t)
	closeFile(t, openFile(t, path, quick))
	for _, size := range []int64{3 << 30, 4<<30 + 1<<16} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		_, err := openAndLoad(path)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "32 bits") {
			t.Errorf("%d bytes: got %v, want ErrInvalid", size, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != size {
			t.Errorf("%d bytes: now there are %d, %v", size, info.Size(), err)
		}
	}
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
		{"MetaPageLost", damage(map[int]string{
			0: strings.Repeat("\x00", page), page + 72: "damaged!",
		}), store.ErrCorrupt, "neither of its two meta pages is whole"},
		{"OtherMetaPageLost", damage(map[int]string{
			72: "damaged!", page: strings.Repeat("\x00", page),
		}), store.ErrCorrupt, "neither of its two meta pages is whole"},
		{"FreePageUnknown", freelist(func(list []uint64) { list[len(list)-1] = 1 << 40 }),
			store.ErrCorrupt, "list of free pages"},
		{"FreePageOfMeta", freelist(func(list []uint64) { list[0] = 1 }),
			store.ErrCorrupt, "list of free pages"},
		{"FreePageTwice", freelist(func(list []uint64) { list[1] = list[0] }),
			store.ErrCorrupt, "list of free pages"},
		{"FreelistOfAnotherPage", freelistPage(func(page []byte) { page[0]++ }),
			store.ErrCorrupt, "list of free pages"},
		{"FreelistOfAnotherKind", freelistPage(func(page []byte) {
			order.PutUint16(page[8:], leafKind)
		}), store.ErrCorrupt, "list of free pages"},
		{"FreelistTooLong", freelistPage(func(page []byte) {
			order.PutUint16(page[10:], math.MaxUint16) // then the first number is the length
			order.PutUint64(page[headSize:], math.MaxUint64/8)
		}), store.ErrCorrupt, "list of free pages"},
		{"FreelistOverflows", freelistPage(func(page []byte) { order.PutUint32(page[12:], 1<<20) }),
			store.ErrCorrupt, "list of free pages"},
		{"OtherProgram", bolt(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("other"))
			return err
		}), store.ErrFormat, "another program"},
		{"OtherProgramsNewFile", bolt(func(*bbolt.Tx) error { return nil }), store.ErrFormat,
			"another program"},
		{"OtherProgramWithMeta", bolt(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(file.HeaderBucket))
			return errors.Join(err, b.Put([]byte("consistent_index"), []byte{1}))
		}), store.ErrFormat, "another program"},
		{"NoFreelist", noFreelist, store.ErrFormat, "without its list of free pages"},
		{"Newer", headed(2, 0, 5), store.ErrFormat, "version 2"},
		{"Newest", headed(math.MaxUint64, 0, 5), store.ErrFormat, "version 1844"},
		{"NoVersion", headed(0, 0, 5), store.ErrFormat, "version 0"},
		{"NoIndex", headed(1, 0, 0), store.ErrCorrupt, "last index is 0"},
		{"IndexNearOverflow", headed(1, 0, 1<<63), store.ErrCorrupt, "last index is 9223"},
		{"IndexAtOverflow", headed(1, 0, math.MaxUint64), store.ErrCorrupt, "last index is 1844"},
		{"HeaderOlder", headed(1, 2, 5), store.ErrCorrupt, "its header is of commit "},
		{"HeaderCut", header([]byte{1}), store.ErrCorrupt, "ends too early"},
		{"HeaderDamaged", header([]byte{1, 5, 0, 0, 0, 0}), store.ErrCorrupt, "checksum"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			test.make(t, path)
			before := age(t, path)
			for range 2 { // the first must have given it up
				f, err := file.OpenFile(path, store.Options{})
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
		var rows []file.RowWrite
		for name := range uint64(10) {
			rows = append(rows, mark(strings.Repeat(string(rune('a'+i)), 100+int(name)), i))
		}
		commit(t, f, i+2, rows...)
	}
	closeFile(t, f)
}

// cut makes a sound file, and leaves size bytes of it.
func cut(size int) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		if err := os.Truncate(path, int64(size)); err != nil {
			t.Fatal(err)
		}
	}
}

// cutToUse makes a sound file, and cuts it to the pages in use and more bytes after them.
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

// bolt makes a file of bbolt with the buckets that fn writes.
func bolt(fn func(tx *bbolt.Tx) error) func(t *testing.T, path string) {
	return func(t *testing.T, path string) { inBolt(t, path, nil, fn) }
}

// freelistPage makes a sound file, and lets edit change the page of its list of free pages.
func freelistPage(edit func(page []byte)) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		content := contentOf(t, path)
		size := os.Getpagesize()
		number := int(order.Uint64(content[newestMeta(content, size)+32:]))
		edit(content[number*size:][:size])
		overwrite(t, path, 0, string(content))
	}
}

// freelist is freelistPage for the numbers in the list, which are two or more.
func freelist(edit func(list []uint64)) func(t *testing.T, path string) {
	return freelistPage(func(page []byte) {
		list := make([]uint64, order.Uint16(page[10:]))
		for i := range list {
			list[i] = order.Uint64(page[headSize+8*i:])
		}
		edit(list)
		for i, free := range list {
			order.PutUint64(page[headSize+8*i:], free)
		}
	})
}

func noFreelist(t *testing.T, path string) {
	sound(t, path)
	inBolt(t, path, &bbolt.Options{NoFreelistSync: true, NoSync: true},
		func(tx *bbolt.Tx) error { return nil })
}

// header makes a sound file, and gives it another header.
func header(value []byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		inBolt(t, path, nil, func(tx *bbolt.Tx) error { return putHeader(tx, value) })
	}
}

// headed is header with a sound header, of the commit that is back commits before the last one.
func headed(version, back, index uint64) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		sound(t, path)
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return putHeader(tx, file.HeaderValue(version, uint64(tx.ID())-back, index))
		})
	}
}

func putHeader(tx *bbolt.Tx, value []byte) error {
	return tx.Bucket([]byte(file.HeaderBucket)).Put([]byte(file.HeaderKey), value)
}

// inBolt runs a transaction on the file, and rolls it back if fn fails.
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
		_, err := file.OpenFile(t.TempDir(), quick)
		if !errors.Is(err, store.ErrFormat) {
			t.Errorf("got %v, want ErrFormat", err)
		}
	})
	t.Run("FolderMissing", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "missing", "lockd.db")
		_, err := file.OpenFile(path, quick)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("got %v, want ErrNotExist", err)
		}
		want := fmt.Sprintf("%s: its folder %s does not exist: make that first", path,
			filepath.Dir(path))
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	})
	t.Run("FolderIsAFile", func(t *testing.T) {
		folder := newPath(t)
		content("x")(t, folder)
		path := filepath.Join(folder, "lockd.db")
		_, err := file.OpenFile(path, quick)
		if err == nil || strings.Count(err.Error(), path) != 1 {
			t.Errorf("got %v, want an error that names the path once", err)
		}
	})
	t.Run("LinkToNothing", func(t *testing.T) {
		path := newPath(t)
		if err := os.Symlink(path+".missing", path); err != nil {
			t.Skip(err)
		}
		if _, err := file.OpenFile(path, quick); !errors.Is(err, fs.ErrNotExist) {
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
