package lockd_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// benchEnds is how many sessions end at once.
const benchEnds = 1000

// BenchmarkExpiry_Memory ends a thousand sessions that are due at once and hold a key each.
func BenchmarkExpiry_Memory(b *testing.B) { benchmarkExpiry(b, lockd.New) }

// BenchmarkExpiry_File is the same in a file, of which nothing is synced: it would take too long to
// make the sessions.
func BenchmarkExpiry_File(b *testing.B) {
	path := filepath.Join(b.TempDir(), "lockd.db")
	benchmarkExpiry(b, func(o *lockd.Options) (*lockd.DB, error) {
		return lockd.Open(path, o)
	})
}

func benchmarkExpiry(b *testing.B, open func(*lockd.Options) (*lockd.DB, error)) {
	const ttl = time.Minute
	mock := clock.NewMock()
	db, err := open(&lockd.Options{Clock: mock, Sync: lockd.SyncNever})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	holders := make([]*lockd.Session, benchEnds)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		mock.Add(lockd.DefaultLockDelay) // of the keys, after the round before
		for i := range holders {
			holders[i], err = db.NewSession(&lockd.SessionOptions{TTL: ttl})
			if err == nil {
				_, err = holders[i].TryLock(fmt.Sprintf("locks/%06d", i), nil)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		mock.Add(ttl)
		for _, s := range holders {
			<-s.Done()
		}
	}
}
