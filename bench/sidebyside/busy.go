package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/internal/hook"
)

// inBusyProgram measures durable writes while other goroutines spin on every core: group commit
// yields to those who may join, and must not wait there for those who spin.
func inBusyProgram(b *bench) error {
	const most = 512
	keys := keysOf(b.size(most*ownKeys, most*ownKeys))
	paced, err := openOurs(b.file("paced.db"), nil, keys)
	if err != nil {
		return err
	}
	defer paced.Close()
	unpaced, err := openOurs(b.file("unpaced.db"),
		&lockd.Options{Clock: hook.Unpaced{Clock: clock.New()}}, keys)
	if err != nil {
		return err
	}
	defer unpaced.Close()

	stop := spin()
	defer stop()
	compare := func(what string, trial func(db *ours) measure.Trial) error {
		figures, err := b.inTurn(trial(paced), trial(unpaced))
		if err != nil {
			return err
		}
		b.add(faster("busy", what, measure.AtLeast(0.8), figures[0].Wall,
			"lockd without yields", figures[1].Wall))
		return nil
	}
	for _, workers := range []int{1, 64, most} {
		err := compare(fmt.Sprintf("durable pairs, goroutines: %d", workers),
			func(db *ours) measure.Trial { return b.crowd("pairs", workers, keys, db.pairOf) })
		if err != nil {
			return err
		}
	}
	n := 0
	return compare("an operation of a durable Update with 1,000", func(db *ours) measure.Trial {
		return updates("Update", b.onDisk, keys[:len(keys)/chunk*chunk], func(some []string) error {
			n++
			return db.fill(some, fmt.Append(nil, n))
		})
	})
}

// spin keeps every core busy until stop is called.
func spin() (stop func()) {
	var over atomic.Bool
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for !over.Load() {
			}
		})
	}
	return func() {
		over.Store(true)
		running.Wait()
	}
}
