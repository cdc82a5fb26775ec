package file_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// atIndex is the place in the file of a tombstone or delay with an index below 256.
func atIndex(index byte, key string) string {
	return "\xff\x00\x00\x00\x00\x00\x00\x00" + string([]byte{index}) + key
}

// Ensure that tombstones lie in the file by their indexes, each name once, and are found by their
// names when the file is opened.
func TestGraves_LieByIndex(t *testing.T) {
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"b", "a"}, {"c", "b"}, {"d"}} {
		err := write(s, func() {
			for _, name := range names {
				s.Bury('k', name)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := dump(s)
	if err := errors.Join(s.Check(), s.Close()); err != nil {
		t.Fatal(err)
	}
	inFile := []string{atIndex(2, "ka"), atIndex(3, "kb"), atIndex(3, "kc"), atIndex(4, "kd")}
	if got := places(t, path, "graves"); !slices.Equal(got, inFile) {
		t.Errorf("in the file: got %q, want %q", got, inFile)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("opened: got %v,\n%d %q, want\n%d %q", err, got.index, got.rows, want.index,
			want.rows)
	}
}

// Ensure that a file is refused whose tombstones contradict each other or themselves.
func TestGraves_Refused(t *testing.T) {
	grave := func(place string, index uint64) file.RowWrite {
		return file.Write(format.GraveRows.Table, place,
			format.GraveRows.Append(nil, place, &schema.Grave{Index: index}))
	}
	testRefused(t, map[string]refusedRows{
		"twice": {[]file.RowWrite{grave(atIndex(2, "kx"), 2), grave(atIndex(3, "kx"), 3)},
			"twice"},
		"by its name":      {[]file.RowWrite{grave("kx", 2)}, "not where"},
		"at another index": {[]file.RowWrite{grave(atIndex(2, "kx"), 3)}, "not where"},
		"without a kind":   {[]file.RowWrite{grave(atIndex(2, ""), 2)}, "wrong length"},
	})
}
