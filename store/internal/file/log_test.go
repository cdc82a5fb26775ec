package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// readLog returns what a file has of a log.
func readLog(t testing.TB, path string) file.LogState {
	t.Helper()
	state, err := file.ReadLog(path)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// logOf returns what a file has of a log while a store has it open: it reads a copy.
func logOf(t testing.TB, path string) file.LogState {
	t.Helper()
	path = copyOf(t, path)
	defer os.Remove(path)
	return readLog(t, path)
}

// wide is a store with so many keys that a commit of some of them goes to the log.
type wide struct {
	*store.Store
	t      *testing.T
	path   string
	random *rand.Rand
	keys   int
	fail   error // of the next commit
	synced func() error

	changed func()
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
	w.must(w.Open(w.path, store.Options{NoSync: true, Hooks: store.Hooks{
		BeforeCommit: func() error { return w.fail }, Synced: w.synced, Changed: w.changed,
	}}))
}

func (w *wide) key(i int) string { return fmt.Sprintf("lock/%05d", i) }

func (w *wide) anyKey() string { return w.key(w.random.IntN(w.keys)) }

// put writes a row with a value of that size.
func (w *wide) put(key string, size int) {
	w.Keys.Put(key, schema.Key{Key: key, Value: bytes.Repeat([]byte{'v'}, size), Fence: w.Next()})
}

// change writes or deletes the given number of rows of keys.
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

// Ensure that the file has what was committed, whether that goes to the log, to the tables, or from
// the log to the tables: while commits fail, and while the file is closed, opened and compacted.
func TestLog_G2_FileHasWhatWasCommitted(t *testing.T) {
	w := newWide(t, 1200)
	seen := map[string]int{}
	var before file.LogState
	for round := range 600 / min(step(), 2) {
		many := 1 + w.random.IntN(60)
		switch {
		case round%20 == 7:
			w.fail = errors.New("a broken disk")
		case round%25 == 13:
			w.must(w.Close())
			if round%400 == 213 {
				w.must(store.Compact(w.path, store.Options{NoSync: true}))
				seen["compacted"]++
			}
			w.open()
		case round%290 == 289:
			many = 1000 // more than the log takes
		case w.random.IntN(8) == 0:
			many = 1
		}
		want := dump(w.Store)
		w.change(many)
		w.Seal()
		b := w.Take()
		if err := w.Write(b); err != nil {
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
		if got.rows != want.rows || got.index > want.index {
			t.Fatalf("round %d: got index %d, want %d", round, got.index, want.index)
		}
		w.must(w.Check())
		now := readLog(t, path)
		w.must(os.Remove(path))
		for what, is := range map[string]bool{
			"logged":  now.Next > before.Next,
			"settled": now.First > before.First && now.Rows > 0,
			"taken":   now.Taken > 0,
			"emptied": now.Rows == 0 && before.Rows > 0,
			"grown":   now.Segments > before.Segments && before.Segments > 0,
		} {
			if is {
				seen[what]++
			}
		}
		before = now
	}
	w.must(w.Close())
	t.Log(seen)
	for _, what := range []string{
		"logged", "settled", "taken", "emptied", "grown", "failed", "compacted",
	} {
		if seen[what] == 0 {
			t.Errorf("never %s", what)
		}
	}
}

// Ensure that after a commit whose sync has failed, of the log or of bbolt, the file is as
// published and writes go on. Otherwise FileIndex fails, and then the next Open has the commit
// whole, or not at all.
func TestLog_G11_FailedSync(t *testing.T) {
	w := newWide(t, 300)
	broken, left := errors.New("a broken disk"), 20
	w.must(w.Close())
	w.synced = func() error {
		if left--; left > 0 {
			return nil
		}
		left = 1 + w.random.IntN(8)
		return broken
	}
	w.open()
	outcomes := []string{
		"committed", "as published", "not known: as before", "not known: committed",
	}
	seen := map[string]int{}
	all := func() bool {
		return !slices.ContainsFunc(outcomes, func(what string) bool { return seen[what] == 0 })
	}
	const rounds = 1500
	for round := 0; round < rounds/min(step(), 5) || !all() && round < rounds; round++ {
		before := dump(w.Store)
		rows := 1 + w.random.IntN(20)
		if w.random.IntN(20) == 0 {
			rows = 200 // more than the log takes
		}
		w.change(rows)
		w.Seal()
		b := w.Take()
		err := w.Write(b)
		if err == nil {
			w.Publish(b)
			seen["committed"]++
			continue
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		index, unknown := w.FileIndex()
		w.Drop(b)
		if unknown == nil && index == w.Published() {
			seen["as published"]++
			if got, err := openCopy(t, w.path); err != nil || got != before {
				t.Fatalf("got index %d, %v, want %d", got.index, err, before.index)
			}
			continue
		}
		w.must(w.Close())
		w.open()
		switch got := dump(w.Store); {
		case got == before:
			seen["not known: as before"]++
		case got.index == b.Index():
			seen["not known: committed"]++
		default:
			t.Fatalf("got index %d, want %d or %d", got.index, before.index, b.Index())
		}
		w.must(w.Check())
	}
	w.must(w.Close())
	t.Log(seen)
	for _, what := range outcomes {
		if seen[what] == 0 {
			t.Errorf("never %s", what)
		}
	}
}

// Ensure that each commit is whole after any one failed sync, be it of a record, of the first
// record of a segment, of a step of the checkpoint or of a commit to the tables, if the next commit
// goes to the log and if it goes to the tables.
func TestLog_G11_EachFailedSync(t *testing.T) {
	defer file.SetLogSizes(smallLog)()
	for _, next := range []int{1, 200} {
		failed, known := 0, 0
		for ; ; failed++ {
			w, b := failAtSync(t, failed)
			if b == nil { // no commit has synced so often
				w.must(w.Close())
				break
			}
			index, unknown := w.FileIndex()
			w.Drop(b)
			if unknown == nil && index == w.Published() {
				known++
			} else {
				before := dump(w.Store)
				w.must(w.Close())
				w.open()
				if got := dump(w.Store); got != before && got.index != b.Index() {
					t.Fatalf("sync %d: got index %d, want %d or %d", failed, got.index,
						before.index, b.Index())
				}
			}
			w.must(write(w.Store, func() { w.change(next) }))
			want := dump(w.Store)
			w.must(w.Check())
			w.must(w.Close())
			if got, err := openStore(w.path); err != nil || got != want {
				t.Fatalf("sync %d, then %d rows: got index %d, %v, want %d", failed, next,
					got.index, err, want.index)
			}
		}
		t.Logf("%d syncs failed, %d of them of a commit that is known not to be there", failed,
			known)
		if failed < 40 || known == 0 || known == failed {
			t.Error("this was not tried")
		}
	}
}

// failAtSync makes the same commits each time, until one fails because its sync fails, after that
// number of syncs. It returns the batch of that commit, or nil if there was none.
func failAtSync(t *testing.T, after int) (*wide, *store.Batch) {
	t.Helper()
	w := newWide(t, 40)
	w.must(w.Close())
	w.random = rand.New(rand.NewPCG(1, 2))
	broken, syncs := errors.New("a broken disk"), 0
	w.synced = func() error {
		if syncs++; syncs == after+1 {
			return broken
		}
		return nil
	}
	w.open()
	for range 40 {
		w.change(1 + w.random.IntN(5))
		w.Seal()
		b := w.Take()
		switch err := w.Write(b); {
		case errors.Is(err, broken):
			return w, b
		case err != nil:
			t.Fatal(err)
		case syncs > after:
			t.Fatalf("sync %d failed, and its commit did not", after)
		}
		w.Publish(b)
	}
	return w, nil
}

// Ensure that if the sync of a checkpoint's step fails, after a durable commit, the next commit
// fails, and FileIndex too. The step may have moved a segment of the log, and nothing may be
// written to the segment's old place any more.
func TestLog_G11_FailedStep(t *testing.T) {
	w := newWide(t, 1200)
	broken, failing, failed := errors.New("a broken disk"), false, false
	w.must(w.Close())
	w.synced = func() error {
		if failed = failing; failed {
			return broken
		}
		return nil
	}
	w.open()
	const enough = 12
	steps := 0
	for range 2000 {
		w.must(write(w.Store, func() { w.change(1 + w.random.IntN(20)) }))
		failing, failed = true, false
		if step := w.Tidy(); step != nil {
			if err := step(); failed != errors.Is(err, broken) {
				t.Fatalf("got %v from a step, its sync failed: %t", err, failed)
			}
		}
		failing = false
		if !failed { // there was none
			continue
		}
		want := dump(w.Store)
		w.change(1)
		w.Seal()
		b := w.Take()
		if err := w.Write(b); !errors.Is(err, broken) {
			t.Fatalf("got %v from the commit after a step, want %v", err, broken)
		}
		if index, err := w.FileIndex(); err == nil {
			t.Errorf("the file is said to have index %d", index)
		}
		w.Drop(b)
		w.must(w.Close())
		w.open()
		if got := dump(w.Store); got != want {
			t.Fatalf("got index %d, want %d", got.index, want.index)
		}
		if steps++; steps == enough {
			break
		}
	}
	w.must(w.Close())
	if steps < enough {
		t.Errorf("%d steps", steps)
	}
}

// fillLog writes until the file has a log with the given number of records.
func (w *wide) fillLog(records uint64) {
	w.t.Helper()
	for {
		w.must(write(w.Store, func() { w.put(w.anyKey(), 40) }))
		if state := logOf(w.t, w.path); state.Next > records {
			return
		}
	}
}

// Ensure that each commit of many random rows writes to few pages: a checkpoint is spread over the
// commits that follow.
func TestLog_CheckpointIsSpread(t *testing.T) {
	const rows, commits = 40, 300
	w := newWide(t, 4000)
	w.fillLog(1)
	before, err := os.ReadFile(w.path)
	w.must(err)
	page, most, all := os.Getpagesize(), 0, 0
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
	}
	state := logOf(t, w.path)
	w.must(w.Close())
	t.Logf("%d pages in a commit at most, %d in all; %+v", most, all, state)
	if most > 2*rows || all > commits*rows/2 {
		t.Error("these are too many pages")
	}
	if state.Next < commits || state.First < commits/4 {
		t.Error("these are too few records, or too few that are in the tables")
	}
}

// Ensure that the first commits to a file need no log, so that a file with few writes stays small,
// and that a compaction leaves such a file.
func TestLog_ComesLate(t *testing.T) {
	w := newWide(t, 400)
	for i := range 12 {
		if logged := logOf(t, w.path).Segments > 0; logged != (i >= 3) {
			t.Errorf("after %d commits: a log: %t", i+1, logged)
		}
		w.must(write(w.Store, func() { w.put(w.anyKey(), 10) }))
	}
	if state := logOf(t, w.path); state.Rows == 0 {
		t.Errorf("%+v", state)
	}
	want := dump(w.Store)
	w.must(w.Close())
	w.must(store.Compact(w.path, store.Options{NoSync: true}))
	if got := logOf(t, w.path); got.Segments > 0 {
		t.Errorf("compacted: %+v", got)
	}
	if got, err := openStore(w.path); err != nil || got != want {
		t.Errorf("compacted: got index %d, %v, want %d", got.index, err, want.index)
	}
}

// Ensure that a file that is closed after each commit has no more in its log than any other file,
// and that its checkpoints continue where they stopped.
func TestLog_OfShortSessions(t *testing.T) {
	w := newWide(t, 1200)
	w.fillLog(1)
	most, taken := 0, 0
	var last file.LogState
	for range 600 / min(step(), 4) {
		w.must(w.Close())
		w.open()
		w.must(write(w.Store, func() {
			for range 6 {
				w.put(w.anyKey(), 200)
			}
		}))
		now := logOf(t, w.path)
		most = max(most, now.Rows)
		if now.First == last.First {
			taken = max(taken, now.Taken-last.Taken)
		}
		last = now
	}
	w.must(w.Close())
	t.Logf("%d rows at most, %d taken at most, %+v", most, taken, last)
	if most > 600 || taken > 60 || last.First < 50 {
		t.Error("the log is not bounded, or was not tried")
	}
}

// Ensure that work that the last process left undone in a file waits for a commit. An Open writes
// nothing, and what was in the file is on disk before anything else is.
func TestLog_G2_LeftoversWaitForACommit(t *testing.T) {
	w := newWide(t, 1200)
	w.fillLog(1)
	due := 0
	for round := 0; round < 1000 && due < 3; round++ {
		w.must(write(w.Store, func() { w.change(1 + w.random.IntN(10)) }))
		path := w.copied()
		before, untouched := readLog(t, path), age(t, path)
		s := store.New()
		w.must(s.Open(path, store.Options{NoSync: true}))
		if s.Tidy() != nil {
			t.Fatalf("round %d: a step is due before it was written to", round)
		}
		if stateOf(t, path) != untouched {
			t.Fatalf("round %d: it was written to", round)
		}
		w.must(write(s, func() { s.Marks.Put("any", schema.Mark{Name: "any", Index: s.Next()}) }))
		w.must(s.Close())
		if after := readLog(t, path); after.Taken > before.Taken {
			due++
		}
		w.must(os.Remove(path))
	}
	w.must(w.Close())
	if due < 3 {
		t.Errorf("%d times there was something to be done", due)
	}
}

// Ensure that a record of which a crash has left only some sectors is ignored, that nothing is
// written until a commit, and that the next record takes its place.
func TestLog_CutOff(t *testing.T) {
	w := newWide(t, 50)
	w.fillLog(3)
	want := dump(w.Store)
	w.must(w.Close())
	for name, keep := range map[string]func(sector int) bool{
		"first":     func(sector int) bool { return sector == 0 },
		"all but 1": func(sector int) bool { return sector != 1 },
		"last":      func(sector int) bool { return sector == 4 },
	} {
		path := w.copied()
		state := readLog(t, path)
		payload, err := file.RecordOf(state.Head, []file.RowWrite{
			file.Write(0, "k", bytes.Repeat([]byte{1}, 4*500))})
		w.must(err)
		w.must(file.AppendRecord(path, 0, payload, keep))
		before := age(t, path)
		if state := readLog(t, path); !state.Cut {
			t.Errorf("%s: %+v", name, state)
		}
		if got, err := openStore(path); err != nil || got != want {
			t.Errorf("%s: got index %d, %v", name, got.index, err)
		}
		if stateOf(t, path) != before {
			t.Errorf("%s: the file was written to", name)
		}
		changed := commitTo(t, path, 0)
		if got, err := openStore(path); err != nil || got != changed || readLog(t, path).Cut {
			t.Errorf("%s: after a commit: got index %d, %v, want %d", name, got.index, err,
				changed.index)
		}
	}
}

// Ensure that a record that no commit can have written is refused, whatever checksums it has.
func TestLog_Refused(t *testing.T) {
	w := newWide(t, 50)
	w.fillLog(3)
	w.must(w.Close())
	state := readLog(t, w.path)
	of := func(index uint64) string {
		return string(format.AppendUint64(nil, index, state.Head.Rows, state.Head.Sum))
	}
	head := of(state.Head.Index)
	row := func(table byte, key, value string) string {
		text := string(binary.AppendUvarint([]byte{table}, uint64(len(key)))) + key
		return text + string(binary.AppendUvarint(nil, uint64(len(value)))) + value
	}
	good := string(format.KeyRows.Append(nil, "k", &schema.Key{Key: "k"}))
	for name, test := range map[string]struct {
		number  int
		payload string
		text    string
	}{
		"NoRows":     {0, head, ""},
		"Gap":        {2, head, "lacks a record"},
		"OtherLane":  {1, head, "lacks a record"},
		"Again":      {-1, head, "lacks a record"},
		"Short":      {0, head[:2], "ends too early"},
		"Older":      {0, of(1), "not between those of its neighbours"},
		"Old":        {0, of(state.Head.Index - 1), "not between those of its neighbours"},
		"Limit":      {0, of(math.MaxUint64), "its last index is"},
		"Table":      {0, head + row(10, "k", good), "unknown table"},
		"NoKey":      {0, head + row(0, "", good), "key has the wrong length"},
		"CutKey":     {0, head + "\x00\x05k", "ends too early"},
		"CutValue":   {0, head + "\x00\x01k\x09v", "ends too early"},
		"LongNumber": {0, head + "\x00\x81\x00k\x00", "a number that is too large"},
		"Unsorted":   {0, head + row(1, "k", "") + row(0, "k", ""), "not in order"},
		"Twice":      {0, head + row(0, "k", "") + row(0, "k", ""), "not in order"},
		"Value":      {0, head + row(0, "k", "bad"), `row "k" of keys`},
		"OtherValue": {0, head + row(0, "other", good), `row "other" of keys`},
		"OneTooMany": {0, head + row(0, "k", good), "lost a write"},
		"OneTooFew":  {0, head + row(0, w.key(1), ""), "lost a write"},
	} {
		t.Run(name, func(t *testing.T) {
			path := copyOf(t, w.path)
			if err := file.AppendRecord(path, test.number, []byte(test.payload), nil); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, path, test.text)
		})
	}
	const (
		unfit     = "its header does not fit its log"
		noSegment = "segment 0 of its log: it is not one"
	)
	for name, test := range map[string]struct {
		change func(tx *bbolt.Tx) error
		text   string
	}{
		"OneSegment": {func(tx *bbolt.Tx) error {
			return tx.DeleteBucket([]byte("log1"))
		}, unfit},
		"NoSegments": {func(tx *bbolt.Tx) error {
			return errors.Join(tx.DeleteBucket([]byte("log0")), tx.DeleteBucket([]byte("log1")))
		}, unfit},
		"Short": {func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("log0")).Put([]byte("log"), make([]byte, 9000))
		}, noSegment},
		"Longer": {func(tx *bbolt.Tx) error {
			log := tx.Bucket([]byte("log0"))
			return log.Put([]byte("log"), append(bytes.Clone(log.Get([]byte("log"))), 0))
		}, noSegment},
		"LanesOnOnePage": {func(tx *bbolt.Tx) error {
			log := tx.Bucket([]byte("log0"))
			value := log.Get([]byte("log"))
			return log.Put([]byte("log"), bytes.Clone(value[:len(value)-2*512]))
		}, noSegment},
		"Empty": {func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("log0")).Delete([]byte("log"))
		}, noSegment},
		"More": {func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("log0")).Put([]byte("m"), nil)
		}, noSegment},
		"Inline": {func(tx *bbolt.Tx) error {
			return errors.Join(tx.DeleteBucket([]byte("log0")), inline(tx, "log0"))
		}, noSegment},
		"Last": {func(tx *bbolt.Tx) error {
			header, err := file.NextHeader(tx, 1<<64-1)
			return errors.Join(err, putHeader(tx, header))
		}, "its log is from record"},
		"Zeros": {func(tx *bbolt.Tx) error {
			log := tx.Bucket([]byte("log0"))
			return log.Put([]byte("log"), make([]byte, len(log.Get([]byte("log")))))
		}, "sector 1 of segment 0 of its log"},
		"NoLog": {func(tx *bbolt.Tx) error {
			return putHeader(tx, file.HeaderValue(1, uint64(tx.ID()), 5))
		}, unfit},
	} {
		t.Run(name, func(t *testing.T) {
			path := copyOf(t, w.path)
			inBolt(t, path, nil, func(tx *bbolt.Tx) error {
				header, err := file.NextHeader(tx, 0)
				return errors.Join(err, putHeader(tx, header), test.change(tx))
			})
			mustRefuse(t, path, test.text)
		})
	}
}

// Ensure that a row that no segment can be is refused, though its records could be read. The next
// record would overwrite what lies behind a branch.
func TestLog_RefusesSegment(t *testing.T) {
	w := newWide(t, 50)
	w.fillLog(3)
	w.must(w.Close())
	for name, edit := range map[string]func(p *segmentPages){
		"Key":    func(p *segmentPages) { copy(p.leaf[headSize+16:], "gol") },
		"Bucket": func(p *segmentPages) { order.PutUint32(p.leaf[headSize:], 1) },
		"BelowABranch": func(p *segmentPages) {
			number := order.Uint64(p.free)
			makeBranch(p.free, number, []byte("log"), order.Uint64(p.leaf))
			order.PutUint64(p.root, number)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSegmentPages(t, w.path)
			edit(p)
			path := newPath(t)
			w.must(os.WriteFile(path, p.content, 0o600))
			mustRefuse(t, path, "segment 1 of its log: it is not one")
		})
	}
}

// segmentPages is the content of a file, and what is in it of its second segment.
type segmentPages struct {
	content []byte
	root    []byte // the number of its page, in its bucket
	leaf    []byte // its page
	free    []byte // a page that no list names
}

func newSegmentPages(t *testing.T, path string) *segmentPages {
	t.Helper()
	p := &segmentPages{content: contentOf(t, path)}
	size := os.Getpagesize()
	page := func(number []byte) []byte {
		return p.content[int(order.Uint64(number))*size:][:size]
	}
	meta := p.content[newestMeta(p.content, size):]
	list := page(meta[32:])
	last := order.Uint16(list[10:]) - 1
	order.PutUint16(list[10:], last)
	number := list[headSize+8*int(last):]
	p.free = page(number)
	copy(p.free, number[:8])
	_, p.root, _ = bytes.Cut(page(meta[16:]), []byte("log1"))
	p.leaf = page(p.root)
	return p
}

// inline makes a bucket that is so small that it lies in the page of the bucket around it.
func inline(tx *bbolt.Tx, name string) error {
	bucket, err := tx.CreateBucket([]byte(name))
	return errors.Join(err, bucket.Put([]byte("log"), make([]byte, 100)))
}

// mustRefuse opens the file. The file must be refused with that text, or accepted if there is none,
// and must stay as it is.
func mustRefuse(t *testing.T, path, text string) {
	t.Helper()
	before := age(t, path)
	_, err := openStore(path)
	refused := errors.Is(err, store.ErrCorrupt) && strings.Contains(fmt.Sprint(err), text)
	if text == "" && err != nil || text != "" && !refused {
		t.Errorf("got %v, want %q", err, text)
	}
	if stateOf(t, path) != before {
		t.Error("the file was written to")
	}
}
