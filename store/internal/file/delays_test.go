package file_test

import (
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

// Ensure that a file is refused whose delays contradict each other or themselves.
func TestDelays_Refused(t *testing.T) {
	delay := func(place string, index uint64) file.RowWrite {
		return file.Write(format.DelayRows.Table, place, format.DelayRows.Append(nil, place,
			&schema.Delay{Until: time.Unix(1, 0), Index: index}))
	}
	testRefused(t, map[string]refusedRows{
		"twice": {[]file.RowWrite{delay(atIndex(2, "k"), 2), delay(atIndex(3, "k"), 3)},
			"twice"},
		"by its key":       {[]file.RowWrite{delay("k", 2)}, "not where"},
		"at another index": {[]file.RowWrite{delay(atIndex(2, "k"), 3)}, "not where"},
	})
}

// Ensure that delays that are written again in the same place are still there.
func TestDelays_WrittenAgain(t *testing.T) {
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	const delays = 50
	begun := make(map[string]uint64)
	for i := range delays {
		key := fmt.Sprintf("key/%02d", i*7%delays) // not in the order of the keys
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
