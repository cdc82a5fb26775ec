package rival

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// BoltRow is the length of the values that a Bolt writes, in bytes: between those that lockd writes
// in its own bbolt file for a key without a value, 11 to 15 for a free lock and 27 to 31 for one
// that is held.
const BoltRow = 22

// DefaultBatchSize is for how many writes DB.Batch waits unless it is told.
const DefaultBatchSize = 1000

// boltBucket has the rows.
var boltBucket = []byte("locks")

// Bolt is bbolt alone: somebody's own lock table in a file.
type Bolt struct {
	db    *bbolt.DB
	value []byte
}

// BoltSettings says how a Bolt is set.
func BoltSettings() string {
	return fmt.Sprintf("bbolt: %s, free list as a map and not synced, no statistics, rows of the "+
		"key and %d bytes; every commit is synced", Version("go.etcd.io/bbolt"), BoltRow)
}

// OpenBolt returns a new file at the path that has a row for each key.
func OpenBolt(path string, keys []string) (*Bolt, error) {
	db, err := bbolt.Open(path, 0o600, BoltOptions())
	if err != nil {
		return nil, err
	}
	b := &Bolt{db: db, value: []byte(strings.Repeat("v", BoltRow))}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(boltBucket)
		return err
	})
	keys = slices.Sorted(slices.Values(keys)) // at random, bbolt takes hours for a million
	for len(keys) > 0 && err == nil {
		some := keys[:min(len(keys), 100_000)]
		keys = keys[len(some):]
		err = b.Write(some)
	}
	if err != nil {
		return nil, fmt.Errorf("fill %s: %w, close: %v", path, err, db.Close())
	}
	return b, nil
}

// BoltOptions are the fastest ones that lose nothing in a crash.
func BoltOptions() *bbolt.Options {
	return &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoStatistics: true,
	}
}

// Write writes the rows of the keys in one transaction.
func (b *Bolt) Write(keys []string) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(boltBucket)
		for _, key := range keys {
			if err := bucket.Put([]byte(key), b.value); err != nil {
				return err
			}
		}
		return nil
	})
}

// Pair writes the key's row in two transactions of its own.
func (b *Bolt) Pair(key string) error {
	put := func(tx *bbolt.Tx) error { return tx.Bucket(boltBucket).Put([]byte(key), b.value) }
	if err := b.db.Update(put); err != nil {
		return err
	}
	return b.db.Update(put)
}

// BatchPair writes the key's row twice by DB.Batch, which joins what many goroutines write.
func (b *Bolt) BatchPair(key string) error {
	put := func(tx *bbolt.Tx) error { return tx.Bucket(boltBucket).Put([]byte(key), b.value) }
	if err := b.db.Batch(put); err != nil {
		return err
	}
	return b.db.Batch(put)
}

// SetBatch sets how long DB.Batch waits for others, and for how many at most. Nothing may be using
// b.
func (b *Bolt) SetBatch(delay time.Duration, size int) {
	b.db.MaxBatchDelay, b.db.MaxBatchSize = delay, size
}

// Close closes the file.
func (b *Bolt) Close() error { return b.db.Close() }
