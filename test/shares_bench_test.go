package lockd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lockd/lockd"
)

// manySessions makes a database with n sessions.
func manySessions(b *testing.B, n int) (*lockd.DB, []*lockd.Session) {
	b.Helper()
	db, err := lockd.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	sessions := make([]*lockd.Session, n)
	for i := range sessions {
		if sessions[i], err = db.NewSession(nil); err != nil {
			b.Fatal(err)
		}
	}
	return db, sessions
}

// lockInTxn takes a lock without a handle.
func lockInTxn(b *testing.B, db *lockd.DB, key string, s *lockd.Session, o *lockd.LockOptions) {
	b.Helper()
	if err := db.Update(func(tx *lockd.Txn) error {
		_, err := tx.Lock(key, s.ID(), o)
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

func unlockInTxn(b *testing.B, db *lockd.DB, key string, s *lockd.Session) {
	b.Helper()
	if err := db.Update(func(tx *lockd.Txn) error {
		_, err := tx.Unlock(key, s.ID())
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// waitAtOnce has each session call wait, which waits until its context ends or it is served. It
// returns when all wait.
func waitAtOnce(
	db *lockd.DB, sessions []*lockd.Session, wait func(s *lockd.Session),
) (ended *sync.WaitGroup) {
	ended = new(sync.WaitGroup)
	for _, s := range sessions {
		ended.Go(func() { wait(s) })
	}
	for db.Stats().Waiters < len(sessions) {
	}
	return ended
}

// waitIn has the sessions wait for the key until the context ends.
func waitIn(
	ctx context.Context, db *lockd.DB, key string, sessions []*lockd.Session,
) *sync.WaitGroup {
	return waitAtOnce(db, sessions, func(s *lockd.Session) { _, _ = s.Lock(ctx, key, nil) })
}

// BenchmarkLeave_Shared has sessions without a handle leave a lock that they share, one after the
// other, while a writer waits for it.
func BenchmarkLeave_Shared(b *testing.B) {
	for _, readers := range []int{1000, 4000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, sessions := manySessions(b, readers+1)
				for _, s := range sessions[1:] {
					lockInTxn(b, db, "k", s, shared)
				}
				ctx, cancel := context.WithCancel(b.Context())
				ended := waitIn(ctx, db, "k", sessions[:1])
				b.StartTimer()
				for _, s := range sessions[1:] {
					unlockInTxn(b, db, "k", s)
				}
				b.StopTimer()
				cancel()
				ended.Wait()
				db.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*readers), "ns/reader")
		})
	}
}

// BenchmarkGiveUp_Shared has as many writers as a lock has readers give up together. Each gets an
// error with all readers.
func BenchmarkGiveUp_Shared(b *testing.B) {
	for _, n := range []int{500, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, sessions := manySessions(b, 2*n)
				for _, s := range sessions[n:] {
					lockInTxn(b, db, "k", s, shared)
				}
				ctx, cancel := context.WithCancel(b.Context())
				ended := waitIn(ctx, db, "k", sessions[:n])
				b.StartTimer()
				cancel()
				ended.Wait()
				b.StopTimer()
				db.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/writer")
		})
	}
}

// BenchmarkUnlock_ManyShares has one session release locks that it shares with no other, each in a
// transaction.
func BenchmarkUnlock_ManyShares(b *testing.B) {
	for _, keys := range []int{1000, 20_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, sessions := manySessions(b, 1)
				for i := range keys {
					lockInTxn(b, db, fmt.Sprint(i), sessions[0], shared)
				}
				b.StartTimer()
				for i := range keys {
					unlockInTxn(b, db, fmt.Sprint(i), sessions[0])
				}
				b.StopTimer()
				db.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
		})
	}
}
