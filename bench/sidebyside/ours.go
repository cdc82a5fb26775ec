package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockd/lockd"
)

// ours is a database of lockd's with a session that takes its locks.
type ours struct {
	*lockd.DB
	session *lockd.Session
	path    string // empty: in memory
}

func oursSettings() string {
	return "lockd: as it is by default; in files SyncAlways, every commit synced"
}

// openOurs returns a database, in memory if the path is empty, that has the keys.
func openOurs(path string, opts *lockd.Options, keys []string) (*ours, error) {
	var db *lockd.DB
	var err error
	if path == "" {
		db, err = lockd.New(opts)
	} else {
		db, err = lockd.Open(path, opts)
	}
	if err != nil {
		return nil, err
	}
	o := &ours{DB: db, path: path}
	if err = o.fill(slices.Sorted(slices.Values(keys)), nil); err == nil {
		o.session, err = db.NewSession(nil)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return o, nil
}

// fill puts the keys, in transactions of a moderate size.
func (o *ours) fill(keys []string, value []byte) error {
	for len(keys) > 0 {
		some := keys[:min(len(keys), 100_000)]
		keys = keys[len(some):]
		err := o.Update(func(tx *lockd.Txn) error {
			for _, key := range some {
				if _, err := tx.Put(key, value, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pair takes the lock of the key and releases it.
func (o *ours) pair(key string) error {
	lock, err := o.session.TryLock(key, nil)
	if err != nil {
		return err
	}
	return lock.Unlock()
}

// pairOf is pair for the workers of a crowd.
func (o *ours) pairOf(_ int, key string) error { return o.pair(key) }

// get fails if there is no such key.
func (o *ours) get(key string) error {
	if _, found := o.Get(key); !found {
		return fmt.Errorf("key %s is gone", key)
	}
	return nil
}

// commits returns how many commits have written to the file.
func (o *ours) commits() uint64 { return o.Stats().Commits.Count }

// spread calls fn for each number below count, on that many goroutines, and returns an error of
// one of them.
func spread(workers, count int, fn func(i int) error) error {
	var running sync.WaitGroup
	failures := make([]error, workers)
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < count && failures[worker] == nil; i += workers {
				failures[worker] = fn(i)
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}
