package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd/store"
)

// logBucket is where the log is in a file.
const logBucket = "log"

// records returns the log of a file, nil if it has none.
func records(t testing.TB, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var found map[string]string
	err = db.View(func(tx *bbolt.Tx) error {
		log := tx.Bucket([]byte(logBucket))
		if log == nil {
			return nil
		}
		found = make(map[string]string)
		return log.ForEach(func(number, record []byte) error {
			found[string(number)] = string(record)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wide is a store with so many keys that a commit of some of them goes to the log.
type wide struct {
	*store.Store
	t      *testing.T
	path   string
	random *rand.Rand
	keys   int
	fail   error // of the next commit
}

func newWide(t *testing.T, keys int) *wide {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &wide{t: t, path: newPath(t), random: rand.New(rand.NewPCG(seed, 0)), keys: keys}
	w.open()
	w.must(write(w.Store, func() {
		for i := range keys {
			w.put(w.key(i), 20)
		}
	}))
	return w
}

func (w *wide) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *wide) open() {
	w.t.Helper()
	w.Store = store.New()
	w.must(w.Open(w.path, store.Options{Sync: store.SyncNever, Hooks: store.Hooks{
		BeforeCommit: func() error { return w.fail },
	}}))
}

func (w *wide) key(i int) string { return fmt.Sprintf("lock/%05d", i) }

func (w *wide) anyKey() string { return w.key(w.random.IntN(w.keys)) }

// put writes a row with a value of that size.
func (w *wide) put(key string, size int) {
	w.Keys.Put(key, store.Key{Key: key, Value: bytes.Repeat([]byte{'v'}, size), Fence: w.Next()})
}

// change writes so many rows of keys, or deletes them.
func (w *wide) change(many int) {
	for range many {
		key := w.anyKey()
		if w.random.IntN(8) == 0 && w.Keys.Newest(key) != nil {
			w.Keys.Delete(key)
			w.Bury(0, key)
		} else {
			w.put(key, w.random.IntN(600))
		}
	}
}

// copied makes a copy of the file as it is now.
func (w *wide) copied() string {
	w.t.Helper()
	return copyOf(w.t, w.path)
}

// Ensure that whatever goes to the log, to the tables, and from the one to the other, the file has
// what was committed: while commits fail, the file is closed and opened, and compacted.
func TestLog_G2_FileHasWhatWasCommitted(t *testing.T) {
	w := newWide(t, 1200)
	seen := map[string]int{}
	var before map[string]string
	for round := range 300 / min(step(), 2) {
		many := 5 + w.random.IntN(60)
		switch {
		case round%20 == 7:
			w.fail = errors.New("a broken disk")
		case round%25 == 13:
			w.must(w.Close())
			if round%75 == 13 {
				w.must(store.Compact(w.path, store.Options{Sync: store.SyncNever}))
				seen["compacted"]++
			}
			w.open()
		case round%60 == 30:
			many = 1000 // more than the log takes
		case w.random.IntN(8) == 0:
			many = w.random.IntN(5)
		}
		want := dump(w.Store)
		w.change(many)
		w.Seal()
		b := w.Take()
		if err := b.Write(); err != nil {
			if !errors.Is(err, w.fail) {
				t.Fatal(err)
			}
			w.Drop(b)
			w.fail = nil
			seen["failed"]++
		} else {
			w.Publish(b)
			want = dump(w.Store)
		}
		if round%2 > 0 {
			continue
		}
		path := w.copied()
		got, err := openStore(path)
		w.must(err)
		now := records(t, path)
		if got.rows != want.rows || got.index > want.index {
			t.Fatalf("round %d: got index %d, want %d", round, got.index, want.index)
		}
		w.must(w.Check())
		for number := range before {
			if _, there := now[number]; !there && len(now) > 0 {
				seen["dropped"]++
			}
		}
		if len(now) > len(before) {
			seen["logged"]++
		}
		if before = now; now == nil {
			seen["empty"]++
		}
	}
	w.must(w.Close())
	t.Log(seen)
	for _, what := range []string{"logged", "dropped", "empty", "failed", "compacted"} {
		if seen[what] == 0 {
			t.Errorf("never %s", what)
		}
	}
}

// Ensure that each commit of many rows at random writes to fewer pages than it has rows: a
// checkpoint is spread over the commits that follow.
func TestLog_CheckpointIsSpread(t *testing.T) {
	const rows = 40
	w := newWide(t, 4000)
	before, err := os.ReadFile(w.path)
	w.must(err)
	page, most, all := os.Getpagesize(), 0, 0
	var last map[string]string
	fewer, dropped := 0, 0 // commits after which there are fewer records, and by how many at most
	const commits = 200
	for range commits {
		w.must(write(w.Store, func() {
			for range rows {
				w.put(w.anyKey(), 40)
			}
		}))
		after, err := os.ReadFile(w.path)
		w.must(err)
		changed := 0
		before = append(before, make([]byte, len(after)-len(before))...) // the file has grown
		for at := 0; at < len(after); at += page {
			if !bytes.Equal(after[at:at+page], before[at:at+page]) {
				changed++
			}
		}
		most, all, before = max(most, changed), all+changed, after
		now := records(t, w.copied())
		if gone := len(last) + 1 - len(now); gone > 0 {
			fewer++
			dropped = max(dropped, gone)
		}
		last = now
	}
	w.must(w.Close())
	t.Logf("%d pages in a commit at most, %d in all; %d times %d records went at most", most, all,
		fewer, dropped)
	if most > rows || all > commits*rows/2 {
		t.Error("these are too many pages")
	}
	if fewer == 0 || dropped > rows {
		t.Error("these are too many records, or none")
	}
}

// Ensure that a file without a log is of the first version, which an older program knows, and one
// with a log of the second.
func TestLog_Version(t *testing.T) {
	w := newWide(t, 400)
	check := func(when string, want byte, count int) {
		t.Helper()
		log := records(t, w.copied())
		if got := w.version(); got != want || len(log) != count {
			t.Errorf("%s: got version %d with %d records, want %d with %d", when, got, len(log),
				want, count)
		}
	}
	check("all keys are new", 1, 0)
	some := func() {
		for i := range 10 {
			w.put(w.key(37*i), 10)
		}
	}
	w.must(write(w.Store, some))
	check("some keys", 2, 1)
	w.must(write(w.Store, func() { w.put(w.key(1), 10) }))
	check("one that is not in the log", 2, 1)
	w.must(write(w.Store, func() { w.put(w.key(37), 10) }))
	check("one that is in the log", 2, 2)
	w.must(write(w.Store, func() { w.Marks.Put("m", store.Mark{Name: "m", Index: w.Next()}) }))
	check("no key", 2, 2)
	w.must(write(w.Store, func() { w.put(w.key(2), 200_000) }))
	check("a large one that is not in the log", 2, 2)
	w.must(write(w.Store, func() { w.put(w.key(37), 200_000) }))
	check("a large one that is in the log", 1, 0)
	w.must(write(w.Store, some))
	check("some keys again", 2, 1)
	want := dump(w.Store)
	w.must(w.Close())
	w.must(store.Compact(w.path, store.Options{Sync: store.SyncNever}))
	check("compacted", 1, 0)
	if got, err := openStore(w.path); err != nil || got != want {
		t.Errorf("compacted: got index %d, %v, want %d", got.index, err, want.index)
	}
}

// Ensure that a log is bounded even if the file is closed before a checkpoint ends, each time.
func TestLog_OfShortSessions(t *testing.T) {
	w := newWide(t, 1200)
	most := 0
	for round := range 600 {
		w.must(w.Close())
		w.open()
		w.must(write(w.Store, func() {
			for range 6 {
				w.put(w.anyKey(), 400)
			}
		}))
		if round%20 > 0 {
			continue
		}
		size := 0
		for _, record := range records(t, w.copied()) {
			size += len(record)
		}
		most = max(most, size)
	}
	w.must(w.Close())
	t.Logf("%d bytes at most", most)
	if most < 128<<10 || most > 4*128<<10 { // else it was not tried, or is not bounded
		t.Errorf("%d bytes at most", most)
	}
}

// Ensure that the log goes when nothing but a key or two is written any more.
func TestLog_Goes(t *testing.T) {
	w := newWide(t, 1200)
	w.must(write(w.Store, func() {
		for i := range 50 {
			w.put(w.key(20*i), 100)
		}
	}))
	for range 3000 {
		w.must(write(w.Store, func() { w.put(w.key(20), 100) }))
	}
	if log := records(t, w.copied()); log != nil {
		t.Errorf("%d records are left", len(log))
	}
	w.must(w.Close())
}

// Ensure that a compaction of a file with a log leaves no more free pages than one without.
func TestLog_Compacted(t *testing.T) {
	w := newWide(t, 8000)
	for range 20 {
		w.must(write(w.Store, func() {
			for range 64 {
				w.put(w.anyKey(), 100)
			}
		}))
	}
	if len(records(t, w.copied())) != 20 {
		t.Fatal("it has no log")
	}
	want := dump(w.Store)
	w.must(w.Close())
	var sizes []int
	for range 2 {
		w.must(store.Compact(w.path, store.Options{Sync: store.SyncNever}))
		sizes = append(sizes, len(stateOf(t, w.path).bytes))
		if got, err := openStore(w.path); err != nil || got != want {
			t.Fatalf("got index %d, %v, want %d", got.index, err, want.index)
		}
	}
	if sizes[0] != sizes[1] {
		t.Errorf("first %d bytes, then %d", sizes[0], sizes[1])
	}
}

// version reads that of the format from the file.
func (w *wide) version() (version byte) {
	w.t.Helper()
	inBolt(w.t, w.copied(), nil, func(tx *bbolt.Tx) error {
		version = tx.Bucket([]byte(store.HeaderBucket)).Get([]byte(store.HeaderKey))[0]
		return errors.New("nothing is to be written")
	})
	return version
}

// Ensure that a log that no commit can have left is refused, whatever checksums it has.
func TestLog_Refused(t *testing.T) {
	row := func(key, value string) string {
		return string(rune(len(key))) + key + string(rune(len(value))) + value
	}
	long := "\x81\x80\x02" + strings.Repeat("k", store.KeyLimit+1) + "\x00"
	good := string(store.KeyRows.Append(nil, "k", store.Key{Key: "k"}))
	other := string(store.KeyRows.Append(nil, "l", store.Key{Key: "l", Flags: 1}))
	for name, test := range map[string]struct {
		number uint64
		record []byte
		text   string
	}{
		"None":          {1, store.Record(1, row("k", good)), ""},
		"Checksum":      {1, store.Record(2, row("k", good)), "checksum"},
		"Short":         {1, []byte{1, 2}, "ends too early"},
		"Future":        {99, store.Record(99, row("k", good)), "no commit has that number"},
		"NoKey":         {1, store.Record(1, row("", good)), "key has the wrong length"},
		"LongKey":       {1, store.Record(1, long), "key has the wrong length"},
		"CutKey":        {1, store.Record(1, "\x05k"), "ends too early"},
		"CutValue":      {1, store.Record(1, "\x01k\x09v"), "ends too early"},
		"LongNumber":    {1, store.Record(1, "\x81\x00k\x00"), "a number that is too large"},
		"Unsorted":      {1, store.Record(1, row("l", other)+row("k", good)), "not in the order"},
		"Twice":         {1, store.Record(1, row("k", good)+row("k", good)), "not in the order"},
		"Value":         {1, store.Record(1, row("k", "bad")), `row "k" of keys`},
		"OtherValue":    {1, store.Record(1, row("other", good)), `row "other" of keys`},
		"NotCounted":    {1, store.Record(1, row("k", good)+row("more", "")), ""},
		"OneTooMany":    {1, store.Record(1, row("k", good)+row("l", other)), "lost a write"},
		"OneTooFew":     {1, store.Record(1, row("k", "")), "lost a write"},
		"OneForAnother": {1, store.Record(1, row("l", other)), "lost a write"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			closeFile(t, openFile(t, path, quick))
			inBolt(t, path, nil, func(tx *bbolt.Tx) error {
				log, err := tx.CreateBucket([]byte(logBucket))
				if err != nil {
					return err
				}
				number := binary.BigEndian.AppendUint64(nil, test.number)
				if err := log.Put(number, test.record); err != nil {
					return err
				}
				return putHeader(tx, store.LoggedHeader(uint64(tx.ID()), []byte(good)))
			})
			testLog(t, path, test.text)
		})
	}
	t.Run("KeyLength", func(t *testing.T) {
		path := newPath(t)
		closeFile(t, openFile(t, path, quick))
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			log, err := tx.CreateBucket([]byte(logBucket))
			err = errors.Join(err, log.Put([]byte("number"), store.Record(1, row("k", good))))
			header := store.LoggedHeader(uint64(tx.ID()), []byte(good))
			return errors.Join(err, putHeader(tx, header))
		})
		testLog(t, path, "key has the wrong length")
	})
	t.Run("Bucket", func(t *testing.T) {
		path := newPath(t)
		closeFile(t, openFile(t, path, quick))
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			log, err := tx.CreateBucket([]byte(logBucket))
			if err == nil {
				_, err = log.CreateBucket([]byte("\x00\x00\x00\x00\x00\x00\x00\x01"))
			}
			return errors.Join(err, putHeader(tx, store.LoggedHeader(uint64(tx.ID()))))
		})
		testLog(t, path, "it is a bucket")
	})
	t.Run("NoRecord", func(t *testing.T) {
		path := newPath(t)
		closeFile(t, openFile(t, path, quick))
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte(logBucket))
			return errors.Join(err, putHeader(tx, store.LoggedHeader(uint64(tx.ID()))))
		})
		testLog(t, path, "has no record")
	})
	t.Run("NoLog", func(t *testing.T) {
		path := newPath(t)
		closeFile(t, openFile(t, path, quick))
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return putHeader(tx, store.LoggedHeader(uint64(tx.ID())))
		})
		testLog(t, path, "does not fit its log")
	})
	t.Run("FirstVersion", func(t *testing.T) {
		path := newPath(t)
		closeFile(t, openFile(t, path, quick))
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte(logBucket))
			return errors.Join(err, putHeader(tx, store.HeaderValue(1, uint64(tx.ID()), 5)))
		})
		testLog(t, path, "does not fit its log")
	})
}

// testLog opens the file, which is to be refused with that text and left as it is, or to have one
// key if there is none.
func testLog(t *testing.T, path, text string) {
	t.Helper()
	before := age(t, path)
	s := store.New()
	err := s.Open(path, store.Options{Sync: store.SyncNever})
	switch {
	case err == nil:
		if keys := s.Keys.Len(); text != "" || keys != 1 {
			t.Errorf("accepted, with %d keys; want %q", keys, text)
		}
		if err := errors.Join(s.Check(), s.Close()); err != nil {
			t.Error(err)
		}
	case text == "" || !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), text):
		t.Errorf("got %v, want %q", err, text)
	}
	if stateOf(t, path) != before {
		t.Error("the file was written to")
	}
}
