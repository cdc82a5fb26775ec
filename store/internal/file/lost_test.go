package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// image is a file as a commit left it.
type image struct {
	content []byte
	state   whole
	records uint64 // written to its log by then
}

// images returns the file after each of the given number of commits, which fn fills. Synced is
// called with what is on disk at each sync within them.
func images(
	t *testing.T, commits int, fn func(s *store.Store, round int), synced func(content []byte),
) []image {
	t.Helper()
	path := newPath(t)
	read := func() []byte { return contentOf(t, path) }
	s := store.New()
	hooks := store.Hooks{Synced: func() error {
		if synced != nil {
			synced(read())
		}
		return nil
	}}
	if err := s.Open(path, store.Options{NoSync: true, Hooks: hooks}); err != nil {
		t.Fatal(err)
	}
	var list []image
	for round := range commits {
		if err := write(s, func() { fn(s, round) }); err != nil {
			t.Fatal(err)
		}
		list = append(list, image{read(), dump(s), logOf(t, path).Records()})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if state := readLog(t, path); state.Next < 5 {
		t.Fatalf("the log has %+v", state)
	}
	return list
}

// after returns the states that may be read if the disk has lost writes of this commit, the one
// after before, and no others: a record of the log may be missing as a whole.
func (i image) after(before image) []whole {
	if i.records > before.records {
		return []whole{i.state, before.state}
	}
	return []whole{i.state}
}

// sameTables reports whether bbolt has written nothing from one commit to the other.
func (i image) sameTables(other image) bool {
	metas := 2 * os.Getpagesize()
	return bytes.Equal(i.content[:metas], other.content[:metas])
}

// traffic are the ways in which a file changes from one commit to the next.
var traffic = map[string]func(s *store.Store, round int){
	"one lock": func(s *store.Store, _ int) { // all of it is in one page
		s.Keys.Put("k", schema.Key{Key: "k", Fence: s.Next()})
	},
	"some locks of many": func(s *store.Store, round int) { // the number of rows stays the same
		for i := range 400 {
			key := fmt.Sprintf("lock/%03d", i)
			if round == 0 || i%97 == round {
				s.Keys.Put(key, schema.Key{Key: key, LockIndex: uint64(round), Fence: s.Next()})
			}
		}
	},
	"many locks of more": func(s *store.Store, round int) { // the log is full again and again
		for i := range 400 {
			key := fmt.Sprintf("lock/%03d", i)
			if round == 0 || i*7919%400%41 == round {
				value := bytes.Repeat([]byte{byte(round)}, 500)
				s.Keys.Put(key, schema.Key{Key: key, Value: value, Fence: s.Next()})
			}
		}
	},
	"new keys for old ones": func(s *store.Store, round int) {
		for i := range 60 {
			n := i*7 + round*60
			key, gone := fmt.Sprintf("user/%03d", n%211), fmt.Sprintf("user/%03d", (n+100)%211)
			s.Keys.Put(key, schema.Key{Key: key, Value: bytes.Repeat([]byte{1}, 50)})
			if s.Keys.Newest(gone) != nil {
				s.Keys.Delete(gone)
			}
		}
	},
}

// Ensure that a page is not taken for the last state if the disk lost every later write of it, so
// that it is whole and sound as an older commit wrote it. If the newest record of the log is lost,
// the state before it is read.
func TestDamage_LostWrite(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := images(t, 40, fn, nil)
			for end := 12; end <= len(list); end += 9 * min(step(), 3) {
				loseWrites(t, list[:end])
			}
		})
	}
}

func loseWrites(t *testing.T, list []image) {
	t.Helper()
	last := list[len(list)-1]
	allowed := last.after(list[len(list)-2])
	b := newBench(t, last.content)
	tried := 0
	for i := 0; i < len(list)-1; i += min(step(), 6) {
		older := list[i]
		for page := 2; page < min(len(older.content)/b.page, b.pages()); page++ {
			lost := older.content[page*b.page : (page+1)*b.page]
			if !bytes.Equal(lost, b.at(page)) {
				tried++
				b.damaged(fmt.Sprintf("page %d of commit %d", page, i), page*b.page, lost,
					allowed...)
			}
		}
	}
	if b.refused < tried/4 || b.refused == 0 {
		t.Errorf("refused %d times of %d", b.refused, tried)
	}
}

// Ensure that a commit is not taken for the last state, nor for the state before, if the disk has
// lost some of its writes but not the write of the meta page.
func TestDamage_LostCommit(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := images(t, 40, fn, nil)
			refused := 0
			for i, last := range list[1:] {
				if older := list[i]; !older.sameTables(last) {
					refused += loseCommit(t, older, last)
				}
			}
			if refused == 0 {
				t.Error("never refused")
			}
		})
	}
}

func loseCommit(t *testing.T, older, last image) (refused int) {
	t.Helper()
	b := newBench(t, last.content)
	random := rand.New(rand.NewPCG(8, last.state.index))
	for round := range 40 / step() {
		mixed := bytes.Clone(last.content)
		for page := 2; page < min(len(older.content)/b.page, b.pages()); page++ {
			if round == 0 || random.IntN(2) == 0 { // all of them in one round
				start, end := page*b.page, (page+1)*b.page
				copy(mixed[start:end], older.content[start:end])
			}
		}
		b.damaged(fmt.Sprintf("index %d, round %d", last.state.index, round), 0, mixed,
			last.after(older)...)
	}
	return b.refused
}

// Ensure that a file with a damaged newest meta page, whose older meta page is read then, has all
// later commits to the log, or is refused. Only the commit of the damaged page may be missing, if
// it was one of bbolt's. Meanwhile the log fills again and again, and is made anew.
func TestDamage_NewestMetaPage(t *testing.T) {
	w := newWide(t, 300)
	page, grown, seen := os.Getpagesize(), 0, map[string]int{}
	path, before := newPath(t), logOf(t, w.path)
	last := image{state: dump(w.Store), records: before.Records()}
	for round := range 200 {
		w.must(write(w.Store, func() {
			for i := range 60 {
				w.put(fmt.Sprintf("%d/%d", round, i), w.random.IntN(20))
			}
			if w.random.IntN(4) == 0 { // lets the lanes fill unevenly
				w.put(w.anyKey(), 3000+w.random.IntN(3000))
			}
		}))
		if step() > 1 && round%8 > 2 {
			continue
		}
		content, err := os.ReadFile(w.path)
		w.must(err)
		state := logOf(t, w.path)
		now := image{bytes.Clone(content), dump(w.Store), state.Records()}
		if step() > 1 && round%8 == 0 { // what was before it is not known
			last = now
			continue
		}
		if state.Segments != before.Segments {
			before, grown = state, grown+1
		}
		meta := newestMeta(content, page)
		sum := content[meta+56 : meta+metaSize]
		other := binary.NativeEndian.Uint64(sum) + 1 + w.random.Uint64N(1<<60)
		binary.NativeEndian.PutUint64(sum, other)
		w.must(os.WriteFile(path, content, 0o600))
		got, err := openStore(path)
		switch {
		case errors.Is(err, store.ErrCorrupt):
			seen["refused"]++
		case err != nil:
			t.Fatal(err)
		case got == now.state:
			seen["as it was"]++
		case got == last.state && now.records == last.records:
			seen["the one before"]++
		default:
			t.Fatalf("round %d: got index %d, want %d", round, got.index, now.state.index)
		}
		last = now
	}
	w.must(w.Close())
	t.Log(seen, grown)
	if seen["as it was"] == 0 || seen["refused"] == 0 && step() == 1 || grown < 2 {
		t.Errorf("%v, made %d times", seen, grown)
	}
}
