package lockd_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/lockd/lockd"
)

// BenchmarkUpdate_Crowd has many goroutines take and release locks of their own, each by an Update
// with one operation, and do something else between, as clients over HTTP do.
func BenchmarkUpdate_Crowd(b *testing.B) {
	for _, callers := range []int{1, 2, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			const pairs = 200
			var other [16 << 10]byte
			db, s, keys := benchDB(b, "")
			b.ReportAllocs()
			for b.Loop() {
				var wait sync.WaitGroup
				for i := range callers {
					wait.Go(func() {
						for range pairs {
							updatePair(b, db, keys[i], s.ID())
							sha256.Sum256(other[:])
						}
					})
				}
				wait.Wait()
			}
			reportEach(b, pairs*callers, "ns/pair")
		})
	}
}

// updatePair takes a lock and releases it, by an Update each.
func updatePair(b *testing.B, db *lockd.DB, key string, session lockd.SessionID) {
	err := db.Update(func(tx *lockd.Txn) error {
		_, err := tx.Lock(key, session, nil)
		return err
	})
	if err == nil {
		err = db.Update(func(tx *lockd.Txn) error {
			_, err := tx.Unlock(key, session)
			return err
		})
	}
	if err != nil {
		b.Error(err)
	}
}
