package main

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/rival"
)

// growth is P11: what a pair costs with few keys and with many. The stores of one comparison are
// alive together, those of different comparisons are not.
func growth(b *bench) error {
	sizes := []int{1000, 100_000, 1_000_000}
	if b.effort != full {
		sizes = []int{1000, b.size(0, 25_000)}
	}
	for _, measured := range []func(*bench, []int) error{
		growInMemory, growBesideTree, growOnDisk,
	} {
		if err := measured(b, sizes); err != nil {
			return err
		}
	}
	return nil
}

// atLast returns the target, which is only for the largest size: sizes between are only shown.
func atLast(sizes []int, n int, limit float64) measure.Bound {
	if n < len(sizes)-1 {
		return measure.Bound{}
	}
	return measure.AtMost(limit)
}

// growInMemory is about keys that are used in order, and a hot thousand of them.
func growInMemory(b *bench, sizes []int) error {
	var inOrder, hot []measure.Trial
	for _, size := range sizes {
		keys := orderedKeys(size)
		db, err := openOurs("", nil, keys)
		if err != nil {
			return err
		}
		defer db.Close()
		inOrder = append(inOrder, b.loop(fmt.Sprintf("in order, %d keys", size), keys, db.pair))
		hot = append(hot, b.loop(fmt.Sprintf("hot, %d keys", size), keysOf(size)[:chunk], db.pair))
	}
	figures, err := b.inTurn(append(inOrder, hot...)...)
	if err != nil {
		return err
	}
	last := len(sizes) - 1
	for i, what := range []string{"keys in order", "a hot thousand keys"} {
		of := figures[i*len(sizes):]
		for n := 1; n <= last; n++ {
			b.add(slower("P11",
				fmt.Sprintf("pair in memory, %s of %s, to 1,000", what, count(sizes[n])),
				atLast(sizes, n, 2), of[n].Wall, "lockd, 1,000 keys", of[0].Wall))
		}
	}
	return nil
}

// growBesideTree is about keys that are used at random.
func growBesideTree(b *bench, sizes []int) error {
	var trials []measure.Trial
	for _, size := range sizes {
		keys := keysOf(size)
		db, err := openOurs("", nil, keys)
		if err != nil {
			return err
		}
		defer db.Close()
		tree := rival.NewTree(keys)
		trials = append(trials,
			b.loop(fmt.Sprintf("lockd, %d keys", size), keys, db.pair),
			b.loop(fmt.Sprintf("btree, %d keys", size), keys,
				func(key string) error { tree.Pair(key); return nil }))
	}
	b.setting(rival.TreeSettings())
	figures, err := b.inTurn(trials...)
	if err != nil {
		return err
	}
	const tree = "raw btree, two sets"
	few, last := figures[:2], len(sizes)-1
	for n := 1; n <= last; n++ {
		many := figures[2*n:]
		row := slower("P11", "growth of a pair at random, "+count(sizes[n])+" keys to 1,000",
			atLast(sizes, n, 1), many[0].Wall.Over(few[0].Wall), tree,
			many[1].Wall.Over(few[1].Wall))
		row.Ours, row.Theirs = nil, nil
		b.add(row)
	}
	asked := measure.Bound{}
	if b.effort == full { // with a million keys
		asked = measure.AtMost(1)
	}
	b.add(slower("P11", "pair in memory at random, "+count(sizes[last])+" keys", asked,
		figures[2*last].Wall, tree, figures[2*last+1].Wall))
	return nil
}

// growOnDisk compares growth with the growth of bbolt's own Update of the same rows: of one row for
// a goroutine alone, and of as many rows as a crowd has goroutines.
func growOnDisk(b *bench, sizes []int) error {
	const crowd = 64
	defer b.roundsOnDisk(b.onDisk / 2 / diskSlices)() // there are more trials than elsewhere
	var trials []measure.Trial
	for i, size := range sizes {
		keys := keysOf(size - size%crowd)
		db, err := openOurs(b.file(fmt.Sprintf("lockd%d.db", i)), nil, keys)
		if err != nil {
			return err
		}
		defer db.Close()
		bolt, err := rival.OpenBolt(b.file(fmt.Sprintf("bolt%d.db", i)), keys)
		if err != nil {
			return err
		}
		defer bolt.Close()
		alone := func(_ int, key string) error { return bolt.Pair(key) }
		trials = append(trials,
			b.crowd(fmt.Sprintf("lockd, %d keys", size), 1, keys, db.pairOf),
			b.crowd(fmt.Sprintf("bbolt, %d keys", size), 1, keys, alone),
			b.crowd(fmt.Sprintf("lockd, %d keys, %d goroutines", size, crowd), crowd, keys,
				db.pairOf),
			b.rowsAtOnce(fmt.Sprintf("bbolt, %d keys, %d rows", size, crowd), bolt, keys, crowd))
	}
	b.setting(rival.BoltSettings())
	figures, err := b.inSlices(diskSlices, trials...)
	if err != nil {
		return err
	}
	const each = 4 // trials of a size
	for i, who := range []string{"1 goroutine", "64 goroutines"} {
		few := figures[2*i:]
		for n := 1; n < len(sizes); n++ {
			many := figures[each*n+2*i:]
			row := slower("P11",
				fmt.Sprintf("growth of a durable pair, %s, %s keys to 1,000", who, count(sizes[n])),
				atLast(sizes, n, 1), many[0].Wall.Over(few[0].Wall),
				"bbolt Update of the same rows", many[1].Wall.Over(few[1].Wall))
			row.Ours, row.Theirs = many[0].Wall, many[1].Wall
			b.add(row)
		}
	}
	return nil
}

// rowsAtOnce is a trial of bbolt transactions that each write some of the keys. Two transactions
// make as many pairs as they have keys.
func (b *bench) rowsAtOnce(
	name string, bolt *rival.Bolt, keys []string, rows int,
) measure.Trial {
	return chunks(name, &b.onDisk, keys, rows, func(some []string) error {
		return errors.Join(bolt.Write(some), bolt.Write(some))
	})
}
