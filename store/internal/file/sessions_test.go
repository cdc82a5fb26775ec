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

// madeAt is the place in the file of a session that was made at an index below 256.
func madeAt(index, id byte) string {
	return "\x00\x00\x00\x00\x00\x00\x00" + string([]byte{index}) + sessionID(id)
}

func sessionID(id byte) string { return string([]byte{15: id}) }

func makeSession(s *store.Store, id byte) {
	s.Sessions.Put(sessionID(id), schema.Session{ID: schema.ID([]byte(sessionID(id))),
		CreateIndex: s.Next()})
}

// Ensure that sessions lie in the file in the order in which they were made, that a session that
// has ended is gone, and that sessions are found by their IDs when the file is opened.
func TestSessions_LieByIndex(t *testing.T) {
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(){
		func() { makeSession(s, 9) },
		func() { makeSession(s, 8); makeSession(s, 7) },
		func() { makeSession(s, 1) },
		func() { s.Sessions.Delete(sessionID(8)) },
	} {
		if err := write(s, step); err != nil {
			t.Fatal(err)
		}
	}
	want := dump(s)
	if err := errors.Join(s.Check(), s.Close()); err != nil {
		t.Fatal(err)
	}
	inFile := []string{madeAt(2, 9), madeAt(3, 7), madeAt(4, 1)}
	if got := places(t, path, "sessions"); !slices.Equal(got, inFile) {
		t.Errorf("in the file: got %q, want %q", got, inFile)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("opened: got %v,\n%d %q, want\n%d %q", err, got.index, got.rows, want.index,
			want.rows)
	}
}

// Ensure that a file is refused whose sessions contradict each other or themselves.
func TestSessions_Refused(t *testing.T) {
	session := func(place string, index uint64) file.RowWrite {
		return file.Write(format.SessionRows.Table, place,
			format.SessionRows.Append(nil, place, &schema.Session{CreateIndex: index}))
	}
	testRefused(t, map[string]refusedRows{
		"twice": {[]file.RowWrite{session(madeAt(2, 1), 2), session(madeAt(3, 1), 3)},
			"twice"},
		"by its ID":        {[]file.RowWrite{session(sessionID(1), 2)}, "not where"},
		"at another index": {[]file.RowWrite{session(madeAt(2, 1), 3)}, "not where"},
		"without an ID":    {[]file.RowWrite{session(madeAt(2, 1)[:8], 2)}, "wrong length"},
	})
}
