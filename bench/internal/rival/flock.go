package rival

import (
	"fmt"
	"path/filepath"

	"github.com/gofrs/flock"
)

// Flock is gofrs/flock: the system's lock on a file for each key.
type Flock struct{ folder string }

// FlockSettings says how Flock is set.
func FlockSettings() string {
	return "gofrs/flock: " + Version("github.com/gofrs/flock") +
		", a file for each key, which stays; nothing is synced"
}

// NewFlock returns one that keeps its files in the folder, which must exist.
func NewFlock(folder string) *Flock { return &Flock{folder} }

// Pair locks and unlocks the file of the key, which must be a file's name.
func (f *Flock) Pair(key string) error {
	lock := flock.New(filepath.Join(f.folder, key))
	if taken, err := lock.TryLock(); err != nil || !taken {
		return fmt.Errorf("lock %s: taken %v: %w", key, taken, err)
	}
	return lock.Unlock()
}
