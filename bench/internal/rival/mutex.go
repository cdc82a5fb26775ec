package rival

import (
	"fmt"
	"sync"

	"github.com/moby/locker"
)

// Mutexes is a mutex of the type M for each key, in a map under a mutex of its own.
type Mutexes[M sync.Mutex | sync.RWMutex] struct {
	mu    sync.Mutex // protects what follows
	locks map[string]*M
}

// NewMutexes returns the mutexes of the keys.
func NewMutexes[M sync.Mutex | sync.RWMutex](keys []string) *Mutexes[M] {
	m := &Mutexes[M]{locks: make(map[string]*M, len(keys))}
	for _, key := range keys {
		m.locks[key] = new(M)
	}
	return m
}

// Settings says how the mutexes are set.
func (m *Mutexes[M]) Settings() string {
	kind := fmt.Sprintf("%T", new(M))[1:]
	return fmt.Sprintf("%s per key: in a map[string]*%[1]s under one mutex, all made before", kind)
}

// Of returns the mutex of the key.
func (m *Mutexes[M]) Of(key string) *M {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks[key]
}

// Moby is moby/locker: mutexes by name, that are made and dropped with their use.
type Moby struct{ locks *locker.Locker }

// MobySettings says how Moby is set.
func MobySettings() string { return "moby/locker: " + Version("github.com/moby/locker") }

// NewMoby returns one without locks.
func NewMoby() *Moby { return &Moby{locker.New()} }

// Pair locks and unlocks the key.
func (m *Moby) Pair(key string) error {
	m.locks.Lock(key)
	return m.locks.Unlock(key)
}
