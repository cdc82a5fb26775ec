package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// Holder is one grant of a lock that is held: the only one, or one of those that share it.
type Holder struct {
	Session SessionInfo
	Grant   Sequencer // its fence is what ForceUnlock takes
	Since   time.Time // when it was granted; zero if that was before the file was opened
}

// holdersOf returns the holders as users know them.
func holdersOf(holders []engine.Holder) []Holder {
	var list []Holder
	for _, h := range holders {
		list = append(list, Holder{sessionInfo(h.Session), sequencerOf(h.Grant), h.Since.Round(0)})
	}
	return list
}
