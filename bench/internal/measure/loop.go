package measure

import (
	"sync"
	"sync/atomic"
	"time"
)

// Loop calls op again and again on this goroutine, for about as long as the window, and returns
// what the operations took. Each call of op does as many as chunk says, numbered from the first.
// It ends with op's first error.
func Loop(window time.Duration, chunk int, op func(first, count int) error) (Cost, error) {
	operations := 0
	watch := Start()
	for {
		if err := op(operations, chunk); err != nil {
			return Cost{}, err
		}
		operations += chunk
		if time.Since(watch.wall) >= window {
			return watch.Stop(operations), nil
		}
	}
}

// Crowd lets that many workers call op again and again, each on a goroutine of its own and with its
// own count of calls, for about as long as the window, and once at least. It returns what all
// operations together took, from the start of the first worker to the end of the last one, or an
// error of op's.
func Crowd(window time.Duration, workers int, op func(worker, i int) error) (Cost, error) {
	var stop atomic.Bool
	var failure atomic.Pointer[error]
	var operations atomic.Int64
	var running sync.WaitGroup
	timer := time.AfterFunc(window, func() { stop.Store(true) })
	defer timer.Stop()
	watch := Start()
	for worker := range workers {
		running.Go(func() {
			done := 0
			defer func() { operations.Add(int64(done)) }()
			for done == 0 || !stop.Load() {
				if err := op(worker, done); err != nil {
					failure.CompareAndSwap(nil, &err)
					stop.Store(true)
					return
				}
				done++
			}
		})
	}
	running.Wait()
	cost := watch.Stop(int(operations.Load()))
	if err := failure.Load(); err != nil {
		return Cost{}, *err
	}
	return cost, nil
}
