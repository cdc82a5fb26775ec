package lockdui

import (
	"slices"
	"sync"
	"time"

	"github.com/lockd/lockd"
)

const (
	readingEvery = time.Second     // at the most
	readingsFor  = 2 * time.Minute // are kept
)

// meter turns counts into rates. It reads the counts whenever a page is made: of the time in
// between, only the counts at its ends are needed. Its methods may be called by many goroutines.
type meter struct {
	mu       sync.Mutex
	readings []reading // the oldest first; never empty
}

// reading is the counts at an instant.
type reading struct {
	At      time.Time
	Commits uint64
}

func (m *meter) init(now time.Time, stats lockd.Stats) {
	m.readings = []reading{{now, stats.Commits.Count}}
}

// note takes the counts, unless the last reading is hardly older.
func (m *meter) note(now time.Time, stats lockd.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.readings[len(m.readings)-1]
	if now.Sub(last.At) < readingEvery {
		return
	}
	m.readings = append(m.readings, reading{now, stats.Commits.Count})
	for len(m.readings) > 2 && now.Sub(m.readings[1].At) > readingsFor {
		m.readings = slices.Delete(m.readings, 0, 1)
	}
}

// all returns the readings.
func (m *meter) all() []reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.readings)
}
