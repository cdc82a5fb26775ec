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
	var late, commit measure.Series
	_, err = b.inTurn(measure.Trial{Name: "due", Run: func() (measure.Cost, error) {
		writes, err := db.lonePuts()
		if err != nil {
			return measure.Cost{}, err
		}
		most, err := db.latest()
		late = append(late, float64(most))
		commit = append(commit, writes.Median()+float64(time.Millisecond))
		return measure.Cost{Operations: 1, Wall: most}, err
	}})
	if err != nil {
		return err
	}
	warmup := b.rounds.Warmup
	b.add(slower("P15", fmt.Sprintf("latest of %d TTLs that are due, with %s sessions",
		dueSessions, count(total)), measure.AtMost(1), late[warmup:], "a commit + 1 ms", commit[warmup:]))
	return nil
}

const dueSessions = 20

// lonePuts returns what some writes take that are alone.
func (o *ours) lonePuts() (measure.Series, error) {
	var took measure.Series
	for i := range dueSessions {
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
	const first, apart = 60 * time.Millisecond, 5 * time.Millisecond
	late := make([]time.Duration, dueSessions)
	short := make([]*lockd.Session, dueSessions)
	err := spread(dueSessions, dueSessions, func(i int) (err error) {
		short[i], err = o.NewSession(&lockd.SessionOptions{TTL: first + time.Duration(i)*apart})
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
