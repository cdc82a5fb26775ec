package store_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lockd/lockd/store"
)

// anyLogSizes returns segments of any sizes, which grow by any factor.
func anyLogSizes(random *rand.Rand) store.LogSizes {
	first := 8 << 10 << random.IntN(3)
	least := first << random.IntN(5)
	return store.LogSizes{
		First: first, Least: least, Row: 1 << random.IntN(10), Most: least << random.IntN(4),
	}
}

// Ensure that a file has what was committed, however large the segments of its log are and the
// commits, while its rows become more and fewer, and so its segments.
func TestLog_G2_OfAnySize(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	logged, grown := 0, 0
	for range 24 / min(step(), 3) {
		sizes := anyLogSizes(random)
		restore := store.SetLogSizes(sizes)
		w := newWide(t, 30<<random.IntN(5))
		var rows int // of a commit, at the most
		var before store.LogState
		for round := range 80 {
			if round == 0 || random.IntN(12) == 0 {
				rows = 1 + sizes.Least>>random.IntN(8)/300
			}
			switch random.IntN(20) {
			case 0:
				w.keys = max(10, w.keys/2)
			case 1:
				w.keys = min(4000, w.keys*2)
			case 2:
				w.must(w.Close())
				w.open()
			}
			w.must(write(w.Store, func() { w.change(1 + random.IntN(rows)) }))
			if round%4 > 0 {
				continue
			}
			path := w.copied()
			want := dump(w.Store)
			if got, err := openStore(path); err != nil || got != want {
				t.Fatalf("%+v: round %d: got index %d, %v, want %d", sizes, round, got.index, err,
					want.index)
			}
			now := readLog(t, path)
			if now.Next > before.Next {
				logged++
			}
			if before.Segments > 0 && now.Segments > before.Segments {
				grown++
			}
			before = now
		}
		w.must(w.Close())
		restore()
	}
	t.Logf("%d times there was a record, %d times a larger segment", logged, grown)
	if logged < 20 || grown < 1 {
		t.Error("this was not tried")
	}
}
