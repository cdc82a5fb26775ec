package lockd_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/lockd/lockd"
)

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		db, err := lockd.New(nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, keys := range []int{100, benchKeys} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) { benchmarkOpen(b, keys, 0) })
	}
}

// BenchmarkOpen_Log is BenchmarkOpen of a file whose log is full.
func BenchmarkOpen_Log(b *testing.B) { benchmarkOpen(b, benchKeys, 400) }

// benchmarkOpen opens a file of that many keys. Each of that many commits has written some of them.
func benchmarkOpen(b *testing.B, keys, commits int) {
	path := filepath.Join(b.TempDir(), "lockd.db")
	db, err := lockd.Open(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	err = db.Update(func(tx *lockd.Txn) error {
		for i := range keys {
			if _, err := tx.Put(fmt.Sprintf("locks/%06d", i), []byte("value"), nil); err != nil {
				return err
			}
		}
		return nil
	})
	random := rand.New(rand.NewPCG(1, 2))
	for range commits {
		err = errors.Join(err, db.Update(func(tx *lockd.Txn) error {
			for range 20 {
				key := fmt.Sprintf("locks/%06d", random.IntN(keys))
				if _, err := tx.Put(key, []byte("other"), nil); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		db, err := lockd.Open(path, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
