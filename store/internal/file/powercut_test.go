package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// sector is the unit that a disk writes whole or not at all.
const sector = 512

// Ensure that a power cut at any point leaves the last commit or the one before, whole, and a file
// that can be written to, with power cuts in that too. While a record or the pages of a commit are
// written, any of their sectors may be on disk. The meta page is written when all pages are on
// disk, and may be cut at any byte. Some sectors are a commit only if its whole record is among
// them.
func TestPowerCut(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stages := &stages{t: t, path: newPath(t)}
			images(t, 40, fn, stages.add)
			records, list := 0, stages.list
			for i, next := range list[1:] {
				c := &powerCut{t: t, before: list[i], after: next, rounds: 20 / min(step(), 10)}
				use := revive
				if i%min(step(), 4) > 0 {
					use = leave
				}
				c.cutPages(use)
				if next.sameTables(list[i]) {
					records++
				} else {
					c.cutMeta()
				}
			}
			if records < 5 || len(list)-records < 5 {
				t.Errorf("%d records, and %d commits of bbolt's", records, len(list)-1-records)
			}
		})
	}
}

// stages are the contents of a file on disk, in order.
type stages struct {
	t    *testing.T
	path string // of copies
	list []image
}

// add adds a content, with the state that is in it, unless it equals the last one.
func (s *stages) add(content []byte) {
	s.t.Helper()
	if n := len(s.list); n > 0 && bytes.Equal(content, s.list[n-1].content) {
		return
	}
	if err := os.WriteFile(s.path, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	state, err := openStore(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.list = append(s.list, image{content: content, state: state})
}

// powerCut is a cut between two stages.
type powerCut struct {
	t             *testing.T
	before, after image
	rounds        int
}

// cutPages puts any sectors on disk, except those of the meta pages. It passes the content that is
// left to use, if it has changed.
func (c *powerCut) cutPages(use func(t *testing.T, content []byte)) {
	c.t.Helper()
	// A file that grows gets its new length first.
	grown := make([]byte, max(len(c.before.content), len(c.after.content)))
	copy(grown, c.before.content)
	b := newBench(c.t, grown)
	metas := 2 * b.page
	allowed := []whole{c.before.state}
	if c.after.sameTables(c.before) {
		allowed = append(allowed, c.after.state)
	}
	random := rand.New(rand.NewPCG(5, c.after.state.index))
	for round := range c.rounds {
		mixed := bytes.Clone(grown)
		for at := metas; at < len(mixed); at += sector {
			if random.IntN(4) < round%5 { // from none of them to all
				copy(mixed[at:at+sector], c.after.content[at:])
			}
		}
		b.damaged(fmt.Sprintf("pages of index %d, round %d", c.after.state.index, round), metas,
			mixed[metas:], allowed...)
		if round == 1 && !bytes.Equal(mixed, grown) {
			use(c.t, mixed)
		}
	}
	c.check(b)
}

// cutMeta puts all pages on disk, and a part of the meta page.
func (c *powerCut) cutMeta() {
	c.t.Helper()
	page := os.Getpagesize()
	b := newBench(c.t, append(bytes.Clone(c.before.content[:2*page]), c.after.content[2*page:]...))
	for cut := 0; cut <= headSize+metaSize; cut += min(step(), 8) {
		for _, start := range []int{0, page} { // the page that was not written is the same in both
			end := start + headSize + metaSize
			if flips(b.intact[start+cut:end], c.after.content[start+cut:end]) == 1 {
				continue // it is taken for damage to one bit, which a cut never leaves in a sector
			}
			b.damaged(fmt.Sprintf("meta page of index %d, cut at %d", c.after.state.index, cut),
				start, c.after.content[start:start+cut], c.before.state, c.after.state)
		}
	}
	c.check(b)
}

// check ends the cuts of a bench, and removes its file: there are hundreds of them.
func (c *powerCut) check(b *bench) {
	c.t.Helper()
	if b.refused > 0 {
		c.t.Errorf("after the commit of index %d: refused %d times, read %d times",
			c.after.state.index, b.refused, b.read)
	}
	if err := os.Remove(b.path); err != nil {
		c.t.Error(err)
	}
}

// leave does nothing with what a power cut has left.
func leave(*testing.T, []byte) {}

// revive opens what a power cut has left and commits to it, with power cuts in that.
func revive(t *testing.T, content []byte) {
	t.Helper()
	path, stages := newPath(t), &stages{t: t, path: newPath(t)}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	stages.add(content)
	s := store.New()
	hooks := store.Hooks{Synced: func() error {
		content, err := os.ReadFile(path)
		stages.add(content)
		return err
	}}
	err := s.Open(path, store.Options{NoSync: true, Hooks: hooks})
	for i := 0; i < 3 && err == nil; i++ {
		err = write(s, func() {
			s.Marks.Put("revived", schema.Mark{Name: "revived", Index: s.Next()})
		})
	}
	want := dump(s)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Errorf("after commits to what was left: got index %d, %v, want %d", got.index, err,
			want.index)
	}
	if err := errors.Join(os.Remove(path), os.Remove(stages.path)); err != nil {
		t.Fatal(err)
	}
	for i, after := range stages.list[1:] {
		c := &powerCut{t: t, before: stages.list[i], after: after, rounds: 4}
		c.cutPages(leave)
	}
}

// flips returns the number of bits in which the two differ.
func flips(a, b []byte) (count int) {
	for i := range a {
		count += bits.OnesCount8(a[i] ^ b[i])
	}
	return count
}
