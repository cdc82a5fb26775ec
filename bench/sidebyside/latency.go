package main

import (
	"errors"
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
// a commit takes is known from the number of commits.
func tryLockInCrowd(b *bench) error {
	const workers = 64
	// In a shorter round the slowest call of 100 is the slowest of all.
	defer b.roundsOnDisk(b.onDisk + 250*time.Millisecond)()
	keys := keysOf(workers * ownKeys)
	db, err := openOurs(b.file("lockd.db"), nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	var writes counter
	crowd := db.counting(&writes, b.crowd("lockd", workers, keys, db.pairOf))
	var commit measure.Series
	figures, err := b.inTurn(db.probed(measure.Trial{Run: func() (measure.Cost, error) {
		cost, err := crowd.Run()
		if err == nil {
			commit = append(commit, float64(cost.Wall)/writes.commits[len(writes.commits)-1])
		}
		return cost, err
	}}))
	if err != nil {
		return err
	}
	b.add(slower("P15", "p99 of a durable TryLock under 64 writers", measure.AtMost(3),
		figures[0].Wall, "a commit", commit[b.rounds.Warmup:]))
	return nil
}

// probed is a trial of one goroutine that takes and releases a lock of its own beside the crowd.
// Its cost is the 99th percentile of its TryLocks.
func (o *ours) probed(crowd measure.Trial) measure.Trial {
	return measure.Trial{Name: "TryLock", Run: func() (measure.Cost, error) {
		var took measure.Series
		var failure error
		var stop atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			for again := true; again; again = !stop.Load() && failure == nil { // once at least
				began := time.Now()
				lock, err := o.session.TryLock("probe", nil)
				took = append(took, float64(time.Since(began)))
				if err == nil {
					err = lock.Unlock()
				}
				failure = err
			}
		})
		_, err := crowd.Run()
		stop.Store(true)
		running.Wait()
		p99 := time.Duration(took.Percentile(0.99))
		return measure.Cost{Operations: 1, Wall: p99}, errors.Join(err, failure)
	}}
}

// dueInTime measures how late sessions are told that their time is up.
func dueInTime(b *bench) error {
	total := b.size(manyKeys, 10_000)
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
	var median, latest, usual, slowest, bare measure.Series
	_, err = b.inTurn(measure.Trial{Name: "due", Run: func() (measure.Cost, error) {
		commits, err := db.lonePuts()
		if err != nil {
			return measure.Cost{}, err
		}
		timers := lateTimers()
		ends, err := db.lateEnds()
		if err != nil {
			return measure.Cost{}, err
		}
		const granted = float64(time.Millisecond)
		median, latest = append(median, ends.Median()), append(latest, slices.Max(ends))
		usual = append(usual, commits.Median()+granted)
		slowest = append(slowest, slices.Max(commits)+granted)
		bare = append(bare, commits.Median()+slices.Max(timers))
		return measure.Cost{Operations: 1, Wall: time.Duration(slices.Max(ends))}, nil
	}})
	if err != nil {
		return err
	}
	warmup := b.rounds.Warmup
	what := fmt.Sprintf("of %d TTLs that are due, with %s sessions", dueSessions, count(total))
	b.add(slower("P15", "median "+what, measure.AtMost(1),
		median[warmup:], "a commit + 1 ms", usual[warmup:]))
	b.add(slower("P15", "latest "+what, measure.AtMost(1),
		latest[warmup:], fmt.Sprintf("slowest of %d commits + 1 ms", dueSessions),
		slowest[warmup:]))
	b.add(slower("P15", "the same, beside the usual commit", measure.Bound{},
		latest[warmup:], "a commit + 1 ms", usual[warmup:]))
	b.add(slower("P15", "the same, beside what the runtime's own timers are late", measure.Bound{},
		latest[warmup:], fmt.Sprintf("a commit + latest of %d bare timers", dueSessions),
		bare[warmup:]))
	return nil
}

// When the sessions, or bare timers, of one round are due.
const (
	firstDue = 250 * time.Millisecond // for renewals in a busy program
	dueApart = 3 * time.Millisecond
)

func dueIn(i int) time.Duration { return firstDue + time.Duration(i)*dueApart }

// lateTimers returns how late some timers ring, each for a goroutine that does nothing but wait for
// it. No session can be told earlier.
func lateTimers() measure.Series {
	late := make(measure.Series, dueSessions)
	var running sync.WaitGroup
	for i := range late {
		wait := dueIn(i)
		began := time.Now()
		timer := time.NewTimer(wait)
		running.Go(func() {
			<-timer.C
			late[i] = float64(time.Since(began) - wait)
		})
	}
	running.Wait()
	return late
}

const dueSessions = 20

// lonePuts returns how long some lone writes take, which are as far apart as the ends of sessions:
// a write that follows another at once finds the processors and the disk awake.
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

// lateEnds lets some sessions expire, one after the other, and returns how late, at most, each was
// told: its TTL runs from a moment within its last Renew.
func (o *ours) lateEnds() (measure.Series, error) {
	late := make(measure.Series, dueSessions)
	short := make([]*lockd.Session, dueSessions)
	err := spread(dueSessions, dueSessions, func(i int) (err error) {
		short[i], err = o.NewSession(&lockd.SessionOptions{TTL: dueIn(i)})
		return err
	})
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	for i, s := range short {
		began := time.Now()
		if err := s.Renew(); err != nil {
			return nil, err
		}
		running.Go(func() {
			<-s.Done()
			late[i] = float64(time.Since(began) - s.Info().TTL)
		})
	}
	running.Wait()
	return late, nil
}
