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

// watchers is P8.
func watchers(b *bench) error {
	keys := keysOf(chunk)
	db, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, on := range []struct {
		what  string
		scope func(name string) lockd.Scope
	}{{"keys", lockd.Key}, {"prefixes", lockd.Prefix}} {
		if err := watchersOn(b, db, keys, on.what, on.scope); err != nil {
			return err
		}
	}
	return nil
}

// watchersOn compares writes without a watcher with writes while many watch something else. The
// watchers, a goroutine each, are there in their rounds only.
func watchersOn(
	b *bench, db *ours, keys []string, what string, scope func(string) lockd.Scope,
) error {
	total := b.size(manyWatchers, manyWatchers/4)
	n := 0
	write := b.loop("a write", keys, func(key string) error {
		n++
		_, err := db.Put(key, fmt.Append(nil, n), nil)
		return err
	})
	var woken measure.Series
	beside := measure.Trial{Name: "with watchers", Run: func() (measure.Cost, error) {
		a := newAudience(db, total, scope)
		cost, err := write.Run()
		each, wakeErr := a.wakeSome()
		woken = append(woken, each)
		a.leave()
		return cost, errors.Join(err, wakeErr)
	}}
	figures, err := b.inTurn(write, beside)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("a write elsewhere with %s watchers on %s of their own", count(total), what)
	b.add(slower("P8", text, measure.AtMost(1.3), figures[1].Wall,
		"lockd without a watcher", figures[0].Wall))
	b.add(slower("P8", text+", CPU", measure.AtMost(1.3), figures[1].CPU,
		"lockd without a watcher", figures[0].CPU))
	b.add(report.Row{Target: "P8", What: "watchers woken by a write to one of the " + what,
		Unit: report.Count, Figure: woken[b.rounds.Warmup:], Bound: measure.AtMost(1)})
	return nil
}

// audience is many who watch, each on a goroutine of its own.
type audience struct {
	db      *ours
	cancel  context.CancelFunc
	running sync.WaitGroup
	told    []chan struct{} // of each watcher
	wakes   atomic.Int64
}

func newAudience(db *ours, total int, scope func(string) lockd.Scope) *audience {
	ctx, cancel := context.WithCancel(context.Background())
	a := &audience{db: db, cancel: cancel, told: make([]chan struct{}, total)}
	index := db.Snapshot().Index()
	for i := range a.told {
		told := make(chan struct{})
		a.told[i] = told
		changed := db.Changed(ctx, scope(watched(i)), index)
		a.running.Go(func() {
			select {
			case <-changed:
				a.wakes.Add(1)
				close(told)
			case <-ctx.Done():
			}
		})
	}
	return a
}

func watched(i int) string { return fmt.Sprintf("watched-%08d", i) }

// wakeSome writes to a few of what is watched, waits until the watcher of each is told, and
// returns how many were for each write.
func (a *audience) wakeSome() (float64, error) {
	const writes = 20
	before := a.wakes.Load()
	for i := range writes {
		at := i * len(a.told) / writes
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

// leave ends all of them.
func (a *audience) leave() {
	a.cancel()
	a.running.Wait()
}
