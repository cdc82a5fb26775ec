package rival

import (
	"sync"

	"github.com/moby/locker"
)

// Mutexes is a sync.Mutex for each key, in a map under a mutex of its own.
type Mutexes struct {
	mu    sync.Mutex // protects what follows
	locks map[string]*sync.Mutex
}

// MutexesSettings says how Mutexes are set.
func MutexesSettings() string {
	return "sync.Mutex per key: in a map[string]*sync.Mutex under one mutex, all made before"
}

// NewMutexes returns the mutexes of the keys.
func NewMutexes(keys []string) *Mutexes {
	m := &Mutexes{locks: make(map[string]*sync.Mutex, len(keys))}
	for _, key := range keys {
		m.locks[key] = new(sync.Mutex)
	}
	return m
}

// Pair locks and unlocks the key's mutex.
func (m *Mutexes) Pair(key string) {
	m.mu.Lock()
	lock := m.locks[key]
	m.mu.Unlock()
	lock.Lock()
	defer lock.Unlock()
}

// RWMutexes is a sync.RWMutex for each key, in a map under a mutex of its own.
type RWMutexes struct {
	mu    sync.Mutex // protects what follows
	locks map[string]*sync.RWMutex
}

// RWMutexesSettings says how RWMutexes are set.
func RWMutexesSettings() string {
	return "sync.RWMutex per key: in a map[string]*sync.RWMutex under one mutex, all made before"
}

// NewRWMutexes returns the mutexes of the keys.
func NewRWMutexes(keys []string) *RWMutexes {
	m := &RWMutexes{locks: make(map[string]*sync.RWMutex, len(keys))}
	for _, key := range keys {
		m.locks[key] = new(sync.RWMutex)
	}
	return m
}

// Pair locks and unlocks the key's mutex for reading.
func (m *RWMutexes) Pair(key string) {
	m.mu.Lock()
	lock := m.locks[key]
	m.mu.Unlock()
	lock.RLock()
	defer lock.RUnlock()
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
