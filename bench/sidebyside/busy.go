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
// lets those run first who were just answered, and must not wait there for those who spin.
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

	for _, workers := range []int{1, 64, most} {
		if workers == most {
			defer b.roundsOnDisk(b.onDisk * 3 / 2)() // of a few commits
		}
		figures, err := b.inTurn(
			spinning(b.crowd("lockd", workers, keys, paced.pairOf)),
			spinning(b.crowd("lockd that waits for nobody", workers, keys, unpaced.pairOf)))
		if err != nil {
			return err
		}
		b.add(faster("busy", fmt.Sprintf("durable pairs, goroutines: %d; times as fast", workers),
			measure.AtLeast(0.8), figures[0].Wall, "lockd that waits for nobody", figures[1].Wall))
	}
	return nil
}

// spinning is the trial in a busy program. What is between the rounds is not kept waiting.
func spinning(trial measure.Trial) measure.Trial {
	return measure.Trial{Name: trial.Name, Run: func() (measure.Cost, error) {
		stop := spin()
		defer stop()
		return trial.Run()
	}}
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
