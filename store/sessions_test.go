package store_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd/store"
)

// sessionPlaces returns the keys of the sessions' rows, as the file has them.
func sessionPlaces(t *testing.T, path string) (places []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("sessions")).ForEach(func(place, _ []byte) error {
			places = append(places, string(place))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return places
}

// madeAt is where the session that was made at an index below 256 is in the file.
func madeAt(index, id byte) string {
	return "\x00\x00\x00\x00\x00\x00\x00" + string([]byte{index}) + sessionID(id)
}

func sessionID(id byte) string { return string([]byte{15: id}) }

func makeSession(s *store.Store, id byte) {
	s.Sessions.Put(sessionID(id), store.Session{ID: store.ID([]byte(sessionID(id))),
		CreateIndex: s.Next()})
}

// Ensure that sessions lie in the file in the order in which they were made, that one that has
// ended is gone, and that they are found by their IDs when the file is opened.
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
	places := []string{madeAt(2, 9), madeAt(3, 7), madeAt(4, 1)}
	if got := sessionPlaces(t, path); !slices.Equal(got, places) {
		t.Errorf("in the file: got %q, want %q", got, places)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("opened: got %v,\n%d %q, want\n%d %q", err, got.index, got.rows, want.index,
			want.rows)
	}
}

// Ensure that a session that lies under its ID, as in the first files, is gone when it has ended.
func TestSessions_EndUnderTheirIDs(t *testing.T) {
	content, err := os.ReadFile(formatFile)
	if err != nil {
		t.Fatal(err)
	}
	path := newPath(t)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	before := sessionPlaces(t, path)
	if len(before) != 1 || len(before[0]) != len(store.ID{}) {
		t.Fatalf("first: got %q", before)
	}
	s := store.New()
	if err := s.Open(path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	err = write(s, func() {
		s.Sessions.Delete(before[0])
		makeSession(s, 1)
	})
	want := dump(s)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if got := sessionPlaces(t, path); !slices.Equal(got, []string{madeAt(4, 1)}) {
		t.Errorf("then: got %q", got)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("opened: got index %d, %v, want %d", got.index, err, want.index)
	}
}

// Ensure that a file is refused whose sessions contradict each other or themselves.
func TestSessions_Refused(t *testing.T) {
	session := func(place string, index uint64) store.RowWrite {
		return store.Write(store.SessionRows.Table, place,
			store.SessionRows.Append(nil, place, store.Session{CreateIndex: index}))
	}
	for name, test := range map[string]struct {
		rows []store.RowWrite
		text string
	}{
		"twice": {[]store.RowWrite{session(madeAt(2, 1), 2), session(madeAt(3, 1), 3)}, "twice"},
		"twice, once by its ID": {
			[]store.RowWrite{session(sessionID(1), 2), session(madeAt(3, 1), 3)}, "twice"},
		"at another index": {[]store.RowWrite{session(madeAt(2, 1), 3)}, "not where"},
		"without an ID":    {[]store.RowWrite{session(madeAt(2, 1)[:8], 2)}, "wrong length"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			f := openFile(t, path, store.FileOptions{})
			commit(t, f, 5, test.rows...)
			closeFile(t, f)
			before := stateOf(t, path)
			_, err := openStore(path)
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want ErrCorrupt with %q", err, test.text)
			}
			if stateOf(t, path) != before {
				t.Error("the file was written to")
			}
		})
	}
}
