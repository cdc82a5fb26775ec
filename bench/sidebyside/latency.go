package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
)

// latency is P15.
func latency(b *bench) error {
	if err := tryLockInCrowd(b); err != nil {
		return err
	}
	return dueInTime(b)
}

// tryLockInCrowd measures single calls of one goroutine beside many others, in commits: how long
// one takes is known from their number.
func tryLockInCrowd(b *bench) error {
	const workers = 64
	// In a shorter round the slowest call of 100 is the slowest of all.
	defer b.roundsOnDisk(b.onDisk + 240*time.Millisecond)()
	keys := keysOf(workers * ownKeys)
	db, err := openOurs(b.file("lockd.db"), nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	var writes counter
	crowd := db.counting(&writes, b.crowd("lockd", workers, keys, db.pairOf))
	var p99, commit measure.Series
	_, err = b.inTurn(measure.Trial{Name: "TryLock", Run: func() (measure.Cost, error) {
		var took measure.Series
		var failure error
		var stop atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			for !stop.Load() && failure == nil {
				began := time.Now()
				lock, err := db.session.TryLock("probe", nil)
				took = append(took, float64(time.Since(began)))
				if err == nil {
					err = lock.Unlock()
				}
				failure = err
			}
		})
		cost, err := crowd.Run()
		stop.Store(true)
		running.Wait()
		if err != nil {
			return cost, err
		}
		p99 = append(p99, took.Percentile(0.99))
		commit = append(commit, float64(cost.Wall)/writes.commits[len(writes.commits)-1])
		return cost, failure
	}})
	if err != nil {
		return err
	}
	warmup := b.rounds.Warmup
	b.add(slower("P15", "p99 of a durable TryLock under 64 writers", measure.AtMost(3),
		p99[warmup:], "a commit", commit[warmup:]))
	return nil
}

// dueInTime measures how late sessions are told that their time is up.
func dueInTime(b *bench) error {
	total := b.size(manyKeys, 20_000)
	db, err := openOurs(b.file("sessions.db"), nil, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	err = spread(512, total, func(int) error {
		_, err := db.NewSession(&lockd.SessionOptions{TTL: time.Hour})
		return err
	})
	if err != nil {
		return err
	}
	var late, within, bare measure.Series
	_, err = b.inTurn(measure.Trial{Name: "due", Run: func() (measure.Cost, error) {
		writes, err := db.lonePuts()
		if err != nil {
			return measure.Cost{}, err
		}
		commit := writes.Median()
		timer := float64(latestTimer())
		most, err := db.latest()
		late = append(late, float64(most))
		within = append(within, commit+float64(time.Millisecond))
		bare = append(bare, commit+timer)
		return measure.Cost{Operations: 1, Wall: most}, err
	}})
	if err != nil {
		return err
	}
	warmup := b.rounds.Warmup
	what := fmt.Sprintf("latest of %d TTLs that are due, with %s sessions",
		dueSessions, count(total))
	b.add(slower("P15", what, measure.AtMost(1), late[warmup:], "a commit + 1 ms", within[warmup:]))
	b.add(slower("P15", "the same, beside what the runtime's own timers are late", measure.Bound{},
		late[warmup:], fmt.Sprintf("a commit + latest of %d bare timers", dueSessions), bare[warmup:]))
	return nil
}

// When the sessions, or bare timers, of one round are due.
const (
	firstDue = 40 * time.Millisecond
	dueApart = 3 * time.Millisecond
)

func dueIn(i int) time.Duration { return firstDue + time.Duration(i)*dueApart }

// latestTimer returns how late the one of some timers was that rang last, each for a goroutine that
// does nothing but wait for it: what nobody can be told earlier.
func latestTimer() time.Duration {
	late := make([]time.Duration, dueSessions)
	var running sync.WaitGroup
	for i := range late {
		wait := dueIn(i)
		began := time.Now()
		timer := time.NewTimer(wait)
		running.Go(func() {
			<-timer.C
			late[i] = time.Since(began) - wait
		})
	}
	running.Wait()
	return slices.Max(late)
}

const dueSessions = 20

// lonePuts returns what some writes take that are alone, and as far apart as the ends of sessions:
// one that follows another at once finds the processors and the disk awake.
func (o *ours) lonePuts() (measure.Series, error) {
	var took measure.Series
	for i := range dueSessions {
		time.Sleep(dueApart)
		began := time.Now()
		if _, err := o.Put("lone", fmt.Append(nil, began, i), nil); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(began)))
	}
	return took, nil
}

// latest lets some sessions expire, one after the other, and returns how late the one was that was
// told last, at most: its TTL runs from a moment within its last Renew.
func (o *ours) latest() (time.Duration, error) {
	late := make([]time.Duration, dueSessions)
	short := make([]*lockd.Session, dueSessions)
	err := spread(dueSessions, dueSessions, func(i int) (err error) {
		short[i], err = o.NewSession(&lockd.SessionOptions{TTL: dueIn(i)})
		return err
	})
	if err != nil {
		return 0, err
	}
	var running sync.WaitGroup
	for i, s := range short {
		began := time.Now()
		if err := s.Renew(); err != nil {
			return 0, err
		}
		running.Go(func() {
			<-s.Done()
			late[i] = time.Since(began) - s.Info().TTL
		})
	}
	running.Wait()
	return slices.Max(late), nil
}
