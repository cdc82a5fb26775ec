package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lockd/lockd/store"
)

// image is a file as a commit left it.
type image struct {
	content []byte
	state   whole
}

// images returns the file after each of so many commits; fn writes what one of them has.
func images(t *testing.T, commits int, fn func(s *store.Store, round int)) []image {
	t.Helper()
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{Sync: store.SyncNever}); err != nil {
		t.Fatal(err)
	}
	var list []image
	for round := range commits {
		if err := write(s, func() { fn(s, round) }); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, image{content, dump(s)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return list
}

// traffic are the ways in which a file changes from one commit to the next.
var traffic = map[string]func(s *store.Store, round int){
	"one lock": func(s *store.Store, _ int) { // all of it is in one page
		s.Keys.Put("k", store.Key{Key: "k", Fence: s.Next()})
	},
	"some locks of many": func(s *store.Store, round int) { // the number of rows stays the same
		for i := range 400 {
			key := fmt.Sprintf("lock/%03d", i)
			if round == 0 || i%97 == round {
				s.Keys.Put(key, store.Key{Key: key, LockIndex: uint64(round), Fence: s.Next()})
			}
		}
	},
	"many locks of more": func(s *store.Store, round int) { // they go to the log, and from it
		for i := range 400 {
			key := fmt.Sprintf("lock/%03d", i)
			if round == 0 || i*7919%400%13 == round {
				value := bytes.Repeat([]byte{byte(round)}, 900)
				s.Keys.Put(key, store.Key{Key: key, Value: value, Fence: s.Next()})
			}
		}
	},
	"new keys for old ones": func(s *store.Store, round int) {
		for i := range 60 {
			n := i*7 + round*60
			key, gone := fmt.Sprintf("user/%03d", n%211), fmt.Sprintf("user/%03d", (n+100)%211)
			s.Keys.Put(key, store.Key{Key: key, Value: bytes.Repeat([]byte{1}, 50)})
			if s.Keys.Newest(gone) != nil {
				s.Keys.Delete(gone)
			}
		}
	},
}

// Ensure that a page which is as an older commit wrote it in the same place, whole and sound,
// because the disk lost every later write of it, is not taken for the last state.
func TestDamage_LostWrite(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := images(t, 12, fn)
			last := list[len(list)-1]
			b := newBench(t, last.content)
			tried := 0
			for i, older := range list[:len(list)-1] {
				for page := 2; page < min(len(older.content)/b.page, b.pages()); page++ {
					lost := older.content[page*b.page : (page+1)*b.page]
					if !bytes.Equal(lost, b.at(page)) {
						tried++
						b.damaged(fmt.Sprintf("page %d of commit %d", page, i), page*b.page, lost,
							last.state)
					}
				}
			}
			if b.refused < tried/4 || b.refused == 0 {
				t.Errorf("refused %d times of %d", b.refused, tried)
			}
		})
	}
}

// Ensure that a commit of which the disk has lost some writes, and all the same done that of the
// meta page, is not taken for the last state, nor for the one before.
func TestDamage_LostCommit(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := images(t, 12, fn)
			last, older := list[len(list)-1], list[len(list)-2]
			b := newBench(t, last.content)
			random := rand.New(rand.NewPCG(8, 9))
			for round := range 200 / step() {
				mixed := bytes.Clone(last.content)
				for page := 2; page < min(len(older.content)/b.page, b.pages()); page++ {
					if round == 0 || random.IntN(2) == 0 { // once all of them
						start, end := page*b.page, (page+1)*b.page
						copy(mixed[start:end], older.content[start:end])
					}
				}
				b.damaged(fmt.Sprintf("round %d", round), 0, mixed, last.state)
			}
			if b.refused == 0 {
				t.Error("never refused")
			}
		})
	}
}
