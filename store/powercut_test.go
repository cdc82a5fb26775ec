package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sector is what a disk writes whole or not at all.
const sector = 512

// Ensure that a power cut leaves the last commit or the one before, whole, whatever it hits. While
// the pages of a commit are written, any of their sectors may be on disk and any not; its meta page
// is written when all of them are, and that may be cut at any byte.
func TestPowerCut(t *testing.T) {
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := images(t, 6, fn)
			for i, next := range list[1:] {
				cutPower(t, list[i], next)
			}
		})
	}
}

func cutPower(t *testing.T, before, after image) {
	t.Helper()
	// A file that grows has its new length first.
	grown := make([]byte, max(len(before.content), len(after.content)))
	copy(grown, before.content)
	b := newBench(t, grown)
	metas := 2 * b.page
	random := rand.New(rand.NewPCG(5, after.state.index))
	for round := range 60 / step() {
		pages := bytes.Clone(grown[metas:])
		for at := 0; at < len(pages); at += sector {
			if random.IntN(4) < round%5 { // from none of them to all
				copy(pages[at:at+sector], after.content[metas+at:])
			}
		}
		b.damaged(fmt.Sprintf("pages of index %d, round %d", after.state.index, round), metas,
			pages, before.state)
	}
	b.intact = append(bytes.Clone(grown[:metas]), after.content[metas:]...)
	overwrite(t, b.path, 0, string(b.intact))
	for cut := 0; cut <= headSize+metaSize; cut++ {
		for _, page := range []int{0, b.page} { // that of the commit before is the same in both
			b.damaged(fmt.Sprintf("meta page of index %d, cut at byte %d", after.state.index, cut),
				page, after.content[page:page+cut], before.state, after.state)
		}
	}
	if b.refused > 0 {
		t.Errorf("after the commit of index %d: refused %d times, read %d times", after.state.index,
			b.refused, b.read)
	}
}
