package file_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// anyLogSizes returns segments of any sizes, which grow by any factor.
func anyLogSizes(random *rand.Rand) file.LogSizes {
	first := 8 << 10 << random.IntN(3)
	least := first << random.IntN(5)
	return file.LogSizes{
		First: first, Least: least, Row: 1 << random.IntN(10), Most: least << random.IntN(4),
	}
}

// Ensure that a file has what was committed, whatever the sizes of its log's segments and of the
// commits, while the number of its rows rises and falls, and with it the size of its segments.
func TestLog_G2_OfAnySize(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	logged, grown := 0, 0
	for range 24 / min(step(), 3) {
		sizes := anyLogSizes(random)
		restore := file.SetLogSizes(sizes)
		w := newWide(t, 30<<random.IntN(5))
		var rows int // of a commit, at the most
		var before file.LogState
		for round := range 80 {
			if round == 0 || random.IntN(12) == 0 {
				rows = 1 + sizes.Least>>random.IntN(8)/300
			}
			switch random.IntN(20) {
			case 0:
				w.keys = max(10, w.keys/2)
			case 1:
				w.keys = min(4000, w.keys*2)
			case 2:
				w.must(w.Close())
				w.open()
			}
			w.must(write(w.Store, func() { w.change(1 + random.IntN(rows)) }))
			if round%4 > 0 {
				continue
			}
			path := w.copied()
			want := dump(w.Store)
			if got, err := openStore(path); err != nil || got != want {
				t.Fatalf("%+v: round %d: got index %d, %v, want %d", sizes, round, got.index, err,
					want.index)
			}
			now := readLog(t, path)
			w.must(os.Remove(path))
			if now.Next > before.Next {
				logged++
			}
			if before.Segments > 0 && now.Segments > before.Segments {
				grown++
			}
			before = now
		}
		w.must(w.Close())
		restore()
	}
	t.Logf("%d times there was a record, %d times a larger segment", logged, grown)
	if logged < 20 || grown < 1 {
		t.Error("this was not tried")
	}
}

var smallLog = file.LogSizes{First: 16 << 10, Least: 16 << 10, Most: 16 << 10}

// newMixed returns a store whose log has segments of two sizes, and the size of both before: the
// last commit of bbolt has made the segment with the number larger, but not the other one.
func newMixed(t *testing.T, larger int) (w *wide, before int) {
	t.Helper()
	restore := file.SetLogSizes(smallLog)
	defer restore()
	w = newWide(t, 400)
	w.fillLog(1)
	first := logOf(t, w.path)
	if larger == 1 { // the first one is checkpointed first
		for logOf(t, w.path).First == first.First {
			w.must(write(w.Store, func() { w.put(w.anyKey(), 40) }))
		}
	}
	restore()
	for logOf(t, w.path).Segments == first.Segments {
		w.must(write(w.Store, func() { w.put(w.anyKey(), 40) }))
	}
	return w, first.Segments
}

// Ensure that no record goes beyond its segment when the segments differ in size. One of them was
// made larger. Then all of the log went to the tables before the other one grew, and the file had
// fewer rows.
func TestLog_SegmentsOfTwoSizes(t *testing.T) {
	for _, larger := range []int{0, 1} {
		t.Run(strconv.Itoa(larger), func(t *testing.T) {
			w, small := newMixed(t, larger)
			mixed := logOf(t, w.path)
			w.must(write(w.Store, func() { w.put("large", small) }))
			if now := logOf(t, w.path); now.Rows > 0 || now.Segments != mixed.Segments {
				t.Fatalf("got %+v after %+v, want no rows and segments of that size", now, mixed)
			}
			defer file.SetLogSizes(smallLog)()
			for round := range 12 {
				// More than a lane of the smaller segment.
				w.must(write(w.Store, func() { w.put(w.anyKey(), small*3/8) }))
				got, err := openCopy(t, w.path)
				if want := dump(w.Store); err != nil || got != want {
					t.Fatalf("round %d: got index %d, %v, want %d", round, got.index, err,
						want.index)
				}
			}
			w.must(w.Close())
		})
	}
}

// Ensure that a commit that is too large for the smaller segment makes both anew, whatever the size
// of the other segment.
func TestLog_LargeCommitMakesBothLarge(t *testing.T) {
	for _, larger := range []int{0, 1} {
		w, small := newMixed(t, larger)
		mixed := logOf(t, w.path)
		for range 2 { // at the first commit the larger segment is too young
			w.must(write(w.Store, func() { w.put("large", small) }))
		}
		want := 2 * (mixed.Segments - small/2)
		if now := logOf(t, w.path); now.Segments != want {
			t.Errorf("%d: got %d bytes, want %d", larger, now.Segments, want)
		}
		w.must(w.Close())
	}
}

// Ensure that a record of any length is read as it was written, also if it fills its last sector or
// its lane, and that the record behind it is.
func TestLog_G2_RecordOfAnyLength(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	for size := range 1200 {
		index := uint64(size + 2)
		value := strings.Repeat(string(rune('a'+size%26)), size)
		commit(t, f, index, file.Write(0, "k", []byte(value)))
		if rows, got := contents(t, f); rows[place{0, "k"}] != value || got != index {
			t.Fatalf("size %d: got index %d, %.20q", size, got, rows[place{0, "k"}])
		}
	}
	closeFile(t, f)
	if readLog(t, path).Records() < 1000 {
		t.Error("few commits went to the log")
	}
}

// Ensure that a record of the longest key can be read, and that no record of a longer one is made
// or taken.
func TestLog_LongestKey(t *testing.T) {
	longest := strings.Repeat("k", schema.KeyLimit)
	made, err := file.RecordOf(file.RecordHead{}, []file.RowWrite{file.Write(0, longest, nil)})
	if err != nil {
		t.Fatal(err)
	}
	_, rows, err := file.ReadRecord(made)
	if err != nil || len(rows) != 1 || rows[0].Key != longest {
		t.Errorf("read %d rows, %v", len(rows), err)
	}
	longer := longest + "k"
	head, err := file.RecordOf(file.RecordHead{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := append(format.AppendString(append(head, 0), longer), 0)
	if _, _, err := file.ReadRecord(payload); !errors.Is(err, format.ErrKeyLength) {
		t.Errorf("read a longer key: %v", err)
	}
	rows = []file.RowWrite{file.Write(0, longer, nil)}
	if _, err := file.RecordOf(file.RecordHead{}, rows); err == nil {
		t.Error("made a record of a longer key")
	}
}
