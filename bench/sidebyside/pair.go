package main

import (
	"sync"
	"testing"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
	"github.com/lockd/lockd/bench/internal/rival"
)

// manyKeys is how many keys a store has unless something else is said.
const manyKeys = 100_000

// pairInMemory is P1. At most two stores are alive at a time: more would make allocating stores
// slower than they are alone.
func pairInMemory(b *bench) error {
	keys := keysOf(b.size(manyKeys, manyKeys))
	db, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, measured := range []func(*bench, *ours, []string) error{
		pairBesideTree, pairBesideMemDB, pairBesideMutexes, pairBesideFlock,
	} {
		if err := measured(b, db, keys); err != nil {
			return err
		}
	}
	allocations := testing.AllocsPerRun(1000, func() { err = db.pair(keys[0]) })
	b.add(report.Row{Target: "P1", What: "allocations of a pair",
		Figure: measure.Series{allocations}, Unit: report.Count})
	return err
}

func pairBesideTree(b *bench, db *ours, keys []string) error {
	tree := rival.NewTree(keys)
	b.setting(rival.TreeSettings())
	figures, err := b.inTurn(
		b.loop("lockd", keys, db.pair),
		b.loop("btree", keys, func(key string) error { tree.Pair(key); return nil }))
	if err != nil {
		return err
	}
	b.add(slower("P1", "pair in memory, 1 goroutine, "+count(len(keys))+" keys", measure.AtMost(2),
		figures[0].Wall, "raw btree, two sets", figures[1].Wall))
	return nil
}

func pairBesideMemDB(b *bench, db *ours, keys []string) error {
	mem, err := rival.NewMemDB(keys)
	if err != nil {
		return err
	}
	b.setting(rival.MemDBSettings())
	figures, err := b.inTurn(
		b.loop("lockd", keys, db.pair), b.loop("go-memdb", keys, mem.Pair))
	if err != nil {
		return err
	}
	b.add(faster("P1", "the same: times as fast", measure.AtLeast(10),
		figures[0].Wall, "go-memdb, two writes", figures[1].Wall))
	return nil
}

// pairBesideMutexes shows the cost of locks that are nothing but locks.
func pairBesideMutexes(b *bench, db *ours, keys []string) error {
	mutexes, moby := rival.NewMutexes[sync.Mutex](keys), rival.NewMoby()
	b.setting(mutexes.Settings())
	b.setting(rival.MobySettings())
	figures, err := b.inTurn(
		b.loop("lockd", keys, db.pair),
		b.loop("mutexes", keys, func(key string) error {
			lock := mutexes.Of(key)
			lock.Lock()
			defer lock.Unlock()
			return nil
		}),
		b.loop("moby/locker", keys, moby.Pair))
	if err != nil {
		return err
	}
	b.add(slower("P1", "the same", measure.Bound{}, figures[0].Wall,
		"sync.Mutex per key", figures[1].Wall))
	b.add(slower("P1", "the same", measure.Bound{}, figures[0].Wall,
		"moby/locker", figures[2].Wall))
	return nil
}

// pairBesideFlock has fewer keys, for each is a file.
func pairBesideFlock(b *bench, db *ours, keys []string) error {
	keys = keys[:chunk]
	files := rival.NewFlock(b.folder)
	b.setting(rival.FlockSettings())
	figures, err := b.inTurn(
		b.loop("lockd", keys, db.pair), b.loop("flock", keys, files.Pair))
	if err != nil {
		return err
	}
	b.add(faster("P1", "the same, 1,000 keys: times as fast", measure.Bound{},
		figures[0].Wall, "gofrs/flock", figures[1].Wall))
	return nil
}
