package lockd_test

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/lockd/lockd"
)

// Ensure that a session, and all that a renewal touches of it, is one line of the processor's
// cache: see TestExtend_TouchesOnlyTheSession of package engine.
func TestSession_RenewalTouchesOneLine(t *testing.T) {
	const line = 64
	if size := unsafe.Sizeof(lockd.Session{}); size > line {
		t.Errorf("a Session has %d bytes, more than %d", size, line)
	}
}

// benchSessions makes that many sessions.
func benchSessions(
	b *testing.B, db *lockd.DB, total int, opts *lockd.SessionOptions,
) []*lockd.Session {
	b.Helper()
	sessions := make([]*lockd.Session, total)
	for i := range sessions {
		var err error
		if sessions[i], err = db.NewSession(opts); err != nil {
			b.Fatal(err)
		}
	}
	return sessions
}

// BenchmarkNewSession creates sessions with a TTL.
func BenchmarkNewSession(b *testing.B) {
	db, err := lockd.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := db.NewSession(&lockd.SessionOptions{TTL: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenew renews sessions in random order. A thousand of them are in the processor's caches,
// 100,000 are not.
func BenchmarkRenew(b *testing.B) {
	b.Run("Hot", func(b *testing.B) { benchmarkRenew(b, 1_000) })
	b.Run("Many", func(b *testing.B) { benchmarkRenew(b, 100_000) })
}

func benchmarkRenew(b *testing.B, total int) {
	db, err := lockd.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	sessions := benchSessions(b, db, total, &lockd.SessionOptions{TTL: time.Hour})
	rand.Shuffle(total, func(i, j int) { sessions[i], sessions[j] = sessions[j], sessions[i] })
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := sessions[i%total].Renew(); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
