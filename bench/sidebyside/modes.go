package main

import (
	"sync"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
	"github.com/lockd/lockd/bench/internal/rival"
)

// modes is P16: what it costs to share a lock.
func modes(b *bench) error {
	keys := keysOf(b.size(manyKeys, manyKeys))
	db, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, measured := range []func(*bench, *ours, []string) error{
		shareBesidePair, shareInCrowd, shareBesideReaders,
	} {
		if err := measured(b, db, keys); err != nil {
			return err
		}
	}
	return nil
}

// share is pair with a lock that is shared.
func (o *ours) share(key string) error {
	lock, err := o.session.TryLock(key, &shared)
	if err != nil {
		return err
	}
	return lock.Unlock()
}

var shared = lockd.LockOptions{Mode: lockd.Shared}

func shareBesidePair(b *bench, db *ours, keys []string) error {
	figures, err := b.inTurn(
		b.loop("shared", keys, db.share), b.loop("exclusive", keys, db.pair))
	if err != nil {
		return err
	}
	b.add(slower("P16", "shared pair in memory, 1 goroutine, "+count(len(keys))+" keys",
		measure.AtMost(1.25), figures[0].Wall, "lockd, exclusive pair", figures[1].Wall))
	allocations := testing.AllocsPerRun(1000, func() { err = db.share(keys[0]) })
	b.add(report.Row{Target: "P16", What: "allocations of a shared pair",
		Figure: measure.Series{allocations}, Unit: report.Count})
	return err
}

// crowdOfReaders is how many goroutines share one key.
const crowdOfReaders = 64

// shareInCrowd lets goroutines each take a share of one key and release it, so that most of the
// time others share it too.
func shareInCrowd(b *bench, db *ours, keys []string) error {
	mutexes := rival.NewMutexes[sync.RWMutex](keys)
	b.setting(mutexes.Settings())
	one := make([]string, crowdOfReaders) // each worker has a key, here the same
	for i := range one {
		one[i] = keys[0]
	}
	figures, err := b.inTurn(
		b.crowdInRAM("lockd", crowdOfReaders, one, func(_ int, key string) error {
			return db.share(key)
		}),
		b.crowdInRAM("RWMutexes", crowdOfReaders, one, func(_ int, key string) error {
			lock := mutexes.Of(key)
			lock.RLock()
			defer lock.RUnlock()
			return nil
		}))
	if err != nil {
		return err
	}
	b.add(slower("P16", "shared pair of one key, 64 goroutines", measure.Bound{},
		figures[0].Wall, "sync.RWMutex per key", figures[1].Wall))
	return nil
}

// manyReaders is how many holders share one key.
const manyReaders = 10_000

// shareBesideReaders compares joining and leaving a lock that many share with a shared pair of a
// key that is free.
func shareBesideReaders(b *bench, db *ours, keys []string) error {
	crowded, free := keys[0], keys[1]
	readers := make([]*lockd.Lock, b.size(manyReaders, manyReaders))
	var err error
	for i := range readers {
		if readers[i], err = db.session.TryLock(crowded, &shared); err != nil {
			return err
		}
	}
	figures, err := b.inTurn(
		b.repeat("beside readers", func(int) error { return db.share(crowded) }),
		b.repeat("free", func(int) error { return db.share(free) }))
	if err != nil {
		return err
	}
	b.add(slower("P16", "joining and leaving "+count(len(readers))+" holders of one key",
		measure.Bound{}, figures[0].Wall, "lockd, shared pair of a free key", figures[1].Wall))
	return nil
}
