package lockd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lockd/lockd"
)

// fillSlots gives each session a slot of a semaphore of that size.
func fillSlots(b *testing.B, sessions []*lockd.Session, limit int) {
	b.Helper()
	for _, s := range sessions {
		if _, err := s.TryAcquire("pool", limit); err != nil {
			b.Fatal(err)
		}
	}
}

// awaitSlots has the sessions wait for slots until the context ends, or they have them.
func awaitSlots(ctx context.Context, db *lockd.DB, sessions []*lockd.Session) *sync.WaitGroup {
	return waitAtOnce(db, sessions, func(s *lockd.Session) { _, _ = s.Acquire(ctx, "pool", 0) })
}

// BenchmarkSlot_Crowd takes a slot of a semaphore and releases it, beside many other holders.
func BenchmarkSlot_Crowd(b *testing.B) {
	for _, others := range []int{10, 100, 1000, 3000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			db, sessions := manySessions(b, others+1)
			defer db.Close()
			fillSlots(b, sessions[1:], others+1)
			b.ReportAllocs()
			for b.Loop() {
				slot, err := sessions[0].TryAcquire("pool", 0)
				if err == nil {
					err = slot.Release()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSetLimit_Queue has a new limit serve many calls at once, and then the database close.
func BenchmarkSetLimit_Queue(b *testing.B) {
	for _, n := range []int{500, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, sessions := manySessions(b, n+1)
				fillSlots(b, sessions[:1], 1)
				ended := awaitSlots(b.Context(), db, sessions[1:])
				b.StartTimer()
				if err := db.SetLimit("pool", n+1); err != nil {
					b.Fatal(err)
				}
				ended.Wait()
				db.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/waiter")
		})
	}
}

// BenchmarkGiveUp_Slots has as many waiters as a semaphore has holders give up together.
func BenchmarkGiveUp_Slots(b *testing.B) {
	for _, n := range []int{500, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, sessions := manySessions(b, 2*n)
				fillSlots(b, sessions[n:], n)
				ctx, cancel := context.WithCancel(b.Context())
				ended := awaitSlots(ctx, db, sessions[:n])
				b.StartTimer()
				cancel()
				ended.Wait()
				b.StopTimer()
				db.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/waiter")
		})
	}
}
