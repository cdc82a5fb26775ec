package lockd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// cutFile is a file as the system has it in memory, including writes that are not synced, and as a
// power cut would leave it, which is as it was at its last sync.
type cutFile struct {
	t      *testing.T
	path   string
	synced []byte
	syncs  int
}

// newCutFile returns a file with the content written in memory, and the content synced on disk.
func newCutFile(t *testing.T, written, synced []byte) *cutFile {
	t.Helper()
	c := &cutFile{t: t, path: filepath.Join(t.TempDir(), "lockd.db"), synced: synced}
	if err := os.WriteFile(c.path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// open opens the file. It calls synced for each sync of the file, before the sync counts.
func (c *cutFile) open(synced func()) *lockd.DB {
	c.t.Helper()
	watched := probe(nil, store.Hooks{Synced: func() error {
		c.syncs++
		if synced != nil {
			synced()
		}
		c.synced = readFile(c.t, c.path)
		return nil
	}})
	db, err := lockd.Open(c.path, &lockd.Options{Sync: lockd.SyncNever, Clock: watched})
	if err != nil {
		c.t.Fatal(err)
	}
	return db
}

// killedWithin returns a new file as a process leaves it that is killed right before its sync of
// that number, and the session that the process had.
func killedWithin(t *testing.T, sync int) (left *cutFile, id lockd.SessionID) {
	t.Helper()
	c := &cutFile{t: t, path: filepath.Join(t.TempDir(), "lockd.db")}
	var written, synced []byte
	db := c.open(func() {
		if c.syncs == sync {
			written, synced = readFile(t, c.path), c.synced
		}
	})
	s, err := db.NewSession(&lockd.SessionOptions{Lifetime: lockd.Independent})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; written == nil; i++ {
		if _, err := s.TryLock(fmt.Sprintf("lock/%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return newCutFile(t, written, synced), s.ID()
}

// Ensure that an answer of a database is still true after a power cut, and its index not used
// again, also if the answer depends on a write by a process that was killed before the sync, and
// nothing was written since: Open has on disk what it reads.
func TestPowerCut_G3G4_AnswersOfTheNextProcess(t *testing.T) {
	for sync := 2; sync < 40; sync++ { // the first one is in the middle of making the file's node
		killed, id := killedWithin(t, sync)
		db := killed.open(nil)
		told := db.Snapshot()
		held := make(map[string]lockd.Sequencer)
		if s, err := db.Session(id); err == nil {
			for key := range told.Prefix("lock/") {
				lock, err := s.TryLock(key, nil) // it has the lock: nothing is written
				if err != nil {
					t.Fatal(err)
				}
				held[key] = lock.Sequencer()
			}
		}
		if db.Snapshot().Index() != told.Index() {
			t.Fatalf("sync %d: something was written", sync)
		}
		cut := newCutFile(t, killed.synced, killed.synced)
		after := cut.open(nil)
		if index := after.Snapshot().Index(); index != told.Index() {
			t.Errorf("sync %d: index %d was told, and after the power cut it is %d", sync,
				told.Index(), index)
		}
		for key, q := range held {
			if err := after.CheckSequencer(q); err != nil {
				t.Errorf("sync %d: the lock of %s: %v", sync, key, err)
			}
		}
		if e, err := after.Put("new", nil, nil); err != nil || e.ModifyIndex <= told.Index() {
			t.Errorf("sync %d: index %d is used again: %d, %v", sync, told.Index(), e.ModifyIndex,
				err)
		}
		for _, db := range []*lockd.DB{db, after} {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
