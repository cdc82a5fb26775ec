package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
)

// sessions is P7.
func sessions(b *bench) error {
	if err := sessionsAlive(b); err != nil {
		return err
	}
	if err := sessionsExpire(b, b.size(manyKeys, 5_000), time.Second, ""); err != nil {
		return err
	}
	return sessionsExpire(b, b.size(manyKeys, 2_500), 3*time.Second, "lockd")
}

// sessionsAlive measures what it takes to make, keep and renew sessions.
func sessionsAlive(b *bench) error {
	total := b.size(manyKeys, manyKeys)
	db, err := lockd.New(nil)
	if err != nil {
		return err
	}
	defer db.Close()
	made := make([]*lockd.Session, total)
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	watch := measure.Start()
	for i := range made {
		if made[i], err = db.NewSession(&lockd.SessionOptions{TTL: time.Hour}); err != nil {
			return err
		}
	}
	creation := watch.Stop(total)
	grown := liveHeap() - heap
	more := runtime.NumGoroutine() - goroutines

	table := make(map[lockd.SessionID]*lockd.Session, total)
	for _, s := range made {
		table[s.ID()] = s
	}
	rand.Shuffle(total, func(i, j int) { made[i], made[j] = made[j], made[i] })
	ids := make([]lockd.SessionID, total)
	for i, s := range made {
		ids[i] = s.ID()
	}
	var mu sync.Mutex
	figures, err := b.inTurn(
		b.repeat("renew", func(i int) error { return made[i%total].Renew() }),
		b.repeat("map", func(i int) error {
			mu.Lock()
			found := table[ids[i%total]]
			mu.Unlock()
			if found == nil {
				return errors.New("a session is missing")
			}
			return nil
		}))
	if err != nil {
		return err
	}
	b.add(slower("P7", "renew one of "+count(total)+" sessions", measure.AtMost(3), figures[0].Wall,
		"map lookup under a mutex", figures[1].Wall))
	b.add(report.Row{Target: "P7", What: "create a session, in memory", Unit: report.Nanoseconds,
		Figure: measure.Series{float64(creation.Wall) / float64(total)}})
	b.add(report.Row{Target: "P7", What: "memory for a session", Unit: report.Bytes,
		Figure: measure.Series{grown / float64(total)}, Bound: measure.AtMost(600)})
	b.add(report.Row{Target: "P7", What: "more goroutines with " + count(total) + " sessions",
		Unit: report.Count, Figure: measure.Series{float64(more)}, Bound: measure.AtMost(0)})
	return nil
}

// liveHeap is how much memory is in use after garbage was collected, in bytes.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // what the first one found to be finalised
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// sessionsExpire measures how long it takes until all of the sessions that are due at once, with a
// key each, have ended, and how long another call waits meanwhile. The time that is allowed is for
// 100,000 sessions. The database is in memory if the file has no name.
func sessionsExpire(b *bench, total int, within time.Duration, name string) error {
	where := "in memory"
	if name != "" {
		where = "durable"
	}
	var waits measure.Series
	round := 0
	figures, err := b.inTurn(measure.Trial{Name: "lockd", Run: func() (measure.Cost, error) {
		path := ""
		if name != "" {
			path = b.file(fmt.Sprintf("%s%d.db", name, round))
		}
		round++
		cost, wait, err := expireAll(path, total, plain)
		waits = append(waits, float64(wait))
		return cost, err
	}})
	if err != nil {
		return err
	}
	all := make(measure.Series, len(figures[0].Wall))
	for i, each := range figures[0].Wall {
		all[i] = each * float64(total)
	}
	limit := float64(within) * float64(total) / manyKeys
	b.add(report.Row{Target: "P7", Unit: report.Nanoseconds, Figure: all,
		Bound: measure.AtMost(limit),
		What:  fmt.Sprintf("%s sessions expire at once, each with a key, %s", count(total), where)})
	b.add(report.Row{Target: "P7", Unit: report.Nanoseconds, Figure: waits[b.rounds.Warmup:],
		Bound: measure.AtMost(float64(20 * time.Millisecond)),
		What:  "longest call of another meanwhile, " + where})
	return nil
}

const expiringTTL = 10 * time.Second

// plain is the clock as it is.
func plain(mock *clock.Mock) clock.Clock { return mock }

// expireAll makes sessions that hold a key each, lets all of them be due at one instant, and
// returns the cost until the last one was told its end, and the longest call meanwhile.
func expireAll(
	path string, total int, on func(mock *clock.Mock) clock.Clock,
) (cost measure.Cost, wait time.Duration, err error) {
	mock := clock.NewMock()
	db, err := openOurs(path, &lockd.Options{Clock: on(mock)}, nil)
	if err != nil {
		return cost, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	keys := keysOf(total)
	holders := make([]*lockd.Session, total)
	err = spread(512, total, func(i int) (err error) {
		holders[i], err = db.NewSession(&lockd.SessionOptions{TTL: expiringTTL})
		if err == nil {
			_, err = holders[i].TryLock(keys[i], nil)
		}
		return err
	})
	if err != nil {
		return cost, 0, err
	}
	runtime.GC()
	var stop atomic.Bool
	longest := make(chan time.Duration)
	go func() { longest <- db.longestPair(&stop) }()
	watch := measure.Start()
	mock.Add(expiringTTL)
	for _, holder := range holders {
		<-holder.Done()
	}
	cost = watch.Stop(total)
	stop.Store(true)
	if wait = <-longest; wait < 0 {
		return cost, 0, errors.New("the other's calls failed")
	}
	return cost, wait, nil
}

// longestPair takes and releases a lock of its own until it is stopped, and returns how long the
// longest of its calls took, or a negative time if one failed.
func (o *ours) longestPair(stop *atomic.Bool) time.Duration {
	var longest time.Duration
	for again := true; again; again = !stop.Load() { // so that there is a call to be measured
		began := time.Now()
		lock, err := o.session.TryLock("other", nil)
		taken := time.Now()
		if err == nil {
			err = lock.Unlock()
		}
		if err != nil {
			return -1
		}
		longest = max(longest, taken.Sub(began), time.Since(taken))
	}
	return longest
}
