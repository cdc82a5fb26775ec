package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// Holder is one grant of a held lock: the only grant, or one of several that share the lock.
type Holder struct {
	Session SessionInfo
	Grant   Sequencer // ForceUnlock takes its fence
	Since   time.Time // when it was granted; zero if that was before the file was opened
}

// holdersOf converts the holders to the type that users know.
func holdersOf(holders []engine.Holder) []Holder {
	var list []Holder
	for _, h := range holders {
		list = append(list, Holder{sessionInfo(h.Session), sequencerOf(h.Grant), h.Since.Round(0)})
	}
	return list
}
