package file_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

func setDelay(s *store.Store, key string) {
	s.Delays.Put(key, schema.Delay{Key: key, Until: time.Unix(1, 9).UTC(), Length: 1,
		Index: s.Next()})
}

// Ensure that delays lie in the file by the indexes at which they began, one for each key, and are
// found by their keys when the file is opened, whatever byte a key begins with.
func TestDelays_LieByIndex(t *testing.T) {
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(){
		func() { setDelay(s, "b"); setDelay(s, "a"); setDelay(s, "gone") },
		func() { setDelay(s, "\xff"); setDelay(s, "b") },
		func() { s.Delays.Delete("gone") },
	} {
		if err := write(s, step); err != nil {
			t.Fatal(err)
		}
	}
	want := dump(s)
	if err := errors.Join(s.Check(), s.Close()); err != nil {
		t.Fatal(err)
	}
	inFile := []string{atIndex(2, "a"), atIndex(3, "b"), atIndex(3, "\xff")}
	if got := places(t, path, "delays"); !slices.Equal(got, inFile) {
		t.Errorf("in the file: got %q, want %q", got, inFile)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("opened: got %v,\n%d %q, want\n%d %q", err, got.index, got.rows, want.index,
			want.rows)
	}
}

// Ensure that a delay that lies under its key, as in the first files, moves when it is set anew.
func TestDelays_MoveFromTheirKeys(t *testing.T) {
	path := firstFile(t)
	if got := places(t, path, "delays"); !slices.Equal(got, []string{"delayed"}) {
		t.Fatalf("first: got %q", got)
	}
	s := store.New()
	if err := s.Open(path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	err := write(s, func() { setDelay(s, "delayed") })
	want := dump(s)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if got := places(t, path, "delays"); !slices.Equal(got, []string{atIndex(4, "delayed")}) {
		t.Errorf("then: got %q", got)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("opened: got index %d, %v, want %d", got.index, err, want.index)
	}
}

// underKeys makes a file with delays that lie under their keys, as in the first files.
func underKeys(t *testing.T, keys []string) (path string) {
	t.Helper()
	w := newWide(t, 50)
	w.fillLog(3)
	w.must(w.Close())
	head := readLog(t, w.path).Head
	var rows []file.RowWrite
	for _, key := range slices.Sorted(slices.Values(keys)) {
		value := format.DelayRows.Append(nil, key, &schema.Delay{Until: time.Unix(1, 0)})
		rows = append(rows, file.Write(format.DelayRows.Table, key, value))
		head.Rows++
		head.Sum += uint64(binary.BigEndian.Uint32(value[len(value)-4:]))
	}
	payload, err := file.RecordOf(head, rows)
	w.must(err)
	w.must(file.AppendRecord(w.path, 0, payload, nil))
	return w.path
}

// Ensure that a delay that lies under its key is found whatever the key begins with, and moves when
// it is set anew, with an index or, as when it is shortened, without.
func TestDelays_UnderAnyKey(t *testing.T) {
	keys := []string{"k", "\xff", "\xfflock-of-a-user", "\xff12345678", atIndex(3, "k")}
	for _, index := range []uint64{0, 9} {
		path := underKeys(t, keys)
		s := store.New()
		if err := s.Open(path, store.Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if row := s.Delays.Get(key); row == nil || row.Key != key {
				t.Fatalf("%q: got %v", key, row)
			}
		}
		err := write(s, func() {
			for _, key := range keys {
				row := *s.Delays.Newest(key)
				row.Until, row.Index = time.Unix(2, 0).UTC(), index
				s.Delays.Put(key, row)
			}
		})
		want := dump(s)
		if err := errors.Join(err, s.Check(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := openStore(path); err != nil || got != want {
			t.Errorf("index %d: got %v, %d rows %q, want %q", index, err, got.index, got.rows,
				want.rows)
		}
	}
}

// Ensure that a file is refused whose delays contradict each other or themselves.
func TestDelays_Refused(t *testing.T) {
	delay := func(place string, index uint64) file.RowWrite {
		return file.Write(format.DelayRows.Table, place, format.DelayRows.Append(nil, place,
			&schema.Delay{Until: time.Unix(1, 0), Index: index}))
	}
	testRefused(t, map[string]refusedRows{
		"twice": {[]file.RowWrite{delay(atIndex(2, "k"), 2), delay(atIndex(3, "k"), 3)}, "twice"},
		"twice, once by its key": {
			[]file.RowWrite{delay("k", 2), delay(atIndex(3, "k"), 3)}, "twice"},
		"at another index": {[]file.RowWrite{delay(atIndex(2, "k"), 3)}, "not where"},
	})
}

// Ensure that delays which are written again, where they lie already, are still there.
func TestDelays_WrittenAgain(t *testing.T) {
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	const delays = 50
	begun := make(map[string]uint64)
	for i := range delays {
		key := fmt.Sprintf("key/%02d", i*7%delays) // begun in another order than that of the keys
		begun[key] = s.Next()
		if err := write(s, func() { setDelay(s, key) }); err != nil {
			t.Fatal(err)
		}
	}
	err := write(s, func() {
		for key, index := range begun {
			s.Delays.Put(key, schema.Delay{Key: key, Until: time.Unix(1, 8).UTC(), Length: 1,
				Index: index})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := dump(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("got index %d, %v, want all %d delays at index %d", got.index, err, delays,
			want.index)
	}
}
