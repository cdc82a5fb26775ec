package main

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/internal/hook"
)

// inBusyProgram measures durable writes while other goroutines spin on every core: group commit
// lets the goroutines run first that were just answered, and must not wait for those that spin.
func inBusyProgram(b *bench) error {
	const most = 512
	keys := keysOf(b.size(most*ownKeys, most*ownKeys))
	paced, err := openOurs(b.file("paced.db"), nil, keys)
	if err != nil {
		return err
	}
	defer paced.Close()
	hasty, err := openOurs(b.file("unpaced.db"), unpaced(), keys)
	if err != nil {
		return err
	}
	defer hasty.Close()

	for _, workers := range []int{1, 64, most} {
		back := func() {}
		if workers == most {
			back = b.roundsOnDisk(b.onDisk * 3 / 2) // of a few commits
		}
		err := b.besideSpinning(
			fmt.Sprintf("durable pairs, goroutines: %d; times as fast", workers),
			b.crowd("lockd", workers, keys, paced.pairOf),
			b.crowd("unpaced", workers, keys, hasty.pairOf))
		back()
		if err != nil {
			return err
		}
	}
	if !b.extras() {
		return nil
	}
	whole := keys[:len(keys)/chunk*chunk]
	n := 0
	fill := func(db *ours) func(some []string) error {
		return func(some []string) error {
			n++ // each turn through the keys has another value
			return db.fill(some, strconv.AppendInt(nil, int64(n), 10))
		}
	}
	return errors.Join(
		b.besideSpinning("durable Updates with 1,000 operations; times as fast",
			updates("lockd", &b.onDisk, whole, fill(paced)),
			updates("unpaced", &b.onDisk, whole, fill(hasty))),
		b.latencyBesideSpinning(paced, hasty, keys),
		b.handOffsBesideSpinning(1000),
		b.handOffsBesideSpinning(manyWaiters),
		b.endsBesideSpinning(),
		b.manyKeysBesideSpinning())
}

// unpaced is the options with which group commit waits for nobody.
func unpaced() *lockd.Options { return &lockd.Options{Clock: hastened(clock.New())} }

// hastened is the clock c, on which group commit waits for nobody.
func hastened(c clock.Clock) clock.Clock { return &hook.Clock{Clock: c, Unpaced: true} }

// besideSpinning compares lockd with one whose group commit waits for nobody, in a busy program.
func (b *bench) besideSpinning(what string, paced, unpaced measure.Trial) error {
	figures, err := b.inTurn(spinning(paced), spinning(unpaced))
	if err != nil {
		return err
	}
	b.add(faster("busy", what, measure.AtLeast(0.8), figures[0].Wall, "lockd that waits for nobody",
		figures[1].Wall))
	return nil
}

// latencyBesideSpinning is about single calls in a crowd, and about lone ends of sessions.
func (b *bench) latencyBesideSpinning(paced, unpaced *ours, keys []string) error {
	const workers = 64
	crowded := func(db *ours) measure.Trial {
		return db.probed(b.crowd("crowd", workers, keys, db.pairOf))
	}
	due := func(db *ours) measure.Trial {
		return measure.Trial{Name: "due", Run: func() (measure.Cost, error) {
			late, err := db.lateEnds()
			return measure.Cost{Operations: 1, Wall: time.Duration(late.Median())}, err
		}}
	}
	err := b.besideSpinning("p99 of a durable TryLock under 64 writers; times as fast",
		crowded(paced), crowded(unpaced))
	if err != nil {
		return err
	}
	return b.besideSpinning(
		fmt.Sprintf("median of %d TTLs that are due, durable; times as fast", dueSessions),
		due(paced), due(unpaced))
}

func (b *bench) handOffsBesideSpinning(waiters int) error {
	const served = 300 // so that one time slice of 10 ms is not most of a round
	var trials [2]measure.Trial
	for i, opts := range []*lockd.Options{nil, unpaced()} {
		q, err := newQueue(b.file(fmt.Sprintf("queue%d-%d.db", waiters, i)), opts)
		if err != nil {
			return err
		}
		defer q.db.Close()
		trials[i] = measure.Trial{Name: "hand-offs", Run: func() (measure.Cost, error) {
			return q.serve(waiters, served)
		}}
	}
	return b.besideSpinning("durable hand-offs, "+count(waiters)+" waiters; times as fast",
		trials[0], trials[1])
}

func (b *bench) endsBesideSpinning() error {
	const total = 10_000
	ends := func(name string, on func(mock *clock.Mock) clock.Clock) measure.Trial {
		round := 0
		return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
			round++
			cost, _, err := expireAll(b.file(fmt.Sprintf("%s%d.db", name, round)), total, on)
			return cost, err
		}}
	}
	return b.besideSpinning(
		"ends of "+count(total)+" sessions with a key each, durable; times as fast",
		ends("lockd", plain),
		ends("unpaced", func(mock *clock.Mock) clock.Clock { return hastened(mock) }))
}

// manyKeysBesideSpinning is about a crowd whose keys are spread over the file, and one whose keys
// come and go.
func (b *bench) manyKeysBesideSpinning() error {
	const workers = 64
	keys := keysOf(b.size(1_000_000, 25_000))
	var kept, fresh [2]measure.Trial
	for i, opts := range []*lockd.Options{nil, unpaced()} {
		db, err := openOurs(b.file(fmt.Sprintf("many%d.db", i)), opts, keys)
		if err != nil {
			return err
		}
		defer db.Close()
		gone := &lockd.LockOptions{Key: lockd.RemoveAfter}
		kept[i] = b.crowd("many keys", workers, keys, db.pairOf)
		fresh[i] = b.crowd("new keys", workers, keys, func(_ int, key string) error {
			lock, err := db.session.TryLock("new-"+key, gone)
			if err == nil {
				err = lock.Unlock()
			}
			return err
		})
	}
	const times = ", goroutines: 64; times as fast"
	return errors.Join(
		b.besideSpinning("durable pairs, "+count(len(keys))+" keys"+times, kept[0], kept[1]),
		b.besideSpinning("durable pairs, new keys, RemoveAfter"+times, fresh[0], fresh[1]))
}

// spinning is the trial in a busy program. Nothing spins between the rounds.
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
