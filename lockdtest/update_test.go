package lockdtest_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// Ensure that a method of the database that would wait for ever for the function of an Update
// panics when that function calls it, with the method and the line of the call; and that the
// database goes on.
func TestUpdate_CallsTheDatabase(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		s := session(t, db, "", time.Minute)
		lock := tryLock(t, s, "held")
		for name, do := range map[string]func(){
			"DB.Put":        func() { _, _ = db.Put("k", nil, nil) },
			"DB.Update":     func() { _ = db.Update(func(*lockd.Txn) error { return nil }) },
			"Fenced.Put":    func() { _, _ = db.If(lock.Sequencer()).Put("k", nil, nil) },
			"DB.NewSession": func() { _, _ = db.NewSession(nil) },
			"DB.Snapshot":   func() { db.Snapshot() },
			"DB.Close":      func() { _ = db.Close() },
			"DB.Watch": func() {
				for range db.Watch(t.Context(), lockd.KeyScope("k"), 1) {
				}
			},
			"DB.Follow": func() {
				for range db.Follow(t.Context(), "k") {
				}
			},
			"DB.Observe": func() {
				for range db.Observe(t.Context(), "k") {
				}
			},
			"Session.TryLock": func() { _, _ = s.TryLock("k", nil) },
			"Session.Lock":    func() { _, _ = s.Lock(t.Context(), "k", nil) },
			"Session.Close":   func() { _ = s.Close() },
			"Lock.Unlock":     func() { _ = lock.Unlock() },
			"DB.Advance":      func() { db.Advance(time.Second) },
			"DB.Expire":       func() { db.Expire(s) },
		} {
			text := recovered(func() {
				_ = db.Update(func(tx *lockd.Txn) error {
					_, err := tx.Put("k", nil, nil)
					must(t, err)
					do()
					return nil
				})
			})
			want := regexp.MustCompile(`^lockd: ` + name +
				` is called by the function of an Update, at .*update_test\.go:\d+, `)
			if !want.MatchString(text) {
				t.Errorf("%s: got %q, want %v", name, text, want)
			}
			if _, ok := db.Get("k"); ok {
				t.Errorf("%s: something is left", name)
			}
		}
		must(t, lock.Unlock())
	})
}

// Ensure that other goroutines may call, and wait, while the function of an Update runs.
func TestUpdate_OthersWait(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		var put *call
		must(t, db.Update(func(tx *lockd.Txn) error {
			put = start(func() error { _, err := db.Put("k", nil, nil); return err })
			if n := db.Stats().Keys; n != 0 {
				return fmt.Errorf("%d keys", n)
			}
			return nil
		}))
		must(t, put.wait())
	})
}

// recovered returns what fn panics with.
func recovered(fn func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	fn()
	return ""
}
