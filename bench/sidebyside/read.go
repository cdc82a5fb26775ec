package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
	"github.com/lockd/lockd/bench/internal/rival"
)

// reads is P2.
func reads(b *bench) error {
	keys := keysOf(b.size(manyKeys, manyKeys))
	db, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	tree := rival.NewTree(keys)
	b.setting(rival.TreeSettings())
	treeGet := func(key string) error { tree.Get(key); return nil }

	figures, err := b.inTurn(
		b.loop("lockd", keys, db.get),
		b.loop("btree", keys, treeGet),
		b.onEveryCore("lockd on every core", keys, db.get),
		b.onEveryCore("btree on every core", keys, treeGet),
		withWriter(db, keys, b.loop("lockd with a writer", keys, db.get)))
	if err != nil {
		return err
	}
	const raw = "raw btree Get"
	b.add(slower("P2", "Get, "+count(len(keys))+" keys, alone", measure.AtMost(0.6),
		figures[0].Wall, raw, figures[1].Wall))
	b.add(slower("P2", "Get on every core", measure.AtMost(0.6),
		figures[2].Wall, raw, figures[3].Wall))
	b.add(slower("P2", "Get with one writer at full speed; the rival without one",
		measure.AtMost(0.6), figures[4].Wall, raw, figures[1].Wall))

	figures, err = b.inTurn(
		b.slowest("p99 without a writer", keys, db.get),
		withWriter(db, keys, b.slowest("p99 with a writer", keys, db.get)))
	if err != nil {
		return err
	}
	b.add(slower("P2", "p99 of Get, with a writer to without", measure.AtMost(2),
		figures[1].Wall, "lockd without a writer", figures[0].Wall))

	allocations := testing.AllocsPerRun(chunk, func() { err = db.get(keys[0]) })
	b.add(report.Row{Target: "P2", What: "allocations of a Get",
		Figure: measure.Series{allocations}, Unit: report.Count, Bound: measure.AtMost(0)})
	return err
}

// onEveryCore is a trial of as many goroutines as there are cores, each of which does op with all
// keys.
func (b *bench) onEveryCore(
	name string, keys []string, op func(key string) error,
) measure.Trial {
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		cores := runtime.GOMAXPROCS(0)
		cost, err := measure.Crowd(b.inRAM, cores, func(worker, i int) error {
			first := (worker*len(keys)/cores + i*chunk) / chunk * chunk % len(keys)
			for _, key := range keys[first : first+chunk] {
				if err := op(key); err != nil {
					return err
				}
			}
			return nil
		})
		cost.Operations *= chunk
		return cost, err
	}}
}

// slowest is a trial that measures each operation. Its cost is the 99th percentile.
func (b *bench) slowest(name string, keys []string, op func(key string) error) measure.Trial {
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		took := make(measure.Series, 0, 1<<20)
		_, err := measure.Loop(b.inRAM, 1, func(i, _ int) error {
			began := time.Now()
			err := op(keys[i%len(keys)])
			took = append(took, float64(time.Since(began)))
			return err
		})
		return measure.Cost{Operations: 1, Wall: time.Duration(took.Percentile(0.99))}, err
	}}
}

// withWriter is the trial beside a goroutine that does pairs as fast as it can.
func withWriter(db *ours, keys []string, trial measure.Trial) measure.Trial {
	return measure.Trial{Name: trial.Name, Run: func() (measure.Cost, error) {
		var stop atomic.Bool
		var running sync.WaitGroup
		var failure error
		running.Go(func() {
			for i := 0; !stop.Load() && failure == nil; i++ {
				failure = db.pair(keys[i%len(keys)])
			}
		})
		cost, err := trial.Run()
		stop.Store(true)
		running.Wait()
		if err == nil {
			err = failure
		}
		return cost, err
	}}
}
