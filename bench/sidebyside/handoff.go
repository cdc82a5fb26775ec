package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
)

// fewWaiters and manyWaiters are how many wait for one lock.
const fewWaiters, manyWaiters = 1_000, 10_000

// handOffs is P6.
func handOffs(b *bench) error {
	if err := handOffsInMemory(b); err != nil {
		return err
	}
	return handOffsOnDisk(b)
}

func handOffsInMemory(b *bench) error {
	q, err := newQueue("", nil)
	if err != nil {
		return err
	}
	defer q.db.Close()
	ours := func(waiters int) measure.Trial {
		return measure.Trial{Name: fmt.Sprintf("lockd, %d waiters", waiters),
			Run: func() (measure.Cost, error) {
				return b.queueUp(func() (measure.Cost, error) { return q.serve(waiters, waiters) })
			}}
	}
	bare := func(waiters int) measure.Trial {
		return measure.Trial{Name: fmt.Sprintf("channels, %d waiters", waiters),
			Run: func() (measure.Cost, error) {
				return b.queueUp(func() (measure.Cost, error) { return passOn(waiters), nil })
			}}
	}
	figures, err := b.inTurn(
		ours(fewWaiters), bare(fewWaiters), ours(manyWaiters), bare(manyWaiters))
	if err != nil {
		return err
	}
	few, many := figures[0], figures[2]
	const rival = "woken by a bare channel"
	b.add(slower("P6", "hand-off in memory, 1,000 waiters", measure.AtMost(2), few.Wall,
		rival, figures[1].Wall))
	b.add(slower("P6", "hand-off in memory, 10,000 waiters", measure.AtMost(2), many.Wall,
		rival, figures[3].Wall))
	const growth = "hand-off in memory, 10,000 waiters to 1,000"
	b.add(slower("P6", growth, measure.AtMost(1.8), many.Wall, "lockd, 1,000", few.Wall))
	b.add(slower("P6", growth+", CPU", measure.AtMost(1.8), many.CPU, "lockd, 1,000", few.CPU))
	return nil
}

// queueUp serves a queue again and again, until the measured time lasts for a round. The time until
// all waiters wait is not measured: a queue of 1,000 is served in less than a millisecond.
func (b *bench) queueUp(serve func() (measure.Cost, error)) (sum measure.Cost, err error) {
	for sum.Wall < b.inRAM {
		cost, err := serve()
		if err != nil {
			return sum, err
		}
		sum.Operations += cost.Operations
		sum.Wall += cost.Wall
		sum.CPU += cost.CPU
	}
	return sum, nil
}

func handOffsOnDisk(b *bench) error {
	q, err := newQueue(b.file("lockd.db"), nil)
	if err != nil {
		return err
	}
	defer q.db.Close()
	for _, waiters := range []int{fewWaiters, manyWaiters} {
		served := min(waiters, b.size(1000, 100))
		var commits measure.Series
		figures, err := b.inTurn(measure.Trial{Name: "lockd", Run: func() (measure.Cost, error) {
			cost, err := q.serve(waiters, served)
			if err == nil && q.commits == 0 {
				err = errors.New("nothing was committed")
			}
			commits = append(commits, q.commits/float64(served))
			return cost, err
		}})
		if err != nil {
			return err
		}
		b.add(report.Row{Target: "P6", Unit: report.Count, Bound: measure.AtMost(1),
			What: fmt.Sprintf("commits per durable hand-off, %s waiters, the first %s served",
				count(waiters), count(served)),
			Figure: commits[b.rounds.Warmup:], Ours: figures[0].Wall})
	}
	return nil
}

// queue is a lock that many sessions wait for.
type queue struct {
	db       *ours
	sessions []*lockd.Session
	commits  float64 // of the last serve, if it was on disk
}

const queueKey = "lock"

func newQueue(path string, opts *lockd.Options) (*queue, error) {
	db, err := openOurs(path, opts, []string{queueKey})
	if err != nil {
		return nil, err
	}
	q := &queue{db: db, sessions: make([]*lockd.Session, manyWaiters)}
	err = spread(64, manyWaiters, func(i int) (err error) {
		q.sessions[i], err = db.NewSession(nil)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

// serve lets that many sessions wait for the lock, each of which takes and releases it. It measures
// from its own first release until served of them are served, and sends the others away.
func (q *queue) serve(waiters, served int) (measure.Cost, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, err := q.db.session.TryLock(queueKey, nil)
	if err != nil {
		return measure.Cost{}, err
	}
	var left atomic.Int64
	left.Store(int64(served))
	enough, measured := make(chan struct{}), make(chan struct{})
	failures := make([]error, waiters)
	var running sync.WaitGroup
	for i, session := range q.sessions[:waiters] {
		running.Go(func() {
			lock, err := session.Lock(ctx, queueKey, nil)
			if errors.Is(err, context.Canceled) {
				return
			}
			if err == nil {
				if left.Add(-1) == 0 {
					close(enough)
					<-measured // so that nothing more happens before the time is taken
				}
				err = lock.Unlock()
			}
			failures[i] = err
		})
	}
	if err := q.await(waiters); err != nil {
		return measure.Cost{}, err
	}
	cost, err := q.timed(first, served, enough)
	cancel()
	close(measured)
	running.Wait()
	return cost, errors.Join(append(failures, err)...)
}

// timed releases the lock, and returns the cost until enough were served.
func (q *queue) timed(
	first *lockd.Lock, served int, enough <-chan struct{},
) (cost measure.Cost, err error) {
	before := q.db.commits()
	watch := measure.Start()
	if err := first.Unlock(); err != nil {
		return cost, err
	}
	<-enough
	cost = watch.Stop(served)
	q.commits = float64(q.db.commits() - before)
	return cost, nil
}

// await returns when that many sessions wait for the lock.
func (q *queue) await(waiters int) error {
	for {
		stats := q.db.Stats()
		if stats.Err != nil || stats.Waiters == waiters {
			return stats.Err
		}
		runtime.Gosched()
	}
}

// passOn lets that many goroutines wait, each for a channel of its own, and wake each other in
// turn. They count as the sessions in serve do.
func passOn(waiters int) measure.Cost {
	channels := make([]chan struct{}, waiters+1)
	for i := range channels {
		channels[i] = make(chan struct{}, 1)
	}
	var left atomic.Int64
	left.Store(int64(waiters))
	enough := make(chan struct{})
	var started, running sync.WaitGroup
	started.Add(waiters)
	for i := range waiters {
		running.Go(func() {
			started.Done()
			<-channels[i]
			if left.Add(-1) == 0 {
				close(enough)
			}
			channels[i+1] <- struct{}{}
		})
	}
	started.Wait()
	watch := measure.Start()
	channels[0] <- struct{}{}
	<-enough
	cost := watch.Stop(waiters)
	running.Wait()
	return cost
}
