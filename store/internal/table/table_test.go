package table_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/table"
	"pgregory.net/rapid"
)

// values are the values of the keys, as a naive reader keeps them.
type values map[string]string

// machine runs a store beside two maps.
type machine struct {
	*store.Store
	t         *rapid.T
	newest    values // with the running transaction's writes
	before    values // before the running transaction
	published values
	flying    *table.Batch
	taken     values // as of flying
}

func (m *machine) check() {
	m.t.Helper()
	got := values{}
	for key, row := range m.Keys.Ascend("") {
		got[key] = string(row.Value)
	}
	if !maps.Equal(got, m.newest) {
		m.t.Fatalf("newest: got %v, want %v", got, m.newest)
	}
	for n := range keyCount {
		key := keyName(n)
		value, want := m.published[key]
		row := m.Keys.Get(key)
		if (row != nil) != want || (want && string(row.Value) != value) {
			m.t.Fatalf("published %q: got %v, want %q, %v", key, row, value, want)
		}
	}
	if len(m.newest) != m.Keys.Len() {
		m.t.Fatalf("len: got %d, want %d", m.Keys.Len(), len(m.newest))
	}
}

// checkSnapshot compares the published snapshot, which may be asked for only between
// transactions.
func (m *machine) checkSnapshot() {
	m.t.Helper()
	got := values{}
	snapshot := m.Snapshot()
	for key, row := range snapshot.Keys.Ascend("") {
		got[key] = string(row.Value)
	}
	if !maps.Equal(got, m.published) || snapshot.Index() != m.Published() {
		m.t.Fatalf("snapshot %d: got %v, want %v at %d", snapshot.Index(), got, m.published,
			m.Published())
	}
}

const keyCount = 6

func keyName(n int) string { return fmt.Sprintf("key/%d", n) }

// transaction writes a few rows, and keeps or undoes them.
func (m *machine) transaction() {
	m.before = maps.Clone(m.newest)
	for range rapid.IntRange(0, 4).Draw(m.t, "writes") {
		key := keyName(rapid.IntRange(0, keyCount-1).Draw(m.t, "key"))
		if _, ok := m.newest[key]; ok && rapid.Bool().Draw(m.t, "delete") {
			m.Keys.Delete(key)
			delete(m.newest, key)
		} else {
			value := rapid.StringN(0, 3, 8).Draw(m.t, "value")
			m.Keys.Put(key, schema.Key{Key: key, Value: []byte(value)})
			m.newest[key] = value
		}
		if rapid.Bool().Draw(m.t, "look") {
			m.check()
		}
	}
	if rapid.IntRange(0, 3).Draw(m.t, "undo") == 0 {
		m.Undo()
		m.newest = m.before
	} else {
		m.Seal()
	}
}

// commit moves the batches on by one step.
func (m *machine) commit() {
	switch {
	case !m.Durable():
		m.PublishMemory()
		m.published = maps.Clone(m.newest)
	case m.flying == nil:
		m.flying, m.taken = m.Take(), maps.Clone(m.newest)
	case rapid.IntRange(0, 2).Draw(m.t, "drop") == 0:
		m.Drop(m.flying)
		m.flying, m.newest = nil, maps.Clone(m.published)
	default:
		if err := m.Write(m.flying); err != nil {
			m.t.Fatal(err)
		}
		m.Publish(m.flying)
		m.flying, m.published = nil, m.taken
	}
}

func (m *machine) run(steps int) {
	for range steps {
		m.transaction()
		m.check()
		if rapid.Bool().Draw(m.t, "commit") || !m.Durable() {
			m.commit()
			m.check()
		}
		if m.Durable() || !m.Pending() {
			m.checkSnapshot()
		}
		if err := m.Check(); err != nil {
			m.t.Fatal(err)
		}
	}
}

// Ensure that rows, published rows and snapshots agree with plain maps, through undone
// transactions, commits and dropped batches.
func TestTable_Model(t *testing.T) {
	t.Run("Memory", rapid.MakeCheck(func(t *rapid.T) {
		m := &machine{Store: store.New(), t: t, newest: values{}, published: values{}}
		m.run(30)
	}))
	t.Run("File", func(t *testing.T) {
		folder, round := t.TempDir(), 0
		rapid.Check(t, func(t *rapid.T) {
			round++
			path := filepath.Join(folder, fmt.Sprint(round))
			m := &machine{Store: store.New(), t: t, newest: values{}, published: values{}}
			opts := store.Options{Mode: 0o600, NoSync: true}
			if err := m.Open(path, opts); err != nil {
				t.Fatal(err)
			}
			m.run(20)
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}

			again := store.New()
			if err := again.Open(path, opts); err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if got, want := again.Published(), m.Published(); got != want {
				t.Fatalf("index after reopen: got %d, want %d", got, want)
			}
			m.Store, m.newest, m.flying = again, maps.Clone(m.published), nil
			m.check()
			m.run(10)
		})
	})
}

// Ensure that readers without a lock never see a row go back, or miss one that is there all the
// time, while rows come and go around it and the hash grows.
func TestTable_ReadersBesideTheWriter(t *testing.T) {
	s := store.New()
	put := func(key string, n int) {
		s.Keys.Put(key, schema.Key{Key: key, Flags: uint64(n)})
		s.Seal()
		s.PublishMemory()
	}
	put("steady", 0)
	done := make(chan struct{})
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				row := s.Keys.Get("steady")
				if row == nil || row.Flags < last {
					t.Errorf("steady: got %+v after %d", row, last)
					return
				}
				last = row.Flags
			}
		})
	}
	for n := range 20_000 {
		put("steady", n)
		key := fmt.Sprintf("passing/%d", n%3000)
		if s.Keys.Newest(key) == nil {
			put(key, n)
		} else {
			s.Keys.Delete(key)
			s.Seal()
			s.PublishMemory()
		}
	}
	close(done)
	wait.Wait()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a reader without a lock is never given the row of another key, though keys take the
// places of removed keys: in a table whose rows contain their keys, and in one whose rows do not.
func TestTable_ReadersOfPlacesThatAreTakenAgain(t *testing.T) {
	t.Run("keys", func(t *testing.T) {
		s := store.New()
		readWhileOthersCome(t, s, &s.Keys,
			func(key string) schema.Key { return schema.Key{Key: key} },
			func(row *schema.Key) string { return row.Key })
	})
	t.Run("nodes", func(t *testing.T) {
		s := store.New()
		readWhileOthersCome(t, s, &s.Nodes,
			func(key string) schema.Node { return schema.Node{Name: key} },
			func(row *schema.Node) string { return row.Name })
	})
}

func readWhileOthersCome[T any](
	t *testing.T, s *store.Store, table *table.Table[T],
	made func(key string) T, keyOf func(row *T) string,
) {
	const keys = 4000 // enough that there are others with the same tag nearby
	name := func(n int) string { return fmt.Sprint("key/", n%keys) }
	done := make(chan struct{})
	var wait sync.WaitGroup
	for reader := range 2 {
		wait.Go(func() {
			for n := reader; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if row := table.Get(name(n)); row != nil && keyOf(row) != name(n) {
					t.Errorf("%s: got the row of %s", name(n), keyOf(row))
					return
				}
			}
		})
	}
	for n := range 20_000 {
		if key := name(n * 7); table.Newest(key) == nil {
			table.Put(key, made(key))
		} else {
			table.Delete(key)
		}
		s.Seal()
		s.PublishMemory()
		_ = s.Snapshot() // forgets the cells of rows that are gone
	}
	close(done)
	wait.Wait()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that rows that come and go leave nothing behind, though no caller asks for their order.
func TestTable_PassingRowsLeaveNothing(t *testing.T) {
	s := store.New()
	pass := func(n int) {
		key := fmt.Sprint(n)
		s.Keys.Put(key, schema.Key{Key: key})
		s.Seal()
		s.PublishMemory()
		s.Keys.Delete(key)
		s.Seal()
		s.PublishMemory()
	}
	for n := range 50_000 {
		pass(n)
	}
	if cells := s.Keys.Cells(); cells != 0 {
		t.Fatalf("cells: got %d for no rows", cells)
	}
	_ = s.Snapshot()
	if cells := s.Keys.Cells(); cells != 0 {
		t.Fatalf("cells after catching up: got %d", cells)
	}
}

// Ensure that exactly the keys in the table are found, while many come and go in no order.
func TestTable_ManyKeysComeAndGo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := store.New()
	there := make(map[string]*schema.Key)
	for range 50 {
		most := random.IntN(4000)
		for range 2000 {
			key := fmt.Sprint(random.IntN(5000))
			if s.Keys.Newest(key) != there[key] {
				t.Fatalf("key %s: got %v, want %v", key, s.Keys.Newest(key), there[key])
			}
			if there[key] == nil && len(there) < most {
				there[key] = s.Keys.Put(key, schema.Key{Key: key})
			} else if there[key] != nil {
				s.Keys.Delete(key)
				delete(there, key)
			}
		}
		s.Seal()
		s.PublishMemory()
		if err := s.Check(); err != nil { // removes the cells of rows that are gone
			t.Fatal(err)
		}
		if got := s.Keys.Cells(); got != len(there) {
			t.Fatalf("cells: got %d, want %d", got, len(there))
		}
		for n := range 5000 {
			key := fmt.Sprint(n)
			if s.Keys.Get(key) != there[key] {
				t.Fatalf("key %s: got %v, want %v", key, s.Keys.Get(key), there[key])
			}
		}
	}
}

// Ensure that a function that follows the rows is told of every step, forwards and back.
func TestTable_OnMoveFollowsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{Store: store.New(), t: t, newest: values{}, published: values{}}
		followed := map[string]*schema.Key{}
		m.Keys.OnMove(func(old, new *schema.Key) {
			if old != nil {
				if followed[old.Key] != old {
					t.Fatalf("moved from %v, but it was at %v", old, followed[old.Key])
				}
				delete(followed, old.Key)
			}
			if new != nil {
				followed[new.Key] = new
			}
		})
		m.run(20)
		got, want := slices.Sorted(maps.Keys(followed)), slices.Sorted(maps.Keys(m.newest))
		if !slices.Equal(got, want) {
			t.Fatalf("followed: got %v, want %v", got, want)
		}
	})
}

// Ensure that a row that no file could have is refused where it is written, and leaves nothing: in
// a batch it would fail the writes of all callers.
func TestTable_RefusesKeysThatNoFileHas(t *testing.T) {
	s := store.New()
	if err := s.Open(newPath(t), store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	puts := map[string]func(key string){
		"keys":   func(key string) { s.Keys.Put(key, schema.Key{Key: key}) },
		"delays": func(key string) { s.Delays.Put(key, schema.Delay{Key: key, Index: s.Next()}) },
		"graves": func(key string) { s.Bury(0, key) },
		"drafts": func(key string) { s.Keys.Write(key, s.Keys.Draft(key)) },
	}
	const index, kind = 9, 1 // what delays and graves have beside the key in their places
	longest := map[string]int{
		"keys": schema.KeyLimit, "delays": schema.KeyLimit - index,
		"graves": schema.KeyLimit - index - kind, "drafts": schema.KeyLimit,
	}
	refuses := func(put func(key string), key string) (refused bool) {
		defer func() { refused = recover() != nil }()
		put(key)
		return false
	}
	for name, put := range puts {
		for size, want := range map[int]bool{longest[name]: false, longest[name] + 1: true} {
			if got := refuses(put, strings.Repeat("k", size)); got != want {
				t.Errorf("%s: a key of %d bytes is refused: %t", name, size, got)
			}
		}
	}
	if !refuses(puts["keys"], "") {
		t.Error("an empty key is not refused")
	}
	if err := write(s, func() {}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Check(), s.Close()); err != nil {
		t.Error(err)
	}
}

// Ensure that a loop that writes sees its own writes ahead of it, also when a loop inside it has
// gone through the rows since.
func TestTable_LoopSeesWhatItWrites(t *testing.T) {
	inner := map[string]func(s *store.Store){
		"no loop":       func(*store.Store) {},
		"other rows":    func(s *store.Store) { keysOf(s.Keys.Prefix("b/")) },
		"the same rows": func(s *store.Store) { keysOf(s.Keys.Prefix("a/")) },
		"a writing loop": func(s *store.Store) {
			for key := range s.Keys.Prefix("b/") {
				s.Keys.Put(key, schema.Key{Key: key})
			}
		},
	}
	for name, loop := range inner {
		s := store.New()
		for _, key := range []string{"a/1", "a/2", "a/3", "b/1"} {
			s.Keys.Put(key, schema.Key{Key: key})
		}
		var got []string
		for key := range s.Keys.Prefix("a/") {
			got = append(got, key)
			if key == "a/1" {
				s.Keys.Delete("a/2")
				s.Keys.Put("a/4", schema.Key{Key: "a/4"})
			}
			loop(s)
		}
		if want := []string{"a/1", "a/3", "a/4"}; !slices.Equal(got, want) {
			t.Errorf("with %s in it: got %q, want %q", name, got, want)
		}
	}
}

// Ensure that the newest tombstones stay, and the highest index of the others.
func TestBury_KeepsTheNewest(t *testing.T) {
	s := store.New()
	const n = 3 * schema.GraveLimit
	for i := range n {
		s.Bury('k', fmt.Sprint(i))
		s.Seal()
		s.PublishMemory()
	}
	snapshot := s.Snapshot()
	kept := snapshot.Graves.Len()
	if kept < schema.GraveLimit || kept > schema.GraveLimit+schema.GraveLimit/10 {
		t.Fatalf("tombstones: got %d", kept)
	}
	if snapshot.Buried('k', fmt.Sprint(n-kept)) == nil || snapshot.Buried('k', "0") != nil {
		t.Fatal("it is not the newest that were kept")
	}
	oldest := snapshot.Buried('k', fmt.Sprint(n-kept)).Index
	if floor := snapshot.Mark(schema.FloorMark); floor != oldest-1 {
		t.Fatalf("floor: got %d, want %d", floor, oldest-1)
	}
}

// Ensure that all rows are found after an Open, also in a table that is smaller than the size of
// the file suggests, because most of the rows are in another table.
func TestTable_OpenBesideALargerOne(t *testing.T) {
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	const keys, marks = 600, 3000
	err := write(s, func() {
		for i := range keys {
			key := fmt.Sprintf("key/%03d", i)
			s.Keys.Put(key, schema.Key{Key: key, ModifyIndex: s.Next()})
		}
		for i := range marks {
			name := fmt.Sprintf("mark/%04d", i)
			s.Marks.Put(name, schema.Mark{Name: name, Index: s.Next()})
		}
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 20 { // each time the hash is another one
		s := store.New()
		if err := s.Open(path, store.Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
		if s.Keys.Len() != keys || s.Marks.Len() != marks {
			t.Errorf("%d keys and %d marks", s.Keys.Len(), s.Marks.Len())
		}
		if err := errors.Join(s.Check(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
