package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
)

// longRun is P10. Each of its two runs happens once: it compares the end of the run with its
// beginning.
func longRun(b *bench) error {
	pairs := b.size(1_000_000, 200_000)
	// The keys are in random order. Goroutines that begin together drift apart, and neighbouring
	// keys lie on fewer pages: in order, the first tenth would have less to write than the last.
	few := keysOf(1000)
	err := runLong(b, pairs, "1,000 keys", few, func(worker, i int) (string, *lockd.LockOptions) {
		own := (len(few) - worker + longWorkers - 1) / longWorkers
		return few[worker+i%own*longWorkers], nil
	})
	if err != nil {
		return err
	}
	return runLong(b, pairs, "as many keys, RemoveAfter", nil,
		func(worker, i int) (string, *lockd.LockOptions) {
			// An odd factor takes each number to another one of as many bits, so no key comes
			// twice.
			key := fmt.Sprintf("users-%010d", uint32(worker+i*longWorkers)*2_654_435_761)
			return key, &lockd.LockOptions{Key: lockd.RemoveAfter}
		})
}

const (
	longWorkers = 64
	tenths      = 10
	parts       = 5 // of a tenth: the rounds of this comparison
)

// runLong does durable pairs, and compares the parts of the last tenth with those of the first.
// next gives the key of a worker's next pair, which no other worker may be using.
func runLong(
	b *bench, pairs int, what string, keys []string,
	next func(worker, i int) (string, *lockd.LockOptions),
) error {
	db, err := openOurs(b.file(what+".db"), nil, keys)
	if err != nil {
		return err
	}
	ends, err := sliceEnds(db, pairs, next)
	size, sizeErr := fileSize(db.path)
	if err := errors.Join(err, sizeErr, db.Close()); err != nil {
		return err
	}
	took := func(slice int) float64 {
		return float64(ends[slice+1]-ends[slice]) * tenths * parts / float64(pairs)
	}
	var first, last measure.Series
	for i := range parts {
		first = append(first, took(i))
		last = append(last, took((tenths-1)*parts+i))
	}
	text := count(pairs) + " durable pairs, 64 goroutines, " + what
	b.add(report.Row{Target: "P10", What: text + ": file", Unit: report.Bytes,
		Figure: measure.Series{size}, Bound: measure.AtMost(16e6)})
	b.add(faster("P10", text+": speed of the last tenth", measure.AtLeast(0.8), last,
		"the first tenth", first))
	return nil
}

// sliceEnds returns when each slice of the pairs was done, the beginning first. All workers go on
// until all pairs are begun: with shares of their own, the workers that are done first would leave
// smaller batches to the rest, and the end would look slower than it is.
func sliceEnds(
	db *ours, pairs int, next func(worker, i int) (string, *lockd.LockOptions),
) ([]time.Duration, error) {
	ends := make([]time.Duration, tenths*parts+1)
	slice := pairs / (tenths * parts)
	var begun, done atomic.Int64
	start := time.Now()
	err := spread(longWorkers, longWorkers, func(worker int) error {
		for i := 0; begun.Add(1) <= int64(pairs); i++ {
			key, opts := next(worker, i)
			lock, err := db.session.TryLock(key, opts)
			if err == nil {
				err = lock.Unlock()
			}
			if err != nil {
				return err
			}
			if n := int(done.Add(1)); n%slice == 0 {
				ends[n/slice] = time.Since(start)
			}
		}
		return nil
	})
	return ends, err
}
