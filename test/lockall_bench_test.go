package lockd_test

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkLockAll_Queue has many sessions take two locks together, and release them one by one:
// all but one wait.
func BenchmarkLockAll_Queue(b *testing.B) {
	for _, waiters := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, sessions := manySessions(b, waiters)
				gate, err := sessions[0].Lock(b.Context(), "a", nil)
				if err != nil {
					b.Fatal(err)
				}
				var ended sync.WaitGroup
				for _, s := range sessions[1:] {
					ended.Go(func() {
						locks, err := s.LockAll(b.Context(), []string{"a", "b"}, nil)
						for _, l := range locks {
							err = l.Unlock()
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				for db.Stats().Waiters < waiters-1 {
				}
				b.StartTimer()
				if err := gate.Unlock(); err != nil {
					b.Fatal(err)
				}
				ended.Wait()
				b.StopTimer()
				db.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*waiters), "ns/turn")
		})
	}
}
