package lockd_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockd/lockd"
)

// Ensure that a crowd on a file, some of whose calls are refused, ends, and that each lock has one
// holder at a time.
func TestG1_CrowdOnAFile(t *testing.T) {
	db, err := lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	var holders [4]atomic.Int64
	var running sync.WaitGroup
	for worker := range 64 {
		running.Go(func() {
			for i := range 100 {
				key := (worker + i) % len(holders)
				lock, err := s.TryLock(fmt.Sprint(key), nil)
				if held := new(lockd.LockedError); errors.As(err, &held) {
					continue
				}
				if err == nil {
					if holders[key].Add(1) != 1 {
						t.Error("two hold one lock")
					}
					holders[key].Add(-1)
					err = lock.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if err := errors.Join(db.Err(), db.Close()); err != nil {
		t.Error(err)
	}
}
