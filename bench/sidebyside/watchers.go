package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
)

const manyWatchers = 100_000

// writeSlices is how often writes with and without watchers take turns in a round. Now and then
// either takes twice as long for some tens of milliseconds, which should hit both alike.
const writeSlices = 3

// watchers is P8. One database has the watchers, and another has none. Both exist all the time, so
// that writes to either have as many goroutines and as large a heap around them.
func watchers(b *bench) error {
	keys := keysOf(chunk)
	watched, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer watched.Close()
	lone, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer lone.Close()
	total := b.size(manyWatchers, manyWatchers/10)
	for _, on := range []struct {
		what  string
		scope func(name string) lockd.Scope
	}{{"keys", lockd.KeyScope}, {"prefixes", lockd.PrefixScope}} {
		a := newAudience(watched, total, on.scope)
		err := a.measure(b, lone, keys, on.what)
		a.leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// measure compares writes beside the audience, which watches something else, with writes to a
// database that nobody watches.
func (a *audience) measure(b *bench, lone *ours, keys []string, what string) error {
	n := 0
	writes := func(name string, db *ours) measure.Trial {
		return b.loop(name, keys, func(key string) error {
			n++
			_, err := db.Put(key, fmt.Append(nil, n), nil)
			return err
		})
	}
	var woken measure.Series
	beside := writes("with watchers", a.db)
	figures, err := b.inSlices(writeSlices, writes("without", lone), measure.Trial{
		Name: beside.Name, Run: func() (measure.Cost, error) {
			cost, err := beside.Run()
			each, wakeErr := a.wakeSome()
			woken = append(woken, each)
			return cost, errors.Join(err, wakeErr)
		}})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("a write elsewhere with %s watchers on %s of their own",
		count(len(a.told)), what)
	b.add(slower("P8", text, measure.AtMost(1.3), figures[1].Wall,
		"lockd without a watcher", figures[0].Wall))
	b.add(slower("P8", text+", CPU", measure.AtMost(1.3), figures[1].CPU,
		"lockd without a watcher", figures[0].CPU))
	b.add(report.Row{Target: "P8", What: "watchers woken by a write to one of the " + what,
		Unit: report.Count, Figure: woken[writeSlices*b.rounds.Warmup:], Bound: measure.AtMost(1)})
	return nil
}

// audience is many watchers, each on a goroutine of its own.
type audience struct {
	db      *ours
	cancel  context.CancelFunc
	running sync.WaitGroup
	told    []chan struct{} // of each watcher
	next    int             // to be woken
	wakes   atomic.Int64
}

// newAudience returns when all of them watch.
func newAudience(db *ours, total int, scope func(string) lockd.Scope) *audience {
	ctx, cancel := context.WithCancel(context.Background())
	a := &audience{db: db, cancel: cancel, told: make([]chan struct{}, total)}
	index := db.Snapshot().Index()
	for i := range a.told {
		told := make(chan struct{})
		a.told[i] = told
		a.running.Go(func() {
			if _, _, err := db.Wait(ctx, scope(watched(i)), index, 0); err == nil {
				a.wakes.Add(1)
				close(told)
			}
		})
	}
	for db.Stats().Watchers < total {
		time.Sleep(time.Millisecond)
	}
	return a
}

func watched(i int) string { return fmt.Sprintf("watch-%08d", i) }

// wakeSome writes to a few watched keys, to others each time, and waits until the watcher of each
// is told, which none was before. It returns how many watchers each write woke.
func (a *audience) wakeSome() (float64, error) {
	const writes, wakeStride = 20, 49 // 49 has no factor in common with a total
	before := a.wakes.Load()
	for i := range writes {
		at := a.next
		a.next = (a.next + wakeStride) % len(a.told)
		select {
		case <-a.told[at]:
			return 0, fmt.Errorf("the watcher of %s was woken by a write elsewhere", watched(at))
		default:
		}
		if _, err := a.db.Put(watched(at), fmt.Append(nil, time.Now(), i), nil); err != nil {
			return 0, err
		}
		select {
		case <-a.told[at]:
		case <-time.After(10 * time.Second):
			return 0, fmt.Errorf("nobody told the watcher of %s", watched(at))
		}
	}
	return float64(a.wakes.Load()-before) / writes, nil
}

// leave ends all watchers.
func (a *audience) leave() {
	a.cancel()
	a.running.Wait()
}
