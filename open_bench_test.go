package lockd_test

import (
	"fmt"
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
		b.Run(fmt.Sprint(keys), func(b *testing.B) { benchmarkOpen(b, keys) })
	}
}

func benchmarkOpen(b *testing.B, keys int) {
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
	if err == nil {
		err = db.Close()
	}
	if err != nil {
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
