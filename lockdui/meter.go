package lockdui

import (
	"slices"
	"sync"
	"time"

	"github.com/lockd/lockd"
)

const (
	readingEvery = time.Second     // the least time between two readings
	readingsFor  = 2 * time.Minute // how long readings are kept
)

// meter keeps readings of the commits, from which the page of the file computes rates. A reading is
// taken when that page is made: a rate needs only the counts at both ends of its time. Its methods
// may be called by many goroutines.
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

// note takes a reading, unless the last one is less than readingEvery old.
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
