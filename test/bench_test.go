package lockd_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

const benchKeys = 100_000

// benchDB returns a database with keys, a session, and the keys in random order.
func benchDB(b *testing.B, path string) (*lockd.DB, *lockd.Session, []string) {
	b.Helper()
	var db *lockd.DB
	var err error
	if path == "" {
		db, err = lockd.New(nil)
	} else {
		db, err = lockd.Open(path, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	keys := make([]string, benchKeys)
	err = db.Update(func(tx *lockd.Txn) error {
		for i := range keys {
			keys[i] = fmt.Sprintf("locks/%06d", i)
			if _, err := tx.Put(keys[i], []byte("value"), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := db.NewSession(nil)
	if err != nil {
		b.Fatal(err)
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return db, s, keys
}

// pair takes a lock and releases it.
func pair(b *testing.B, s *lockd.Session, key string) { pairWith(b, s, key, nil) }

func pairWith(b *testing.B, s *lockd.Session, key string, opts *lockd.LockOptions) {
	l, err := s.TryLock(key, opts)
	if err == nil {
		err = l.Unlock()
	}
	if err != nil {
		b.Error(err)
	}
}

func BenchmarkPair_Memory(b *testing.B) {
	_, s, keys := benchDB(b, "")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pair(b, s, keys[i%len(keys)])
		i++
	}
}

// BenchmarkPair_Hot has everything in the processor's caches.
func BenchmarkPair_Hot(b *testing.B) {
	_, s, keys := benchDB(b, "")
	b.ReportAllocs()
	for b.Loop() {
		pair(b, s, keys[0])
	}
}

// BenchmarkPair_Shared is BenchmarkPair_Memory for a shared lock without other holders: the first
// holder writes to the key too.
func BenchmarkPair_Shared(b *testing.B) {
	_, s, keys := benchDB(b, "")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pairWith(b, s, keys[i%len(keys)], shared)
		i++
	}
}

// BenchmarkPair_Joined is BenchmarkPair_Shared beside more and more other holders of the one lock.
func BenchmarkPair_Joined(b *testing.B) {
	for holders := 10; holders <= 100_000; holders *= 10 {
		b.Run(fmt.Sprint(holders), func(b *testing.B) {
			_, s, keys := benchDB(b, "")
			for range holders {
				if _, err := s.TryLock(keys[0], shared); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				pairWith(b, s, keys[0], shared)
			}
		})
	}
}

// BenchmarkPair_TTL is BenchmarkPair_Hot with a session that has to be renewed: each write looks at
// what is due.
func BenchmarkPair_TTL(b *testing.B) {
	db, _, keys := benchDB(b, "")
	s, err := db.NewSession(&lockd.SessionOptions{TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		pair(b, s, keys[0])
	}
}

func BenchmarkPair_File(b *testing.B) {
	_, s, keys := benchDB(b, filepath.Join(b.TempDir(), "lockd.db"))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pair(b, s, keys[i%len(keys)])
		i++
	}
}

func BenchmarkPut_Memory(b *testing.B) {
	db, _, keys := benchDB(b, "")
	values := [][]byte{[]byte("00000000"), []byte("11111111")}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		// Each turn through the keys puts the other value: to put the same value again is no write.
		if _, err := db.Put(keys[i%len(keys)], values[i/len(keys)%2], nil); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkUpdate_Memory commits transactions of a thousand writes.
func BenchmarkUpdate_Memory(b *testing.B) {
	const operations = 1000
	db, _, keys := benchDB(b, "")
	values := [][]byte{[]byte("00000000"), []byte("11111111")}
	b.ReportAllocs()
	first := 0
	for b.Loop() {
		value := values[first/len(keys)%2]
		err := db.Update(func(tx *lockd.Txn) error {
			for i := range operations {
				if _, err := tx.Put(keys[(first+i)%len(keys)], value, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		first += operations
	}
	reportEach(b, operations, "ns/row")
}

// reportEach reports the time of one operation. Each turn of the loop does many of them.
func reportEach(b *testing.B, many int, unit string) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(many), unit)
}

func BenchmarkUpdate_File(b *testing.B) {
	for _, operations := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(operations), func(b *testing.B) {
			db, _, keys := benchDB(b, filepath.Join(b.TempDir(), "lockd.db"))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				err := db.Update(func(tx *lockd.Txn) error {
					for range operations {
						i++
						key := keys[i%len(keys)]
						if _, err := tx.Put(key, fmt.Append(nil, i), nil); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			reportEach(b, operations, "ns/row")
		})
	}
}

// BenchmarkCommit_Crowd has many goroutines take and release locks of a file, each goroutine one
// lock of its own at a time.
func BenchmarkCommit_Crowd(b *testing.B) {
	const pairs = 10 // of each goroutine in one turn
	for _, writers := range []int{64, 512} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			_, s, keys := benchDB(b, filepath.Join(b.TempDir(), "lockd.db"))
			b.ReportAllocs()
			for b.Loop() {
				var wait sync.WaitGroup
				for w := range writers {
					wait.Go(func() {
						for i := range pairs {
							pair(b, s, keys[i*writers+w])
						}
					})
				}
				wait.Wait()
			}
			reportEach(b, pairs*writers, "ns/pair")
		})
	}
}

// benchmarkGet reads the keys in their order.
func benchmarkGet(b *testing.B, db *lockd.DB, keys []string) {
	i := 0
	for b.Loop() {
		if _, ok := db.Get(keys[i%len(keys)]); !ok {
			b.Fatal("missing")
		}
		i++
	}
}

func BenchmarkGet(b *testing.B) {
	db, _, keys := benchDB(b, "")
	b.ReportAllocs()
	benchmarkGet(b, db, keys)
}

// BenchmarkGet_Opened reads keys that have not been written since the file was opened.
func BenchmarkGet_Opened(b *testing.B) {
	path := filepath.Join(b.TempDir(), "lockd.db")
	made, _, keys := benchDB(b, path)
	if err := made.Close(); err != nil {
		b.Fatal(err)
	}
	db, err := lockd.Open(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.ReportAllocs()
	benchmarkGet(b, db, keys)
}

// BenchmarkGet_EveryCore reads on all cores at once.
func BenchmarkGet_EveryCore(b *testing.B) {
	db, _, keys := benchDB(b, "")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(keys)); pb.Next(); i++ {
			if _, ok := db.Get(keys[i%len(keys)]); !ok {
				b.Error("missing")
				return
			}
		}
	})
}

// BenchmarkGet_BesideWriter reads while another goroutine writes as fast as it can.
func BenchmarkGet_BesideWriter(b *testing.B) {
	db, s, keys := benchDB(b, "")
	var stop atomic.Bool
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; !stop.Load(); i++ {
			pair(b, s, keys[i%len(keys)])
		}
	})
	benchmarkGet(b, db, keys)
	stop.Store(true)
	writing.Wait()
}

// BenchmarkPrefix walks over a thousand keys of a snapshot.
func BenchmarkPrefix(b *testing.B) {
	db, _, _ := benchDB(b, "")
	const found = 1000
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range db.Snapshot().Prefix("locks/042") {
			n++
		}
		if n != found {
			b.Fatalf("keys: got %d, want %d", n, found)
		}
	}
	reportEach(b, found, "ns/key")
}

// BenchmarkSlot takes one of three slots of a semaphore and releases it.
func BenchmarkSlot(b *testing.B) {
	_, s, _ := benchDB(b, "")
	b.ReportAllocs()
	for b.Loop() {
		slot, err := s.TryAcquire("pool", 3)
		if err == nil {
			err = slot.Release()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// Ensure that a point read does not allocate, also if the entry was read from the file.
func TestGet_DoesNotAllocate(t *testing.T) {
	each(t, func(h *harness) {
		if _, err := h.Put("k", []byte("v"), nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n := testing.AllocsPerRun(100, func() { h.Get("k") }); n != 0 {
				t.Fatalf("allocations: got %v, want 0", n)
			}
			if h.path == "" {
				break
			}
			h.reopen()
		}
	})
}

// BenchmarkLock_Queue has many goroutines take and release one lock, each again and again: all but
// one wait.
func BenchmarkLock_Queue(b *testing.B) {
	for _, waiters := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			benchmarkQueue(b, waiters, 5, lockd.New)
		})
	}
}

// BenchmarkLock_QueueInFile is the same with a commit for each hand-off.
func BenchmarkLock_QueueInFile(b *testing.B) {
	path := filepath.Join(b.TempDir(), "lockd.db")
	benchmarkQueue(b, 100, 5, func(o *lockd.Options) (*lockd.DB, error) {
		return lockd.Open(path, o)
	})
}

func benchmarkQueue(
	b *testing.B, waiters, turns int, open func(*lockd.Options) (*lockd.DB, error),
) {
	db, err := open(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	sessions := benchSessions(b, db, waiters, nil)
	b.ReportAllocs()
	for b.Loop() {
		var wait sync.WaitGroup
		for _, s := range sessions {
			wait.Go(func() { lockOften(b, s, turns) })
		}
		wait.Wait()
	}
	reportEach(b, turns*waiters, "ns/hand-off")
}

func lockOften(b *testing.B, s *lockd.Session, times int) {
	for range times {
		l, err := s.Lock(b.Context(), "k", nil)
		if err == nil {
			err = l.Unlock()
		}
		if err != nil {
			b.Error(err)
			return
		}
	}
}
